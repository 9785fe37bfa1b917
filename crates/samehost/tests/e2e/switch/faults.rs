//! kill -9 at every step that writes, two switches at once, files that cannot be changed, a full disk: nothing is lost.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::nginx_fpm::hop;
use super::stack::{Ended, Stack, is_root, must, page, wait_for};
use crate::support::SAMEHOST;

#[test]
fn a_kill_at_every_step_leaves_a_site_that_serves_and_recover_ends_it() {
    if !is_root("a_kill_at_every_step_leaves_a_site_that_serves_and_recover_ends_it") {
        return;
    }
    let hop = hop();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let nginx = hop.nginx.display().to_string();
    let arguments = [
        "switch", &nginx, "--socket", &socket, "--observe", "100ms", "--confirm-within=0", "--accept",
        "other-files", "--yes",
    ];
    let mut killed = 0;
    for point in 1.. {
        let mut command = hop.stack.command(&arguments);
        let output = command.env("SAMEHOST_FAULT", format!("kill:{point}")).output().unwrap();
        let serves = || page(hop.web, "/x").filter(|(status, _)| *status == 200);
        wait_for(&format!("the site after a kill at point {point}"), serves);
        if output.status.signal() != Some(9) {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "point {point}: {:?} {said}", output.status);
            break;
        }
        killed += 1;
        let recovered = hop.stack.samehost(&["switch", "recover", "--yes"]);
        assert_eq!(recovered.status, 0, "point {point}: {}", recovered.both());
        wait_for(&format!("the site recovered from point {point}"), serves);
        if recovered.stdout.contains("finished") {
            // It had been proved: put back by its name, for the next round.
            let id = recovered.stdout.split(':').next().unwrap().to_owned();
            assert_eq!(hop.stack.samehost(&["switch", "undo", &id, "--yes"]).status, 0);
        }
        let after = Stack::facts(&[&hop.nginx, &hop.pool]);
        if after != before {
            let committed = hop.stack.samehost(&["switch", "list"]).stdout;
            let id = committed.lines().rev().find_map(|line| {
                line.contains("committed").then(|| line.split(' ').next().unwrap().to_owned())
            });
            let id =
                id.unwrap_or_else(|| panic!("point {point}: neither as before nor committed: {committed}"));
            assert_eq!(hop.stack.samehost(&["switch", "undo", &id, "--yes"]).status, 0);
            assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before, "point {point}");
        }
        for folder in [hop.nginx.parent().unwrap(), hop.pool.parent().unwrap()] {
            let names: Vec<String> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .filter(|name| name.contains("samehost"))
                .collect();
            assert!(names.is_empty(), "point {point} leaves {names:?}");
        }
    }
    assert!(killed >= 20, "only {killed} points were passed");
}

fn untouched(
    hop: &super::nginx_fpm::Hop,
    before: &std::collections::BTreeMap<std::path::PathBuf, super::stack::Facts>,
) {
    assert_eq!(&Stack::facts(&[&hop.nginx, &hop.pool]), before);
    assert_eq!(page(hop.web, "/x").unwrap().0, 200);
}

#[test]
fn a_file_that_cannot_be_changed_and_a_full_disk_are_told_before_anything_is_touched() {
    if !is_root("a_file_that_cannot_be_changed_and_a_full_disk_are_told_before_anything_is_touched") {
        return;
    }
    let hop = hop();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let nginx = hop.nginx.display().to_string();
    let arguments =
        ["switch", nginx.as_str(), "--socket", socket.as_str(), "--accept", "other-files", "--yes"];

    must("chattr", &["+i", &nginx]);
    let immutable = hop.stack.samehost(&arguments);
    must("chattr", &["-i", &nginx]);
    assert_eq!(immutable.status, 1, "{}", immutable.both());
    assert!(
        immutable.stderr.contains("chattr -i") && immutable.stderr.contains(&nginx),
        "{}",
        immutable.stderr
    );
    untouched(&hop, &before);

    // A state directory without room for a backup.
    let state = hop.stack.path("state").display().to_string();
    let script = format!("mount -t tmpfs -o size=8k none {state} && exec \"$@\"");
    let program = env!("CARGO_BIN_EXE_samehost");
    let mut full = Command::new("unshare");
    full.args(["--mount", "sh", "-c", &script, "sh", program]).args(arguments).env("XDG_STATE_HOME", &state);
    let full = Ended::of(&full.output().unwrap());
    assert_eq!(full.status, 3, "{}", full.both());
    assert!(full.stderr.contains("No space left"), "{}", full.stderr);
    untouched(&hop, &before);
}

#[test]
fn it_asks_on_a_terminal_and_sees_what_was_changed_meanwhile() {
    if !is_root("it_asks_on_a_terminal_and_sees_what_was_changed_meanwhile") {
        return;
    }
    let hop = hop();
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let command =
        format!("{} switch {} --socket {socket}", env!("CARGO_BIN_EXE_samehost"), hop.nginx.display());
    let talk = |answer: &str, meanwhile: &dyn Fn()| {
        samehost_testing::on_a_terminal(&command, &hop.stack.path("state"), answer, meanwhile)
    };
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let (status, said) = talk("n", &|| {});
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("nothing was touched"), "{said}");
    untouched(&hop, &before);

    let theirs = format!("{}# someone else\n", fs::read_to_string(&hop.nginx).unwrap());
    let (status, said) = talk("y", &|| fs::write(&hop.nginx, &theirs).unwrap());
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("nginx.conf") && said.contains("changed"), "{said}");
    assert_eq!(fs::read_to_string(&hop.nginx).unwrap(), theirs);

    let nobody = hop.stack.samehost(&["switch", &hop.nginx.display().to_string(), "--socket", &socket]);
    assert_eq!(nobody.status, 2, "{}", nobody.both());
    assert!(nobody.stderr.contains("--yes") && nobody.stderr.contains("--dry-run"), "{}", nobody.stderr);
}

/// Who only looks leaves no folder for switches behind.
#[test]
fn a_look_at_switches_makes_no_folder() {
    let state = tempfile::tempdir().unwrap();
    for (words, status) in [
        (&["list"][..], 0),
        (&["finish", "nothing"], 2),
        (&["confirm", "nothing"], 2),
        (&["recover"], 0),
        (&["check"], 0),
    ] {
        let mut command = Command::new(SAMEHOST);
        let output = command.arg("switch").args(words).env("XDG_STATE_HOME", state.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0, "{words:?}");
    }
}
