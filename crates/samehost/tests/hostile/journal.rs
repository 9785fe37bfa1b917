//! Undo, recovery and the list of switches: shown and asked for, with damaged journals, other users' locks, and homes that
//! are somebody else's. The journals are those that version 0.1 wrote of a real switch.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use samehost_testing::files;

use crate::support::{ALICE, Ended, MALLORY, Machine, bounded, wait_for};

/// The password in the files of the journals.
const PASSWORD: &str = "hunter2journal";
/// Where the files of the journals were.
const ROOT: &str = "/srv/samehost-journals/site";

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samehost-transaction/tests/data/journals-0.1").join(name)
}

/// A machine with a journal and its files; the name of its switch.
pub(crate) fn placed(name: &str, state: &str) -> (Machine, String) {
    let machine = Machine::new();
    for (path, content) in files(&data(name).join("files")) {
        machine.write(&format!("site/{}", path.display()), content);
    }
    let site = machine.path("site").display().to_string();
    let switches = format!("{state}/samehost/switches");
    for (path, content) in files(&data(name).join("switches")) {
        let text = String::from_utf8(content).unwrap();
        let is_journal = path.ends_with("journal");
        let text = if is_journal { text.replace(ROOT, &site) } else { text };
        machine.write(&format!("{switches}/{}", path.display()), text);
    }
    fs::set_permissions(machine.path(&switches), fs::Permissions::from_mode(0o700)).unwrap();
    let id = fs::read_dir(machine.path(&switches)).unwrap().next().unwrap().unwrap().file_name();
    (machine, id.into_string().unwrap())
}

fn committed() -> (Machine, String) {
    placed("committed", "state")
}

/// Everything below the site and the state directory.
fn all(machine: &Machine) -> [BTreeMap<PathBuf, Vec<u8>>; 2] {
    [files(&machine.path("site")), files(&machine.path("state"))]
}

/// Answers the question on a terminal.
fn on_a_terminal(machine: &Machine, arguments: &str, answer: &str) -> (i32, String) {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_samehost"));
    samehost_testing::on_a_terminal(&command, &machine.path("state"), answer, || ())
}

