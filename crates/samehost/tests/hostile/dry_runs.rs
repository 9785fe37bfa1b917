//! `--dry-run` touches nothing, with each verb and each subcommand that has it: files, the store and the servers' processes are
//! the same before and after, to their times and attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::journal::placed;
use crate::serving::{Site, unattended, without_watchers};
use crate::stays::{SYMFONY, Server, in_one_line};
use crate::support::{Machine, wait_for};

/// A path's kind, mode, owner, times of change and content: what any write, rename, chmod or touch would change.
type Seen = (u64, u32, u32, u32, i64, i64, Vec<u8>);

fn seen(directory: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(path) = ahead.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let mut content = Vec::new();
        if found.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() {
            content = fs::read(&path).unwrap();
        }
        let one = (found.ino(), found.mode(), found.uid(), found.gid(), found.ctime(), found.ctime_nsec());
        all.insert(path, (one.0, one.1, one.2, one.3, one.4, one.5, content));
    }
    all
}

/// The configuration and the store. What servers write, such as logs, is not among it.
fn all(machine: &Machine) -> Vec<BTreeMap<PathBuf, Seen>> {
    ["site", "nginx/nginx.conf", "nginx/sites", "php", "sockets", "state"]
        .iter()
        .map(|name| seen(&machine.path(name)))
        .collect()
}

/// Every process that was started from the machine's own servers, with the moment when it began: a reload replaces some.
fn servers(site: &Site) -> BTreeSet<(u32, String)> {
    let at = site.machine.path("").display().to_string();
    let mut parents: BTreeMap<u32, (u32, String, bool)> = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let Some(pid) = entry.unwrap().file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&command).contains(&at);
        parents.insert(pid, (words[1].parse().unwrap(), words[19].to_owned(), is_ours));
    }
    let is_of_ours = |mut pid: u32| loop {
        match parents.get(&pid) {
            Some((_, _, true)) => break true,
            Some((parent, _, _)) if *parent > 1 => pid = *parent,
            _ => break false,
        }
    };
    parents
        .iter()
        .filter(|(pid, _)| is_of_ours(**pid))
        .map(|(pid, (_, begun, _))| (*pid, begun.clone()))
        .collect()
}

/// Each subcommand that has `--dry-run`, for a switch; in today's words and in those before.
fn dry(id: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["undo", id],
        vec!["undo"],
        vec!["undo", id, "--yes"],
        vec!["confirm", id],
        vec!["confirm"],
        vec!["recover"],
        vec!["recover", "--yes", "--json"],
        vec!["finish", id, "--observe", "1ms"],
        vec!["finish", id, "--observe", "1ms", "--yes"],
        vec!["prune"],
        vec!["prune", id, "--yes"],
        vec!["prune", "--older-than", "0d", "--yes"],
        vec!["list"],
        vec!["check"],
        vec!["--confirm", id],
        vec!["--undo", "--yes"],
        vec!["--recover", "--yes"],
        vec!["--forget", id, "--yes"],
        vec!["--prune", "--yes"],
        vec!["--list"],
    ]
}

#[test]
fn a_dry_run_of_each_subcommand_touches_nothing_in_whatever_state_a_switch_is() {
    for state in [
        "broken-disk", "committed", "nothing", "preparing", "rolled-back", "rolling-back",
        "rolling-back-half", "stage-1-reloading", "stage-1-written", "stage-2-written", "stage-3-half",
        "stage-3-reloading", "undo-half", "undo-late", "undo-preparing", "undone", "verified",
    ] {
        let (machine, id) = placed(state, "state");
        let before = all(&machine);
        for words in dry(&id) {
            let ended = machine.samehost(&[&["switch"], &words[..], &["--dry-run"]].concat());
            assert!(all(&machine) == before, "{state}: {words:?} touched something: {}", ended.both());
            assert!(matches!(ended.status, 0..=2), "{state}: {words:?}: {}", ended.both());
        }
    }
}

