//! What is said at the end of an undo, a confirmation and a recovery is what the store and the disk say: with a fault at each system
//! call that writes, with files whose metadata somebody changed since, and by whichever command comes next.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;

use samehost_testing::files;
use serde_json::Value;

use crate::journal::{data, placed};
use crate::serving::{Site, unattended};
use crate::support::{Ended, Machine, bounded, wait_for};

const AWAITING: &str = "{\"record\":\"awaiting\",\"until\":\"2099-01-01T00:00:00Z\"}\n";
const OVERDUE: &str = "{\"record\":\"awaiting\",\"until\":\"2020-01-01T00:00:00Z\"}\n";

/// A machine with a recorded switch whose journal has one line more.
fn placed_with(name: &str, line: &str) -> (Machine, String) {
    let (machine, id) = placed(name, "state");
    let journal = machine.path(&format!("state/samehost/switches/{id}/journal"));
    fs::File::options().append(true).open(journal).unwrap().write_all(line.as_bytes()).unwrap();
    // As the journal has it.
    fs::set_permissions(machine.path("site/php/pool.d/www.conf"), fs::Permissions::from_mode(0o640)).unwrap();
    (machine, id)
}

fn listed(machine: &Machine, id: &str) -> Value {
    let ended = machine.samehost(&["switch", "list", "--dry-run", "--json"]);
    let all: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.both()));
    all.as_array().unwrap().iter().find(|entry| entry["id"] == id).cloned().unwrap_or_default()
}

/// The files that exist with the bytes of before the switch.
fn are_as_before(machine: &Machine) -> Vec<String> {
    let now = files(&machine.path("site"));
    let mut same = Vec::new();
    for (path, content) in files(&data("before")) {
        if now.get(&path) == Some(&content) {
            same.push(machine.path("site").join(path).display().to_string());
        }
    }
    same
}

/// A kind of fault at each point, until none is passed any more: what is told is compared with what is there.
fn at_each_fault(kind: &str, name: &str, line: &str, act: &[&str]) {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let mut without = 0;
    for point in 1..300 {
        let (machine, id) = placed_with(name, line);
        let before = files(&machine.path("site"));
        let act: Vec<&str> = act.iter().map(|word| if *word == "ID" { &id } else { *word }).collect();
        let mut command = machine.command(&[&["switch"], &act[..], &["--json"]].concat());
        let ended = bounded(command.env("SAMEHOST_FAULT", format!("{kind}:{point}")).take());
        let entry = listed(&machine, &id);
        let state = entry["state"].as_str().unwrap_or_default().to_owned();
        let context =
            format!("{kind}:{point} of {act:?}, now {state}, status {}: {}", ended.status, ended.both());
        let told: Option<Value> = serde_json::from_str(&ended.stdout).ok();
        match told.as_ref().and_then(|told| told.as_array()?.iter().find(|one| one["id"] == *id).cloned()) {
            Some(told) => {
                assert_eq!(told["state"].as_str().unwrap_or_default(), state, "{context}");
                let same = are_as_before(&machine);
                for file in told["files"].as_array().unwrap() {
                    let is_same = same.iter().any(|path| file == path.as_str());
                    // A file that the switch made is as it was when it is gone.
                    assert!(is_same || !PathBuf::from(file.as_str().unwrap()).exists(), "{file}: {context}");
                }
                let words = told["ending"].as_str().unwrap();
                assert_eq!(state == "unfinished", words.contains("switch recover"), "{context}");
                assert_eq!(state == "unfinished", ended.status == 3, "{context}");
                if state == "undone" || state == "rolled_back" {
                    assert_eq!(files(&machine.path("site")), files(&data("before")), "{context}");
                }
                *ends.entry(format!("{state} {}", ended.status)).or_default() += 1;
            }
            None => {
                assert!((1..=3).contains(&ended.status), "{context}");
                assert_eq!(files(&machine.path("site")), before, "nothing was told: {context}");
                assert!(!ended.stderr.is_empty(), "{context}");
                let _ = ends
                    .entry(format!("refused {}", ended.status))
                    .and_modify(|count| *count += 1)
                    .or_insert(1);
            }
        }
        // Whatever it was, the next recovery ends it.
        let recovered = machine.samehost(&["switch", "recover", "--yes"]);
        assert!(
            !listed(&machine, &id)["state"].as_str().unwrap_or_default().contains("unfinished"),
            "{context}\n{}",
            recovered.both()
        );
        without = if ended.both().contains("Input/output error") || ended.both().contains("No space") {
            0
        } else {
            without + 1
        };
        if without >= 12 {
            assert!(point > 20 || act[0] == "confirm", "only {point} points: {ends:?}");
            return;
        }
    }
    panic!("more than 300 points: {ends:?}");
}