#[test]
fn an_undo_is_shown_and_asked_for() {
    let (machine, id) = committed();
    let before = all(&machine);
    let dry = machine.samehost(&["switch", "undo", &id, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    for words in ["nginx.conf", "+ fastcgi_pass 127.0.0.1:18990;", "listen = 127.0.0.1:18990", "kill -"] {
        assert!(dry.stdout.contains(words), "{words}: {}", dry.stdout);
    }
    assert!(!dry.both().contains(PASSWORD), "{}", dry.both());
    assert_eq!(all(&machine), before, "a dry run touches nothing");
    let json = machine.samehost(&["switch", "undo", &id, "--dry-run", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["id"], id.as_str());
    assert!(json[0]["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{json}");
    for options in [&["switch", "undo", &id][..], &["switch", "undo", &id, "--json"]] {
        let nobody = machine.samehost(options);
        assert_eq!(nobody.status, 2, "{}", nobody.both());
        assert!(nobody.stderr.contains("--yes") && nobody.stderr.contains("--dry-run"), "{}", nobody.stderr);
    }
    let (status, said) = on_a_terminal(&machine, &format!("switch undo {id}"), "n");
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("nothing was touched"), "{said}");
    assert_eq!(all(&machine), before);
    let (_, said) = on_a_terminal(&machine, &format!("switch undo {id}"), "y");
    assert!(said.contains("is as it was"), "{said}");
    assert_eq!(files(&machine.path("site")), files(&data("before")), "{said}");
}

#[test]
fn a_recovery_is_shown_and_asked_for() {
    let (machine, id) = placed("stage-3-half", "state");
    let before = all(&machine);
    let dry = machine.samehost(&["switch", "recover", "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(dry.stdout.contains(&id) && dry.stdout.contains("was interrupted"), "{}", dry.stdout);
    assert!(dry.stdout.contains("+ fastcgi_pass 127.0.0.1:18990;"), "{}", dry.stdout);
    let nobody = machine.samehost(&["switch", "recover"]);
    assert_eq!(nobody.status, 2, "{}", nobody.both());
    let (status, said) = on_a_terminal(&machine, "switch recover", "");
    assert_eq!(status, 1, "{said}");
    assert_eq!(all(&machine), before, "nothing was agreed to");
    let done = machine.samehost(&["switch", "recover", "--yes"]);
    assert!(done.stdout.contains("put back"), "{}", done.both());
    assert_eq!(files(&machine.path("site")), files(&data("before")));
    let again = machine.samehost(&["switch", "recover", "--yes"]);
    assert_eq!(again.status, 0, "{}", again.both());
}

#[test]
fn a_damaged_and_a_newer_journal_are_lines_of_the_list_and_stop_nothing_else() {
    let (machine, id) = placed("stage-3-half", "state");
    let of = |id: &str| format!("state/samehost/switches/{id}/journal");
    machine.write(&of("20200101-000000-aaaa"), [0xff_u8; 300].as_slice());
    machine.write(
        &of("20200101-000000-bbbb"),
        "{\"record\":\"begun\",\"version\":99,\"steps\":[{\"path\":\"/etc/other.conf\"}]}\n",
    );
    machine.write(&of("20200101-000000-cccc"), b"\x00\n{\"record\":\"committed\"}\n");
    let list = machine.samehost(&["switch", "list"]);
    assert_eq!(list.status, 0, "{}", list.both());
    for words in
        ["cannot be read", "written by a newer samehost (layout 99)", "/etc/other.conf", &id, "/backup"]
    {
        assert!(list.stdout.contains(words), "{words}: {}", list.stdout);
    }
    let json = machine.samehost(&["switch", "list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 4, "{json}");
    let checked = machine.samehost(&["switch", "check", "--wait", "10ms"]);
    assert_eq!(checked.status, 1, "{}", checked.both());
    assert_eq!(
        checked.stdout.matches("the journal of the switch cannot be read").count(),
        3,
        "{}",
        checked.both()
    );
    let recovered = machine.samehost(&["switch", "recover", "--yes"]);
    assert_eq!(recovered.status, 1, "something is left: {}", recovered.both());
    for words in ["cccc: left as it is", "bbbb: left as it is", "put back"] {
        assert!(recovered.stdout.contains(words), "{words}: {}", recovered.both());
    }
    assert_eq!(files(&machine.path("site")), files(&data("before")));
    let other = machine.samehost(&["switch", "prune", "20200101-000000-bbbb", "--yes"]);
    assert_eq!(other.status, 1, "{}", other.both());
}

#[test]
fn nobody_elses_lock_blocks_an_undo() {
    let (mut machine, id) = committed();
    let folders = ["site/nginx", "site/php/pool.d"].map(|name| machine.path(name).display().to_string());
    let holders = folders.map(|folder| machine.start_as(MALLORY, "flock", &[&folder, "sleep", "600"]));
    let held = |pid: u32| {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.split_whitespace().nth(4) == Some(&pid.to_string())).then_some(())
    };
    for pid in holders {
        wait_for("the foreign lock", || held(pid));
    }
    let undone = machine.samehost(&["switch", "undo", &id, "--yes"]);
    assert!(undone.stdout.contains("is as it was"), "{}", undone.both());
    assert_eq!(files(&machine.path("site")), files(&data("before")));
}

/// Runs samehost in a mount namespace whose /var/lib is empty, with a home of somebody else's.
pub(crate) fn with_home(machine: &Machine, home: &Path, state: Option<&Path>, arguments: &[&str]) -> Ended {
    let script = "mount -t tmpfs -o mode=755 none /var/lib && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_samehost"),
        ])
        .args(arguments)
        .env("HOME", home)
        .env("NO_COLOR", "1")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null());
    if let Some(state) = state {
        command.env("XDG_STATE_HOME", state);
    }
    assert!(machine.path("").is_dir());
    bounded(command)
}

#[test]
fn journals_in_a_home_that_sudo_kept_are_found_and_planted_ones_are_not() {
    let (machine, id) = placed("committed", "home/.local/state");
    let home = machine.path("home");
    chown(&home, Some(ALICE), Some(ALICE)).unwrap();
    let list = with_home(&machine, &home, None, &["switch", "list"]);
    assert!(list.stdout.contains(&id), "what was made before is found: {}", list.both());
    let undone = with_home(&machine, &home, None, &["switch", "undo", &id, "--yes"]);
    assert!(undone.stdout.contains("is as it was"), "{}", undone.both());
    assert_eq!(files(&machine.path("site")), files(&data("before")));

    // Alice plants a journal whose reload is hers, in a directory of root's that is open to all.
    let trap = machine.path("trap");
    fs::create_dir(&trap).unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o1777)).unwrap();
    let pwned = machine.path("pwned");
    for (path, content) in files(&data("rolling-back/switches")) {
        let text = String::from_utf8(content).unwrap();
        let text = text.replace(ROOT, &machine.path("site").display().to_string());
        let text = text.replace("[\"sh\",\"-c\",\"false\"]", &format!("[\"touch\",\"{}\"]", pwned.display()));
        machine.write_as(ALICE, &format!("trap/{}", path.display()), text);
    }
    chown(&trap, Some(0), Some(0)).unwrap();
    let state = machine.folder_of("alice/.local/state/samehost", ALICE);
    symlink(&trap, state.join("switches")).unwrap();
    let home = machine.path("alice");
    for xdg in [None, Some(home.join(".local/state"))] {
        let said = with_home(&machine, &home, xdg.as_deref(), &["switch", "recover", "--yes"]);
        assert!(!pwned.exists(), "{}", said.both());
        assert!(said.stdout.contains("Nothing to recover"), "{}", said.both());
        assert_eq!(fs::metadata(&trap).unwrap().permissions().mode() & 0o7777, 0o1777);
    }
    // A state directory of hers, named outright, is not where root's journals go.
    let hers = machine.folder_of("hers", ALICE);
    let said = with_home(&machine, &home, Some(&hers), &["switch", "list"]);
    assert!(said.stderr.contains("kept in /var/lib/samehost"), "{}", said.both());
}

