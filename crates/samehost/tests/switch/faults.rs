//! kill -9 at every step that writes, two switches at once, files that cannot be changed, a full disk: nothing is lost.

use std::os::unix::process::ExitStatusExt;

use crate::nginx_fpm::hop;
use crate::stack::{Stack, page, wait_for};

#[test]
fn a_kill_at_every_step_leaves_a_site_that_serves_and_recover_ends_it() {
    let hop = hop();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let nginx = hop.nginx.display().to_string();
    let arguments = ["switch", &nginx, "--socket", &socket, "--yes"];
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
        let recovered = hop.stack.samehost(&["switch", "--recover"]);
        assert_eq!(recovered.status, 0, "point {point}: {}", recovered.both());
        wait_for(&format!("the site recovered from point {point}"), serves);
        if recovered.stdout.contains("finished") {
            // It had been proved: put back by its name, for the next round.
            let id = recovered.stdout.split(':').next().unwrap().to_owned();
            assert_eq!(hop.stack.samehost(&["switch", "--undo", &id]).status, 0);
        }
        let after = Stack::facts(&[&hop.nginx, &hop.pool]);
        if after != before {
            let committed = hop.stack.samehost(&["switch", "--list"]).stdout;
            let id = committed.lines().rev().find_map(|line| {
                line.contains("committed").then(|| line.split(' ').next().unwrap().to_owned())
            });
            let id =
                id.unwrap_or_else(|| panic!("point {point}: neither as before nor committed: {committed}"));
            assert_eq!(hop.stack.samehost(&["switch", "--undo", &id]).status, 0);
            assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before, "point {point}");
        }
        for folder in [hop.nginx.parent().unwrap(), hop.pool.parent().unwrap()] {
            let names: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .filter(|name| name.contains("samehost"))
                .collect();
            assert!(names.is_empty(), "point {point} leaves {names:?}");
        }
    }
    assert!(killed >= 20, "only {killed} points were passed");
}