trait Take {
    fn take(&mut self) -> Command;
}

impl Take for Command {
    fn take(&mut self) -> Command {
        std::mem::replace(self, Command::new("true"))
    }
}

#[test]
fn an_undo_says_what_is_there_at_each_failing_system_call() {
    at_each_fault("error", "committed", "", &["undo", "ID", "--yes"]);
}

#[test]
fn an_undo_says_what_is_there_on_a_disk_that_fails_from_some_moment_on() {
    at_each_fault("broken", "committed", "", &["undo", "ID", "--yes"]);
}

#[test]
fn a_recovery_says_what_is_there_at_each_failing_system_call() {
    at_each_fault("error", "stage-3-half", "", &["recover", "--yes"]);
}

#[test]
fn a_recovered_undo_says_what_is_there_at_each_failing_system_call() {
    at_each_fault("full", "undo-half", "", &["recover", "--yes"]);
}

#[test]
fn a_confirmation_says_what_is_there_at_each_failing_system_call() {
    at_each_fault("error", "committed", AWAITING, &["confirm", "ID"]);
}

/// How a file stands whose metadata somebody changed, as text and octal mode.
fn mode(path: &PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_undo_gives_text_back_and_keeps_what_was_closed_since() {
    let (machine, id) = placed_with("committed", "");
    let (nginx, pool) = (machine.path("site/nginx/nginx.conf"), machine.path("site/php/pool.d/www.conf"));
    fs::set_permissions(&nginx, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&pool, Some(33), Some(33)).unwrap();
    fs::set_permissions(&pool, fs::Permissions::from_mode(0o400)).unwrap();
    rustix::fs::setxattr(&pool, "user.note", b"mine", rustix::fs::XattrFlags::empty()).unwrap();
    for act in [&["undo", &id, "--dry-run"][..], &["undo", &id, "--yes"]] {
        let ended = machine.samehost(&[&["switch"], act].concat());
        let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in
            ["its mode is 0600 (0644 before the switch)", "its owner is 33:33 (0:0 before", "user.note"]
        {
            assert!(said.contains(words), "{act:?}: {words}: {}", ended.both());
        }
        assert!(!said.contains("nginx.conf is as it was"), "{}", ended.both());
    }
    assert_eq!(files(&machine.path("site")), files(&data("before")));
    assert_eq!((mode(&nginx), mode(&pool)), (0o600, 0o400));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&pool).unwrap());
    assert_eq!(owner, 33);
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(&pool, "user.note", &mut value[..]).unwrap(), 4);
}

#[test]
fn what_nobody_changed_is_as_it_was() {
    let (machine, id) = placed_with("committed", "");
    let ended = machine.samehost(&["switch", "undo", &id, "--yes"]);
    for name in ["nginx/nginx.conf", "php/pool.d/www.conf"] {
        let line = format!("{} is as it was", machine.path("site").join(name).display());
        assert!(ended.stdout.contains(&line), "{line}: {}", ended.both());
    }
    assert!(!ended.stdout.contains("that stays"), "{}", ended.both());
    assert_eq!(
        (mode(&machine.path("site/nginx/nginx.conf")), listed(&machine, &id)["state"].clone()),
        (0o644, "undone".into())
    );
}

#[test]
fn a_taking_back_that_nobody_watches_keeps_what_was_closed_since() {
    let (machine, id) = placed_with("committed", OVERDUE);
    let nginx = machine.path("site/nginx/nginx.conf");
    fs::set_permissions(&nginx, fs::Permissions::from_mode(0o600)).unwrap();
    let dry = machine.samehost(&["switch", "recover", "--dry-run"]);
    assert!(dry.stderr.contains("without --dry-run it is put back first"), "{}", dry.both());
    let ended = machine.samehost(&["switch", "list"]);
    assert!(
        ended.stderr.contains("is put back") && ended.stderr.contains("its mode is 0600"),
        "{}",
        ended.both()
    );
    assert_eq!(files(&machine.path("site")), files(&data("before")));
    assert_eq!((mode(&nginx), listed(&machine, &id)["state"].clone()), (0o600, "undone".into()));
}

