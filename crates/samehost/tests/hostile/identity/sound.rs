//! What is nobody's attack, and has to go on working.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{answers, application, redis, redis_command, user};
use crate::support::{MALLORY, Machine, bounded, copy_program, free_port};

/// A plan that nothing bars, and that names this socket.
fn is_planned(machine: &Machine, arguments: &[&str], socket: &std::path::Path) {
    let ended = machine.samehost(&[&["switch"], arguments, &["--dry-run"]].concat());
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), machine.log());
    assert!(ended.stdout.contains(socket.to_str().unwrap()), "{}", ended.stdout);
}

#[test]
fn a_service_with_a_tmp_of_its_own_is_the_server() {
    let mut machine = Machine::new();
    let port = free_port();
    let uid = user("redis");
    let socket = machine.folder_of("run", uid).join("redis.sock");
    // As PrivateTmp= and ProtectSystem= have it: mounts of its own, the account of its package.
    let mut server = Command::new("unshare");
    let words = redis_command(&machine, port, &socket);
    server
        .args(["-m", "sh", "-c", "mount -t tmpfs none /tmp && mount --bind -o ro /usr /usr && exec setpriv --reuid redis --regid redis --clear-groups \"$0\" \"$@\""])
        .arg(words.get_program())
        .args(words.get_args())
        .process_group(0);
    machine.start(server);
    answers(port);
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    is_planned(&machine, &[&env], &socket);
}

#[test]
fn a_directory_of_the_servers_own_group_is_its_own() {
    let mut machine = Machine::new();
    let port = free_port();
    let uid = user("redis");
    let folder = machine.folder_of("run", uid);
    let group = Command::new("id").args(["-g", "redis"]).output().unwrap();
    let group: u32 = String::from_utf8(group.stdout).unwrap().trim().parse().unwrap();
    std::os::unix::fs::chown(&folder, None, Some(group)).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o2775)).unwrap();
    let socket = folder.join("redis.sock");
    let mut server = Command::new("setpriv");
    let words = redis_command(&machine, port, &socket);
    server
        .args(["--reuid", "redis", "--regid", "redis", "--clear-groups"])
        .arg(words.get_program())
        .args(words.get_args());
    machine.start(server);
    answers(port);
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    is_planned(&machine, &[&env], &socket);
}

#[test]
fn two_servers_on_two_ports_are_told_apart() {
    let mut machine = Machine::new();
    machine.write("run/keep", "");
    let ports = [free_port(), free_port()];
    let sockets = [machine.path("run/one.sock"), machine.path("run/two.sock")];
    for (port, socket) in ports.iter().zip(&sockets) {
        redis(&mut machine, 0, *port, socket);
    }
    for (at, name) in ["one", "two"].into_iter().enumerate() {
        let env = application(&machine, name, "127.0.0.1", ports[at]).display().to_string();
        is_planned(&machine, &[&env], &sockets[at]);
    }
}

#[test]
fn an_ordinary_user_switches_what_is_his() {
    let mut machine = Machine::new();
    let port = free_port();
    let socket = machine.folder_of("home", MALLORY).join("redis.sock");
    redis(&mut machine, MALLORY, port, &socket);
    let env = application(&machine, "home/app", "127.0.0.1", port);
    for path in [env.as_path(), env.parent().unwrap(), &machine.path("state")] {
        std::os::unix::fs::chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    }
    // Where everyone may pass: /srv, and not where this program was built.
    let program = machine.path("samehost");
    copy_program(env!("CARGO_BIN_EXE_samehost"), &program);
    let mut command = Command::new(&program);
    let as_root = machine.command(&["switch", env.to_str().unwrap(), "--dry-run"]);
    command.args(as_root.get_args()).uid(MALLORY).gid(MALLORY);
    for (name, value) in as_root.get_envs() {
        command.env(name, value.unwrap());
    }
    let ended = bounded(command);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(ended.stdout.contains(socket.to_str().unwrap()), "{}", ended.stdout);
}

#[test]
fn workers_that_share_a_port_are_one_server() {
    let mut machine = Machine::new();
    let (web, back) = (free_port(), free_port());
    let listen = format!("127.0.0.1:{back} reuseport");
    let (at, file) = super::nginx_hop(&machine, "worker_processes 3;", web, &listen);
    let name = file.display().to_string();
    let mut nginx = Command::new("nginx");
    nginx.args(["-p", &at, "-c", &name, "-e", "stderr"]);
    machine.start(nginx);
    answers(web);
    is_planned(&machine, &[&name], &machine.path("nginx/back.sock"));
}