#[test]
fn what_has_ended_can_be_forgotten_with_its_passwords() {
    let (machine, id) = committed();
    let with_password = || {
        let state = files(&machine.path("state"));
        state.values().filter(|content| String::from_utf8_lossy(content).contains(PASSWORD)).count()
    };
    assert!(with_password() > 0);
    let nothing = machine.samehost(&["switch", "prune", "--yes"]);
    assert_eq!(nothing.status, 0, "{}", nothing.both());
    assert!(nothing.stdout.contains("Nothing to prune") && with_password() > 0, "{}", nothing.both());
    let dry = machine.samehost(&["switch", "prune", &id, "--dry-run"]);
    assert!(dry.status == 0 && dry.stdout.contains("cannot be undone any more"), "{}", dry.both());
    assert_eq!(machine.samehost(&["switch", "prune", &id]).status, 2, "nobody was asked");
    assert!(with_password() > 0);
    let forgotten = machine.samehost(&["switch", "prune", &id, "--yes"]);
    assert_eq!(forgotten.status, 0, "{}", forgotten.both());
    assert_eq!(with_password(), 0);
    assert_eq!(files(&machine.path("site")), files(&data("committed/files")), "what is in force stays");

    let (machine, id) = placed("undone", "state");
    let pruned = machine.samehost(&["switch", "prune", "--yes"]);
    assert_eq!((pruned.status, pruned.stdout), (0, format!("{id}: forgotten\n")));
    assert!(machine.samehost(&["switch", "list"]).stdout.contains("No switch was made yet"));

    let (machine, id) = placed("stage-2-written", "state");
    let refused = machine.samehost(&["switch", "prune", &id, "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(refused.stderr.contains("switch recover"), "{}", refused.stderr);
    let checked = machine.samehost(&["switch", "check"]);
    assert!(checked.status == 1 && checked.stdout.contains("was interrupted"), "{}", checked.both());
    assert!(machine.samehost(&["switch", "prune", "--older-than", "1d", "--yes"]).stdout.contains("Nothing"));
}

#[test]
fn what_puts_tcp_back_is_found_by_a_check() {
    let (machine, _) = committed();
    let check = || machine.samehost(&["switch", "check"]);
    let ended = check();
    assert_eq!(ended.status, 0, "{}", ended.both());
    let nginx = machine.path("site/nginx/nginx.conf");
    let text = fs::read_to_string(&nginx).unwrap();
    // The text of the journal moved with the test, and the files' did not.
    let text = text.replace(ROOT, &machine.path("site").display().to_string());
    fs::write(&nginx, format!("# edited\n{text}")).unwrap();
    let edited = check();
    assert_eq!(edited.status, 0, "another edit is no drift: {}", edited.both());
    fs::copy(data("before/nginx/nginx.conf"), &nginx).unwrap();
    let drift = check();
    assert_eq!(drift.status, 1, "{}", drift.both());
    assert!(
        drift.stdout.contains("DRIFT") && drift.stdout.contains("was put back by hand"),
        "{}",
        drift.stdout
    );
}