#[test]
fn a_dry_run_leaves_servers_and_a_switch_that_waits_for_its_confirmation_alone() {
    let mut site = Site::new();
    let (id, _, _) = unattended(&mut site, "10m", false);
    let (main, pool) = (site.machine.path("nginx/nginx.conf").display().to_string(), site.pool_name());
    let (before, running) = (all(&site.machine), servers(&site));
    assert!(running.len() >= 4, "masters and workers: {running:?}");
    let mut every = dry(&id);
    every.push(vec![&main, "--to", "tcp", "--observe", "1ms"]);
    every.push(vec![&main, &pool, "--to", "tcp", "--observe", "1ms", "--yes", "--accept", "other-files"]);
    every.push(vec!["--all", "--observe", "100ms"]);
    for words in every {
        let ended = site.switch(&[&words[..], &["--dry-run"]].concat());
        assert!(all(&site.machine) == before, "{words:?} touched something: {}", ended.both());
        assert_eq!(servers(&site), running, "{words:?}: {}", ended.both());
    }
    for words in [&["run", "--auto", "--dry-run"][..], &["report", "prune", "--keep", "0", "--dry-run"]] {
        let ended = site.machine.samehost(words);
        assert!(all(&site.machine) == before, "{words:?} touched something: {}", ended.both());
        assert_eq!(servers(&site), running, "{words:?}: {}", ended.both());
    }
    // Both words without it do what they say.
    let confirmed = site.switch(&["--confirm", &id, "--yes"]);
    assert_eq!(confirmed.status, 0, "{}", confirmed.both());
    assert!(confirmed.stderr.contains(&format!("samehost switch confirm {id}")), "{}", confirmed.stderr);
    assert_eq!(site.switches()[0].1, "committed");
}

#[test]
fn a_dry_run_of_an_overdue_switch_says_and_returns_what_the_real_one_does() {
    for words in [&["confirm"][..], &["confirm", "ID"], &["undo", "--yes"], &["undo", "ID", "--yes"]] {
        let mut site = Site::new();
        let (id, _, _) = unattended(&mut site, "4s", false);
        without_watchers(&id);
        std::thread::sleep(std::time::Duration::from_secs(5));
        let words: Vec<&str> = words.iter().map(|word| if *word == "ID" { &*id } else { word }).collect();
        let dry = site.switch(&[&words[..], &["--dry-run"]].concat());
        let real = site.switch(&words);
        // The newest that is in force: put back first, there is none, and nothing to undo.
        let status = if words == ["undo", "--yes"] { 0 } else { 2 };
        assert_eq!((dry.status, real.status), (status, status), "{words:?}: {} {}", dry.both(), real.both());
        assert!(dry.both().contains("it is put back first"), "{words:?}: {}", dry.both());
    }
}

#[test]
fn a_dry_run_of_an_undo_says_that_nobody_is_at_the_old_place_any_more() {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let app = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let socket = server.socket.display().to_string();
    let text = fs::read_to_string(&server.file).unwrap();
    let restart = |text: String| {
        fs::write(&server.file, text).unwrap();
        assert!(std::process::Command::new(&server.restart).status().unwrap().success());
        wait_for("the socket", || std::os::unix::net::UnixStream::connect(&server.socket).ok());
    };
    restart(format!("{text}unixsocket {socket}\nunixsocketperm 777\n"));
    let words =
        ["switch", &app, "--user", "root", "--yes", "--confirm-within=0", "--reload", "application=true"];
    let ended = server.machine.samehost(&words);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let undo = ["switch", "undo", "--yes", "--dry-run"];
    assert_eq!(server.machine.samehost(&undo).status, 0);
    restart(format!("{text}unixsocket {socket}\nunixsocketperm 777\nport 0\n"));
    let dry = server.machine.samehost(&undo);
    assert_eq!(dry.status, 1, "{}", dry.both());
    let says = format!("nothing listens at tcp:127.0.0.1:{}: start", server.port);
    assert!(in_one_line(&dry).contains(&says), "{}", dry.both());
    let real = server.machine.samehost(&["switch", "undo", "--yes"]);
    assert_eq!(real.status, 1, "{}", real.both());
    assert!(in_one_line(&real).contains(&says), "{}", real.both());
}
