//! Root's history of scans: nobody else reads it, plants a scan in it, or has root remove files of others.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;

use crate::journal::with_home;
use crate::support::{ALICE, Machine};

#[test]
fn a_history_that_others_could_change_is_not_roots() {
    let machine = Machine::new();
    let home = machine.folder_of("home", ALICE);
    let hers = machine.folder_of("hers", ALICE);
    let scans = machine.folder_of("hers/samehost/scans", ALICE);
    chown(machine.path("hers/samehost"), Some(ALICE), Some(ALICE)).unwrap();
    machine.write_as(ALICE, "hers/samehost/scans/29990101T000000.000Z-1.json", "{}");
    let kept = with_home(&machine, &home, Some(&hers), &["scan", "--save", "--since", "last", "--quiet"]);
    assert_eq!(kept.status, 0, "{}", kept.both());
    assert!(kept.stderr.contains("scans are kept in /var/lib/samehost"), "{}", kept.stderr);
    assert!(kept.stdout.contains("first scan that is kept"), "hers is not read: {}", kept.stdout);
    assert_eq!(fs::read_dir(&scans).unwrap().count(), 1, "and nothing is written there");

    // A directory of root's that is open to all, to which a link of hers leads.
    let trap = machine.path("trap");
    fs::create_dir(&trap).unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o1777)).unwrap();
    let state = machine.folder_of("planted/samehost", ALICE);
    symlink(&trap, state.join("scans")).unwrap();
    let kept = with_home(&machine, &home, Some(&machine.path("planted")), &["scan", "--save", "--quiet"]);
    assert!(kept.stderr.contains("scans are kept in /var/lib/samehost"), "{}", kept.both());
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
    assert_eq!(fs::metadata(&trap).unwrap().permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn nobody_else_reads_roots_history() {
    let machine = Machine::new();
    let ended = machine.samehost(&["scan", "--save", "--quiet"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    // Made by an administrator for everybody.
    let scans = machine.path("state/samehost/scans");
    for open in ["state", "state/samehost", "state/samehost/scans"] {
        fs::set_permissions(machine.path(open), fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(machine.samehost(&["scan", "--save", "--quiet"]).status, 0);
    assert_eq!(fs::metadata(&scans).unwrap().permissions().mode() & 0o7777, 0o700, "closed again");
    for file in fs::read_dir(&scans).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    }
    let mut list = std::process::Command::new("ls");
    let listed = list.arg(&scans).uid(ALICE).gid(ALICE).output().unwrap();
    assert!(!listed.status.success() && listed.stdout.is_empty(), "{listed:?}");
}

#[test]
fn root_removes_nothing_below_a_home_that_is_somebody_elses() {
    let machine = Machine::new();
    let home = machine.folder_of("home", ALICE);
    let victim = machine.write("victim/20200101T000000.000Z-1.json", "root's");
    let measured = machine.write("victim/20200101T000000.000Z-raw-1.samples.jsonl", "root's");
    let state = machine.folder_of("home/.local/state/samehost/reproduce", ALICE);
    symlink(machine.path("victim"), state.join("quick")).unwrap();
    let ended = with_home(&machine, &home, None, &["prune", "--keep", "0"]);
    assert!(ended.stderr.contains("is left alone"), "{}", ended.both());
    let state = machine.path("home/.local/state/samehost");
    fs::remove_dir_all(&state).unwrap();
    symlink(machine.path("victim"), &state).unwrap();
    lchown(&state, Some(ALICE), None).unwrap();
    let ended = with_home(&machine, &home, None, &["prune", "--keep", "0"]);
    assert!(ended.stderr.contains("is left alone"), "{}", ended.both());
    assert!(victim.exists() && measured.exists());
}
