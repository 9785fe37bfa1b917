//! The way back hands nobody's application to a stranger, and says where the server of before is not there again: an undo, the
//! watcher's taking back, a recovery and a switch that is put back, with the freed port in somebody else's hands or in nobody's.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::stays::{SYMFONY, Server, in_one_line};
use crate::support::{Ended, MALLORY, bounded, wait_for};

fn shop(server: &Server) -> String {
    server.write("app/composer.json", SYMFONY);
    server.write("app/.env", "APP_ENV=prod\nREDIS_URL=redis://127.0.0.1:@PORT/1\n")
}

/// A Redis whose port is closed, with its application at the socket.
fn closed(server: &Server) -> String {
    let env = shop(server);
    let ended = server.switch(&env, &["--close-tcp"]);
    assert!(ended.status == 0 && !server.is_open(), "{}", ended.both());
    env
}

/// Another Redis takes the port, as this user.
fn thief(server: &mut Server, user: u32) -> u32 {
    let port = server.port.to_string();
    let words = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", "/"];
    let pid = server.machine.start_as(user, "redis-server", &words);
    wait_for("the other server", || TcpStream::connect(("127.0.0.1", server.port)).ok());
    pid
}

fn kill(pid: u32, server: &Server) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    wait_for("its end", || (!server.is_open()).then_some(()));
}

fn undo(server: &Server, how: &str) -> Ended {
    server.machine.samehost(&["switch", "undo", how])
}

fn leads_to_the_socket(env: &str, server: &Server) -> bool {
    let text = std::fs::read_to_string(env).unwrap();
    text.contains(server.socket.to_str().unwrap()) && UnixStream::connect(&server.socket).is_ok()
}

#[test]
fn an_undo_hands_the_application_to_nobody_who_took_the_freed_port() {
    // Another user's; and one of the same program and user as ours.
    for user in [MALLORY, 0] {
        let mut server = Server::redis();
        let env = closed(&server);
        let pid = thief(&mut server, user);
        for how in ["--dry-run", "--yes"] {
            let refused = undo(&server, how);
            assert_eq!(refused.status, 1, "{}", refused.both());
            let told = in_one_line(&refused);
            assert!(told.contains(&format!("Redis {pid}")) && told.contains("nothing was touched"), "{told}");
            assert!(leads_to_the_socket(&env, &server), "{told}");
        }
        kill(pid, &server);
        let undone = undo(&server, "--yes");
        assert!(undone.status == 0 && server.is_open(), "{}", undone.both());
    }
}

#[test]
fn a_switch_that_nobody_confirmed_stays_in_force_while_a_stranger_has_the_port() {
    let mut server = Server::redis();
    let env = shop(&server);
    let (file, socket) = (server.file.display().to_string(), server.socket.display().to_string());
    let reload = format!("redis={}", server.restart.display());
    let words = ["switch", &env, &file, "--socket", &socket, "--user", "root", "--reload", &reload];
    let more = ["--close-tcp", "--observe", "300ms", "--yes", "--confirm-within", "3s"];
    let ended = server.machine.samehost(&[&words[..], &more].concat());
    assert_eq!(ended.status, 0, "{}", ended.both());
    let pid = thief(&mut server, MALLORY);
    let list = || server.machine.samehost(&["switch", "list", "--dry-run"]);
    let told = wait_for("the watcher's end", || {
        let told = in_one_line(&list());
        told.contains("it needs you").then_some(told)
    });
    assert!(told.contains("stays in force") && told.contains(&format!("Redis {pid}")), "{told}");
    assert!(leads_to_the_socket(&env, &server), "{told}");
    kill(pid, &server);
    // Every later command tries again.
    let later = server.machine.samehost(&["switch", "list"]);
    assert!(later.both().contains("is put back") && server.is_open(), "{}", later.both());
}

#[test]
fn a_server_that_is_not_there_again_is_told_with_where_and_by_status() {
    let server = Server::redis();
    closed(&server);
    // The restart command does nothing by now.
    let script = std::fs::read_to_string(&server.restart).unwrap();
    std::fs::write(&server.restart, "#!/bin/sh\nexit 0\n").unwrap();
    let undone = undo(&server, "--yes");
    let place = format!("undone, but nothing listens at tcp:127.0.0.1:{}", server.port);
    assert!(undone.status == 1 && undone.stdout.contains(&place), "{}", undone.both());
    std::fs::write(&server.restart, script).unwrap();
    assert!(Command::new(&server.restart).status().unwrap().success());
    wait_for("Redis", || server.is_open().then_some(()));
}

#[test]
fn an_undo_that_may_not_look_does_not_say_that_all_is_as_before() {
    let server = Server::redis();
    closed(&server);
    std::fs::write(&server.restart, "#!/bin/sh\nexit 0\n").unwrap();
    let own = server.machine.command(&["switch", "undo", "--yes"]);
    // In a namespace of its own it sees none of the processes that hold the machine's sockets.
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "-m", "--mount-proc", "--kill-child"]);
    command.arg(own.get_program()).args(own.get_args());
    for (name, value) in own.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let undone = bounded(command);
    let told = in_one_line(&undone);
    assert!(undone.status == 1 && told.contains("again is not known"), "{told}");
}

#[test]
fn a_server_that_the_way_back_ended_is_told_by_an_undo_and_by_a_switch_that_is_put_back() {
    let server = Server::redis();
    let env = shop(&server);
    let ended = server.switch(&env, &[]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let script = std::fs::read_to_string(&server.restart).unwrap();
    // It is told to end, and nothing starts it.
    let pid = server.machine.path("server.pid").display().to_string();
    std::fs::write(&server.restart, format!("#!/bin/sh\nkill $(cat {pid})\n")).unwrap();
    let undone = undo(&server, "--yes");
    assert!(undone.status == 1 && undone.stdout.contains("undone, but nothing listens"), "{}", undone.both());
    std::fs::write(&server.restart, &script).unwrap();
    assert!(Command::new(&server.restart).status().unwrap().success());
    wait_for("Redis", || server.is_open().then_some(()));
    // The first run starts it without its socket, so that the switch is put back, and the second ends it.
    let once = server.machine.path("once").display().to_string();
    std::fs::write(
        &server.restart,
        format!("#!/bin/sh\n[ -f {once} ] && exec kill $(cat {pid})\ntouch {once}\nexit 1\n"),
    )
    .unwrap();
    let back = server.switch(&env, &[]);
    let told = in_one_line(&back);
    assert_eq!(back.status, 4, "{told}");
    assert!(told.contains("but for what is left below") && told.contains("nothing listens at"), "{told}");
    assert!(!told.contains("so that it takes the change"), "{told}");
}
