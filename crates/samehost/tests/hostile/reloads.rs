//! A reload command that does nothing is no reload: a name that no server of the plan has is wrong use, and a server that goes on as
//! it was is a failed switch.

use std::path::Path;
use std::process::Command;

use crate::checks::{Service, nginx, service};
use crate::stays::in_one_line;
use crate::support::{Ended, Machine, wait_for};

/// nginx in front of a server with a port and a socket.
fn site() -> (Machine, Service, String, u32) {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let file = nginx(&machine, "nginx.conf", &service, "").display().to_string();
    let mut command = Command::new("nginx");
    command.args(["-c", &file, "-g", "daemon off;"]);
    let pid = machine.start(command);
    wait_for("nginx's worker", || children(pid).into_iter().next());
    (machine, service, file, pid)
}

fn children(pid: u32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn switch(machine: &Machine, file: &str, reloads: &[&str]) -> Ended {
    let mut words = vec!["switch", file, "--yes", "--confirm-within=0", "--observe", "300ms"];
    for reload in reloads {
        words.extend(["--reload", reload]);
    }
    machine.samehost(&words)
}

#[test]
fn a_name_that_no_server_of_the_plan_has_is_wrong_use_with_the_names_that_there_are() {
    let (machine, _service, file, _pid) = site();
    let before = std::fs::read(&file).unwrap();
    for wrong in ["ngnix=true", "redis=true"] {
        for more in [&[wrong][..], &[wrong, "nginx=true"]] {
            let ended = switch(&machine, &file, more);
            assert_eq!(ended.status, 2, "{}", ended.both());
            let told = in_one_line(&ended);
            assert!(told.contains(wrong.trim_end_matches("true")) && told.contains("nginx"), "{told}");
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_server_that_goes_on_as_it_was_after_its_reload_command_is_a_failed_switch() {
    let (machine, _service, file, _pid) = site();
    let before = std::fs::read(&file).unwrap();
    for nothing in ["true", "nginx=true", "A=1 true"] {
        let ended = switch(&machine, &file, &[nothing]);
        assert_eq!(ended.status, 4, "{}", ended.both());
        assert!(in_one_line(&ended).contains("it goes on as it was"), "{}", ended.both());
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
}

#[test]
fn a_reload_command_that_reloads_at_once_or_a_little_later_is_believed() {
    for how in ["kill -HUP @", "A=1; (sleep 1; kill -HUP @) >/dev/null 2>&1 &"] {
        let (machine, service, file, pid) = site();
        let workers = children(pid);
        let reload = format!("nginx={}", how.replace('@', &pid.to_string()));
        let ended = switch(&machine, &file, &[&reload]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        assert!(Path::new(&service.socket).exists() && children(pid) != workers, "{}", ended.both());
    }
}

#[test]
fn a_server_that_is_started_anew_by_its_command_is_believed() {
    let (machine, _service, file, pid) = site();
    let anew = format!("nginx=kill -QUIT {pid}; sleep 1; nginx -c {file}");
    let ended = switch(&machine, &file, &[&anew]);
    let started = std::fs::read_to_string(machine.path("nginx.conf.pid")).unwrap_or_default();
    let _ = Command::new("kill").arg(started.trim()).status();
    assert_eq!(ended.status, 0, "{}", ended.both());
}
