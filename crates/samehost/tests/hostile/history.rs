//! Stored results: nobody has root remove files of others.

use std::fs;
use std::os::unix::fs::{lchown, symlink};

use crate::journal::with_home;
use crate::support::{ALICE, Machine};

#[test]
fn root_removes_nothing_below_a_home_that_is_somebody_elses() {
    let machine = Machine::new();
    let home = machine.folder_of("home", ALICE);
    let victim = machine.write("victim/20200101T000000.000Z-1.json", "root's");
    let measured = machine.write("victim/20200101T000000.000Z-raw-1.samples.jsonl", "root's");
    let state = machine.folder_of("home/.local/state/samehost/reproduce", ALICE);
    symlink(machine.path("victim"), state.join("quick")).unwrap();
    let ended = with_home(&machine, &home, None, &["report", "prune", "--keep", "0"]);
    assert!(ended.stderr.contains("is left alone"), "{}", ended.both());
    let state = machine.path("home/.local/state/samehost");
    fs::remove_dir_all(&state).unwrap();
    symlink(machine.path("victim"), &state).unwrap();
    lchown(&state, Some(ALICE), None).unwrap();
    let ended = with_home(&machine, &home, None, &["report", "prune", "--keep", "0"]);
    assert!(ended.stderr.contains("is left alone"), "{}", ended.both());
    assert!(victim.exists() && measured.exists());
}
