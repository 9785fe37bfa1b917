//! Redis and an application: the server gets a socket and the application's URL follows, in one transaction.

use std::process::Command;

use super::stack::{Stack, free_port, in_one_line, is_root, must, wait_for};
use crate::shares::{has_fuse, mounted};
use crate::support::SAMEHOST;

const PASSWORD: &str = "hunter2redis";

fn asked(socket: &[&str], words: &[&str]) -> Option<String> {
    let output = Command::new("redis-cli")
        .args(socket)
        .args(["--no-auth-warning", "-a", PASSWORD])
        .args(words)
        .output();
    let output = output.expect("redis-cli must be installed: cargo xtask test");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// A Redis that is restarted by a script, as one without systemd is.
struct Server<'a> {
    stack: &'a Stack,
    port: String,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = asked(&["-p", &self.port], &["shutdown", "nosave"]);
        let socket = self.stack.path("run/redis.sock").display().to_string();
        let _ = asked(&["-s", &socket], &["shutdown", "nosave"]);
    }
}

/// A path on a FUSE file system is refused, in a mount namespace where there is one.
fn refused_on_shared_files(stack: &Stack, targets: &[String; 2], reload: &str) {
    let (below, above) = (stack.path("below"), stack.path("above"));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&above).unwrap();
    let socket = above.join("redis.sock").display().to_string();
    let script = format!("{}; exec \"$@\"", mounted(&below, &above));
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh", SAMEHOST, "switch"])
        .args(targets)
        .args(["--socket", &socket, "--reload", reload, "--dry-run"])
        .env("XDG_STATE_HOME", stack.path("state"))
        .output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).replace("\n", " ");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(" is on fuse"), "{said}");
}

#[test]
fn the_server_and_the_application_move_together() {
    if !is_root("the_server_and_the_application_move_together") {
        return;
    }
    let stack = Stack::new();
    let port = free_port().to_string();
    stack.shared("run");
    let folder = stack.path("").display().to_string();
    let conf = stack.write(
        "redis/redis.conf",
        &format!(
            "# Redis of this machine\nbind 127.0.0.1\nport {port}\ndaemonize yes\ndir {folder}\nsave \"\"\npidfile {folder}/pid\nlogfile {folder}/redis.log\nrequirepass {PASSWORD}\n# unixsocket /run/redis/redis-server.sock\n"
        ),
    );
    let name = conf.display().to_string();
    must("redis-server", &[&name]);
    let server = Server { stack: &stack, port: port.clone() };
    wait_for("Redis", || asked(&["-p", &port], &["ping"]));
    let restart = stack.write(
        "restart",
        &format!(
            "#!/bin/sh\nredis-cli -p {port} -a {PASSWORD} --no-auth-warning shutdown nosave >/dev/null 2>&1\nwhile kill -0 $(cat {folder}/pid 2>/dev/null) 2>/dev/null; do sleep 0.05; done\nexec redis-server {name}\n"
        ),
    );
    must("chmod", &["755", &restart.display().to_string()]);
    stack.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let env = stack.write(
        "app/.env",
        &format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://:{PASSWORD}@127.0.0.1:{port}/0\n"),
    );
    let before = Stack::facts(&[&conf, &env]);
    let socket = stack.path("run/redis.sock").display().to_string();
    let targets = [env.display().to_string(), name.clone()];
    let reload = format!("redis={}", restart.display());

    if has_fuse("a socket path on a FUSE file system") {
        refused_on_shared_files(&stack, &targets, &reload);
        assert_eq!(Stack::facts(&[&conf, &env]), before);
    }
    // A directory of that name is not what is meant, and a Valkey is called so too.
    for called in ["redis", "valkey"] {
        stack.write(&format!("named/{called}/note"), "nothing to edit");
        let mut named = stack.command(&["switch", called, "--dry-run", "--socket", &socket]);
        let named = crate::support::Ended::of(&named.current_dir(stack.path("named")).output().unwrap());
        // With a Redis of another test it cannot be told which is meant; one that has put its address in place of its command
        // line is taken to read the package's file, where that is there.
        let is_found = named.both().contains("redis.conf") || named.both().contains("is the name of");
        assert!(is_found && !named.both().contains("it looks for"), "{}", named.both());
    }
    let without = stack.samehost(&["switch", &targets[0], &targets[1], "--socket", &socket, "--yes"]);
    assert_eq!(without.status, 1, "{}", without.both());
    assert!(without.stdout.contains("--reload 'redis=COMMAND'"), "{}", without.stdout);

    // Of several commands, each that nothing runs is named, and those that run are not.
    let two = ["switch", &targets[0], &targets[1], "--socket", &socket, "--reload", &reload, "--dry-run"];
    let two = stack.samehost(
        &[&two[..], &["--reload", "valkey=false", "--reload", "true", "--reload", "/bin/true"]].concat(),
    );
    let told = in_one_line(&two);
    assert!(told.contains("--reload valkey=… is used for nothing: no program of that name"), "{told}");
    assert!(told.contains("--reload is used for nothing: what has to be told"), "{told}");
    assert!(!told.contains("--reload redis=… is used"), "{told}");

    let arguments = ["switch", &targets[0], &targets[1], "--socket", &socket, "--reload", &reload, "--yes"];
    let ended = stack.samehost(&arguments);
    assert_eq!(ended.status, 0, "{}", ended.both());
    stack.assert_nothing_to_do(&arguments, &[&conf, &env]);
    let text = std::fs::read_to_string(&env).unwrap();
    assert!(text.contains(&socket) && text.contains(PASSWORD), "{text}");
    assert_eq!(asked(&["-s", &socket], &["ping"]).as_deref(), Some("PONG"));
    assert_eq!(asked(&["-p", &port], &["ping"]).as_deref(), Some("PONG"), "TCP stays open");

    let undone = stack.samehost(&["switch", "undo", "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert!(undone.stderr.contains(&format!("the newest is {}", stack.only_switch())), "{}", undone.both());
    let again = stack.samehost(&["switch", "undo", "--yes"]);
    assert!(again.status == 0 && again.stdout.contains("Nothing to undo: no switch"), "{}", again.both());
    let none = stack.samehost(&["switch", "confirm"]);
    assert!(none.status == 2 && none.stderr.contains("no switch is waiting"), "{}", none.both());
    assert_eq!(Stack::facts(&[&conf, &env]), before);
    assert!(asked(&["-s", &socket], &["ping"]).is_none());
    assert_eq!(asked(&["-p", &port], &["ping"]).as_deref(), Some("PONG"));
    for said in [&without, &ended, &undone] {
        assert!(!said.both().contains("hunter2"), "{}", said.both());
    }
    drop(server);
}
