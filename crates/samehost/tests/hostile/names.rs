//! The name of a socket is somebody's: a server that is down keeps its path, one that starts meanwhile does not lose it
//! in silence, and what the very server that moves left behind is in nobody's way.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Ended, Machine, free_port, is_there, wait_for};
use crate::told::Unit;

/// A Redis that a script starts anew, with lines of the test's own in that script.
struct Redis {
    machine: Machine,
    port: u16,
    file: PathBuf,
    socket: PathBuf,
}

impl Drop for Redis {
    fn drop(&mut self) {
        for name in ["server.pid", "other.pid"] {
            let pid = std::fs::read_to_string(self.machine.path(name)).unwrap_or_default();
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
}

impl Redis {
    /// With these lines in its file; `@` is the test's directory.
    fn new(more: &str) -> Self {
        let (machine, port) = (Machine::new(), free_port());
        let folder = machine.path("").display().to_string();
        let text =
            format!("bind 127.0.0.1\nport {port}\nsave \"\"\ndir {folder}\nlogfile {folder}/log\n{more}");
        let file = machine.write("redis/redis.conf", text.replace('@', folder.trim_end_matches('/')));
        std::fs::create_dir(machine.path("run")).unwrap();
        let socket = machine.path("run/s.sock");
        let redis = Redis { machine, port, file, socket };
        assert!(Command::new(redis.restart("restart", "")).status().unwrap().success());
        wait_for("Redis", || TcpStream::connect(("127.0.0.1", port)).ok());
        redis
    }

    /// A script that starts it anew, with these words in between.
    fn restart(&self, name: &str, between: &str) -> PathBuf {
        let pid = self.machine.path("server.pid").display().to_string();
        let file = self.file.display();
        let text = format!(
            "#!/bin/sh\nold=$(cat {pid} 2>/dev/null)\n[ -n \"$old\" ] && kill $old && while kill -0 $old 2>/dev/null; do sleep 0.05; done\n{between}\nsetsid sh -c 'echo $$ >{pid}; exec redis-server {file}' >/dev/null 2>&1 </dev/null &\n"
        );
        let path = self.machine.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn switch(&self, restart: &str, more: &[&str]) -> Ended {
        let (file, socket) = (self.file.display().to_string(), self.socket.display().to_string());
        let reload = format!("redis={}", self.machine.path(restart).display());
        let words = ["switch", &file, "--socket", &socket, "--reload", &reload, "--observe", "300ms"];
        self.machine.samehost(&[&words[..], &["--yes", "--confirm-within=0"], more].concat())
    }
}

fn in_one_line(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_path_of_a_server_that_is_down_is_not_free() {
    let redis = Redis::new("");
    // Whoever had it is down: its file is there, and nobody listens.
    drop(UnixListener::bind(&redis.socket).unwrap());
    let before = std::fs::read(&redis.file).unwrap();
    for more in [&["--dry-run"][..], &[]] {
        let ended = redis.switch("restart", more);
        assert_eq!(ended.status, 1, "{}", ended.both());
        let told = in_one_line(&ended);
        assert!(told.contains("socket-path") && told.contains("of a server that is down now"), "{told}");
    }
    assert_eq!(std::fs::read(&redis.file).unwrap(), before);
    assert!(is_there(&redis.socket), "somebody's file was removed");
}

#[test]
fn a_server_that_is_stopped_keeps_the_path_that_its_unit_or_its_file_names() {
    let redis = Redis::new("");
    let socket = redis.socket.display().to_string();
    let other = redis.machine.write("other/shop.conf", format!("port 0\nunixsocket {socket}\n"));
    let other = other.display().to_string();
    for (started, place) in
        [(other.clone(), &*other), (format!("--port 0 --unixsocket {socket}"), "samehost-test-stopped")]
    {
        let text = format!("[Service]\nExecStart=/usr/bin/redis-server {started}\n");
        let unit = Unit::new("stopped", &text);
        let told = in_one_line(&redis.switch("restart", &["--dry-run"]));
        assert!(told.contains("nothing was touched") && told.contains("names it"), "{told}");
        assert!(told.contains(place), "{told}");
        drop(unit);
    }
    let ended = redis.switch("restart", &["--dry-run"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
}

#[test]
fn a_file_that_is_no_server_of_this_machines_is_free_when_its_owner_removed_it() {
    let redis = Redis::new("");
    drop(UnixListener::bind(&redis.socket).unwrap());
    std::fs::remove_file(&redis.socket).unwrap();
    let ended = redis.switch("restart", &[]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(UnixStream::connect(&redis.socket).is_ok());
}

#[test]
fn what_the_very_server_left_behind_is_in_nobodys_way() {
    let redis = Redis::new("unixsocket @/run/s.sock\n");
    // It is killed, and its file stays; it is started without its socket, and its file of settings names it still.
    let pid = std::fs::read_to_string(redis.machine.path("server.pid")).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    wait_for("its end", || TcpStream::connect(("127.0.0.1", redis.port)).is_err().then_some(()));
    assert!(is_there(&redis.socket));
    let ended = redis.switch("restart", &["--dry-run"]);
    assert!(!in_one_line(&ended).contains("is not free"), "{}", ended.both());
}

#[test]
fn a_server_that_starts_between_plan_and_restart_does_not_lose_its_name_in_silence() {
    let redis = Redis::new("");
    let other = redis.machine.path("other.pid").display().to_string();
    let socket = redis.socket.display().to_string();
    let port = free_port();
    // Another Redis of the same user takes the path just before ours starts anew, and ours removes its file.
    let between = format!(
        "[ -f {other} ] || setsid sh -c 'echo $$ >{other}; exec redis-server --port {port} --bind 127.0.0.1 --save \"\" --unixsocket {socket}' >/dev/null 2>&1 </dev/null &\nwhile [ ! -f {other} ] || {{ [ ! -S {socket} ] && grep -q ^unixsocket {}; }}; do sleep 0.05; done",
        redis.file.display()
    );
    redis.restart("meanwhile", &between);
    let before = std::fs::read(&redis.file).unwrap();
    let ended = redis.switch("meanwhile", &[]);
    assert_eq!(ended.status, 4, "{}", ended.both());
    let told = in_one_line(&ended);
    assert!(told.contains("bound this name meanwhile as well"), "{told}");
    assert_eq!(std::fs::read(&redis.file).unwrap(), before);
}

#[test]
fn a_server_that_takes_the_name_right_after_the_restart_is_seen() {
    let redis = Redis::new("");
    let socket = redis.socket.display().to_string();
    let other = redis.machine.path("other.pid").display().to_string();
    let pid = redis.machine.path("server.pid").display().to_string();
    let port = free_port();
    let file = redis.file.display();
    // Ours is up, and another one removes its file and binds the name.
    let text = format!(
        "#!/bin/sh\nkill $(cat {pid})\nwhile kill -0 $(cat {pid}) 2>/dev/null; do sleep 0.05; done\nsetsid sh -c 'echo $$ >{pid}; exec redis-server {file}' >/dev/null 2>&1 </dev/null &\ngrep -q ^unixsocket {file} || exit 0\nwhile [ ! -S {socket} ]; do sleep 0.05; done\nfirst=$(stat -c %i {socket})\nsetsid sh -c 'echo $$ >{other}; exec redis-server --port {port} --bind 127.0.0.1 --save \"\" --unixsocket {socket}' >/dev/null 2>&1 </dev/null &\nwhile [ \"$(stat -c %i {socket} 2>/dev/null || echo $first)\" = $first ]; do sleep 0.05; done\n"
    );
    let script = redis.machine.write("after", text);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = redis.switch("after", &[]);
    assert_eq!(ended.status, 4, "{}", ended.both());
    assert!(in_one_line(&ended).contains("bound this name meanwhile as well"), "{}", ended.both());
}