#[test]
fn a_file_made_anew_keeps_its_own_metadata_and_one_that_became_a_link_is_refused() {
    let (machine, id) = placed_with("committed", "");
    let nginx = machine.path("site/nginx/nginx.conf");
    let text = fs::read(&nginx).unwrap();
    fs::remove_file(&nginx).unwrap();
    let elsewhere = machine.write("elsewhere.conf", &text);
    symlink(&elsewhere, &nginx).unwrap();
    for act in [&["undo", &id, "--dry-run"][..], &["undo", &id, "--yes"]] {
        let refused = machine.samehost(&[&["switch"], act].concat());
        assert!(
            refused.status == 1 && refused.stderr.contains("changed by someone else"),
            "{}",
            refused.both()
        );
    }
    assert_eq!(
        (fs::read(&elsewhere).unwrap(), listed(&machine, &id)["state"].clone()),
        (text.clone(), "committed".into())
    );
    fs::remove_file(&nginx).unwrap();
    fs::write(&nginx, &text).unwrap();
    fs::set_permissions(&nginx, fs::Permissions::from_mode(0o440)).unwrap();
    // Its directory is closed meanwhile, and stays so.
    let folder = nginx.parent().unwrap().to_owned();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let undone = machine.samehost(&["switch", "undo", &id, "--yes"]);
    assert!(undone.stdout.contains("undone") && undone.stdout.contains("0440"), "{}", undone.both());
    assert_eq!((mode(&nginx), mode(&folder)), (0o440, 0o700));
    assert_eq!(files(&machine.path("site")), files(&data("before")));
}

