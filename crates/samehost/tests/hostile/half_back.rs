//! A recovery that leaves a file leaves what that file needs: a socket is not taken away under an application whose file somebody
//! edited after the crash.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::stays::{SYMFONY, Server, in_one_line};
use crate::support::{Ended, is_there, wait_for};

/// A switch that is killed after the application's file was written, and before it was proved.
fn killed() -> (Server, String, String) {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let env = server.write("app/.env", "APP_ENV=prod\nREDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let before = std::fs::read_to_string(&env).unwrap();
    let (file, socket) = (server.file.display().to_string(), server.socket.display().to_string());
    let reload = format!("redis={}", server.restart.display());
    let words = ["switch", &env, &file, "--socket", &socket, "--user", "root", "--reload", &reload];
    let mut command = server.machine.command(&[&words[..], &["--yes", "--confirm-within=0"]].concat());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    for _ in 0..3000 {
        if std::fs::read_to_string(&env).is_ok_and(|text| text != before) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(UnixStream::connect(&server.socket).is_ok());
    (server, env, before)
}

fn recover(server: &Server, how: &str) -> Ended {
    server.machine.samehost(&["switch", "recover", how])
}

#[test]
fn a_socket_stays_under_a_file_that_is_left_and_leads_there() {
    let (server, env, before) = killed();
    let edited = std::fs::read_to_string(&env).unwrap() + "MAIL=1\n";
    std::fs::write(&env, &edited).unwrap();
    let dry = recover(&server, "--dry-run");
    assert!(in_one_line(&dry).contains("it would stay unfinished"), "{}", dry.both());
    let half = recover(&server, "--yes");
    assert_eq!((dry.status, half.status), (3, 3), "{}{}", dry.both(), half.both());
    assert!(
        half.stdout.contains("unfinished") && in_one_line(&half).contains("it leads to unix:"),
        "{}",
        half.both()
    );
    assert_eq!(std::fs::read_to_string(&env).unwrap(), edited);
    assert!(UnixStream::connect(&server.socket).is_ok(), "its socket was taken away: {}", half.both());
    // Its owner points it back in their own words: nothing needs the socket.
    std::fs::write(&env, before + "MAIL=1\n").unwrap();
    assert_eq!(recover(&server, "--dry-run").status, 1);
    let whole = recover(&server, "--yes");
    assert!(whole.status == 1 && whole.stdout.contains("put back"), "{}", whole.both());
    assert!(server.is_open() && !is_there(&server.socket), "{}", whole.both());
}

#[test]
fn a_file_that_nobody_edited_and_one_that_needs_nothing_do_not_stop_a_recovery() {
    let (server, env, before) = killed();
    let whole = recover(&server, "--yes");
    assert_eq!(whole.status, 0, "{}", whole.both());
    assert_eq!(std::fs::read_to_string(&env).unwrap(), before);
    wait_for("Redis", || server.is_open().then_some(()));
    // The server's own file is edited, and nothing of the switch but it was written.
    let (server, env, before) = killed();
    std::fs::write(&env, &before).unwrap();
    let conf = std::fs::read_to_string(&server.file).unwrap() + "maxclients 100\n";
    std::fs::write(&server.file, &conf).unwrap();
    let left = recover(&server, "--yes");
    assert!(left.status == 1 && left.stdout.contains("put back"), "{}", left.both());
    assert_eq!(std::fs::read_to_string(&server.file).unwrap(), conf);
}