#[test]
fn what_somebody_put_back_by_hand_is_said_and_an_undo_ends_the_switch() {
    let (machine, id) = placed_with("committed", "");
    let switched = files(&machine.path("site"));
    let by_hand = |name: &str| fs::copy(data("before").join(name), machine.path("site").join(name)).unwrap();
    let undo = |how: &str| {
        let ended = machine.samehost(&["switch", "undo", &id, how]);
        (ended.status, ended.stdout.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    by_hand("nginx/nginx.conf");
    let nginx = machine.path("site/nginx/nginx.conf").display().to_string();
    let entry = listed(&machine, &id);
    assert_eq!(
        (&entry["state"], &entry["put_back_by_hand"][0]),
        (&"committed".into(), &nginx.clone().into())
    );
    let (status, said) = undo("--dry-run");
    assert!(status == 0 && said.contains("it would be undone"), "{said}");
    assert!(said.contains(&format!("{nginx} was put back by hand: nothing to do there")), "{said}");
    let checked = machine.samehost(&["switch", "check"]);
    assert!(checked.status == 1 && checked.stdout.contains("was put back by hand"), "{}", checked.both());
    by_hand("php/pool.d/www.conf");
    assert_eq!(listed(&machine, &id)["state"], "put_back_by_hand");
    let shown = machine.samehost(&["switch", "list"]);
    assert!(shown.stdout.contains(&format!("{nginx} (put back by hand)")), "{}", shown.both());
    let (status, said) = undo("--dry-run");
    assert!(status == 0 && said.contains("none of them would change"), "{said}");
    // Whoever writes the switch's text again has it in force again.
    fs::write(&nginx, &switched[&PathBuf::from("nginx/nginx.conf")]).unwrap();
    assert_eq!(listed(&machine, &id)["state"], "committed");
    by_hand("nginx/nginx.conf");
    // The recorded processes are gone, and cannot take it.
    let (_, said) = undo("--yes");
    assert!(said.contains("undone"), "{said}");
    assert_eq!(listed(&machine, &id)["state"], "undone");
    assert_eq!(files(&machine.path("site")), files(&data("before")));
}

#[test]
fn an_overdue_switch_that_somebody_put_back_by_hand_ends_at_its_time() {
    let (machine, id) = placed_with("committed", OVERDUE);
    for name in ["nginx/nginx.conf", "php/pool.d/www.conf"] {
        fs::copy(data("before").join(name), machine.path("site").join(name)).unwrap();
    }
    let ended = machine.samehost(&["switch", "list"]);
    assert!(ended.stderr.contains("is put back"), "{}", ended.both());
    assert_eq!(listed(&machine, &id)["state"], "undone");
}

#[test]
fn what_is_longer_than_the_screen_is_wrapped_and_ids_and_paths_stay_whole() {
    let (machine, id) = placed_with("committed", "");
    for (columns, words) in
        [("60", &["list"][..]), ("60", &["check"]), ("60", &["undo", "none"]), ("30", &["list"])]
    {
        let mut command = machine.command(&[&["switch"], words].concat());
        let ended = bounded(command.env("COLUMNS", columns).take());
        for line in ended.both().lines() {
            let is_one_word =
                !line.trim().contains(' ') || line.starts_with(&id) || line.contains("(put back");
            let fits = line.chars().count() <= columns.parse().unwrap();
            assert!(fits || is_one_word, "{words:?}: {line}");
        }
        let whole = ended.both().contains(&machine.path("site/nginx/nginx.conf").display().to_string());
        assert!(whole || words[0] == "undo", "{}", ended.both());
    }
}

#[test]
fn a_file_that_was_made_immutable_is_refused_before_anything_is_touched() {
    let (machine, id) = placed_with("committed", "");
    let before = files(&machine.path("site"));
    for (name, flag) in
        [("site/nginx/nginx.conf", "i"), ("site/php/pool.d/www.conf", "a"), ("site/php/pool.d", "i")]
    {
        let path = machine.path(name).display().to_string();
        let set =
            |sign: &str| Command::new("chattr").args([&format!("{sign}{flag}"), &path]).status().unwrap();
        assert!(set("+").success(), "the file system of /srv has no attributes (chattr)");
        let dry = machine.samehost(&["switch", "undo", &id, "--dry-run"]);
        let refused = machine.samehost(&["switch", "undo", &id, "--yes"]);
        set("-");
        for ended in [dry, refused] {
            assert_eq!(ended.status, 1, "{}", ended.both());
            assert!(ended.stderr.contains(&format!("chattr -{flag}")), "{}", ended.both());
        }
        assert_eq!(
            (files(&machine.path("site")), listed(&machine, &id)["state"].clone()),
            (before.clone(), "committed".into())
        );
    }
}

#[test]
fn a_switch_that_cannot_be_taken_back_is_told_once_and_with_what_to_do() {
    let (machine, id) = placed_with("committed", OVERDUE);
    let nginx = machine.path("site/nginx/nginx.conf");
    let edited = [&fs::read(&nginx).unwrap()[..], b"# edited\n"].concat();
    fs::write(&nginx, &edited).unwrap();
    let first = machine.samehost(&["switch", "check"]);
    assert!(
        first.stderr.contains("stays in force") && first.stderr.contains(&format!("switch confirm {id}")),
        "{}",
        first.both()
    );
    for verb in ["check", "list", "recover"] {
        let later = machine.samehost(&["switch", verb]);
        assert!(!later.stderr.contains(&id), "{verb}: {}", later.both());
    }
    let list = machine.samehost(&["switch", "list"]);
    assert!(list.stdout.contains("was to be put back"), "{}", list.both());
    assert_eq!(fs::read(&nginx).unwrap(), edited);
    let kept = machine.samehost(&["switch", "confirm", &id]);
    assert!(kept.status == 0 && kept.stdout.contains("confirmed: it stays in force"), "{}", kept.both());
    assert_eq!(listed(&machine, &id)["state"], "committed");
}

#[test]
fn an_undo_said_twice_does_not_undo_the_next_older_one() {
    let (machine, id) = placed_with("committed", "");
    // A newer one of other files, which is undone.
    let newer = "20261122-030000-0000";
    let journal = fs::read_to_string(machine.path(&format!("state/samehost/switches/{id}/journal"))).unwrap();
    let journal = journal.replace(&id, newer) + "{\"record\":\"undone\",\"left\":[]}\n";
    machine.write(&format!("state/samehost/switches/{newer}/journal"), journal);
    let before = files(&machine.path("site"));
    for words in [&["switch", "undo", "--yes"][..], &["switch", "--undo", "--yes"]] {
        let refused = machine.samehost(words);
        assert_eq!(refused.status, 1, "{}", refused.both());
        assert!(
            refused.stderr.contains(newer) && refused.stderr.contains(&format!("switch undo {id}")),
            "{}",
            refused.both()
        );
        assert_eq!(files(&machine.path("site")), before);
    }
    let by_name = machine.samehost(&["switch", "undo", &id, "--yes"]);
    assert!(by_name.stdout.contains("undone"), "{}", by_name.both());
}

fn without_files(machine: &Machine, words: &[&str]) -> Ended {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 0; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_samehost")]).args(words);
    command.env("XDG_STATE_HOME", machine.path("state")).env("NO_COLOR", "1");
    bounded(command)
}

#[test]
fn who_may_write_no_file_is_told_so_before_anything_is_touched() {
    let (machine, id) = placed_with("committed", AWAITING);
    let before = [files(&machine.path("site")), files(&machine.path("state"))];
    let nginx = machine.path("site/nginx/nginx.conf").display().to_string();
    for words in [
        &["switch", &nginx, "--to", "tcp", "--yes"][..],
        &["switch", "undo", &id, "--yes"],
        &["switch", "confirm", &id],
        &["switch", "prune", "--older-than", "1d", "--yes"],
    ] {
        let ended = without_files(&machine, words);
        assert!(ended.status == 3 || words[1] == "prune", "{words:?}: {}", ended.both());
        assert!(ended.stderr.contains("ulimit -f") || words[1] == "prune", "{words:?}: {}", ended.both());
        assert_eq!([files(&machine.path("site")), files(&machine.path("state"))], before, "{words:?}");
    }
}

/// A real switch whose journal cannot be written at some moment: what is said is what is in force.
#[test]
fn a_switch_says_what_is_in_force_at_each_failing_system_call_at_length() {
    let mut site = Site::new();
    let (id, web, before) = unattended(&mut site, "10m", false);
    let now = || {
        [fs::read(site.machine.path("nginx/sites/shop.conf")).unwrap(), fs::read(&site.pool).unwrap()]
            .concat()
    };
    let switched = now();
    let undone = site.switch(&["undo", &id, "--yes"]);
    assert!(undone.status == 0 && now() == before, "{}", undone.both());
    let main = site.machine.path("nginx/nginx.conf").display().to_string();
    let words = [
        "switch", &main, "--socket", &site.socket, "--observe", "50ms", "--confirm-within=0", "--accept",
        "other-files", "--yes", "--json",
    ];
    for point in (1..).step_by(3) {
        let mut command = site.machine.command(&words);
        let ended = bounded(command.env("SAMEHOST_FAULT", format!("error:{point}")).take());
        let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let id = told["id"].as_str().unwrap_or_default().to_owned();
        let state = listed(&site.machine, &id)["state"].as_str().unwrap_or_default().to_owned();
        let context = format!("error:{point}, now {state:?}, status {}: {}", ended.status, ended.both());
        match (told["outcome"].as_str().unwrap_or_default(), state.as_str()) {
            ("committed", "committed") => assert!(ended.status == 0 && now() == switched, "{context}"),
            ("rolled_back", "rolled_back") => assert!(ended.status == 4 && now() == before, "{context}"),
            ("unfinished", "unfinished") => {
                assert!(ended.status == 3, "{context}");
                let reason = told["reason"].as_str().unwrap();
                assert_eq!(reason.contains("is in force"), now() == switched, "{context}");
            }
            ("", _) => assert!(now() == before && ended.status == 3, "{context}"),
            other => panic!("{other:?}: {context}"),
        }
        let is_over = ended.status == 0;
        let _ = site.switch(&["recover", "--yes"]);
        if let Some(entry) = site.switches().iter().rev().find(|(_, state, _)| state == "committed") {
            let undone = site.switch(&["undo", &entry.0, "--yes"]);
            assert!(undone.status == 0, "{context}\n{}", undone.both());
        }
        assert!(now() == before, "{context}");
        wait_for("the site", || crate::serving::page(web).filter(|(status, _)| *status == 200));
        if is_over && point > 60 {
            return;
        }
        assert!(point < 600, "{context}");
    }
}
