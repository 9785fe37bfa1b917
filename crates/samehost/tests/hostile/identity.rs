//! Who is the server and who is the client: proved, and not taken from names.

mod client;
mod server;
mod sound;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Machine, copy_program, wait_for};

/// A copy of perl under the name of another program: it says of itself what the script says.
fn forged(machine: &mut Machine, uid: u32, name: &str, script: &str, words: &[&str]) -> u32 {
    let program = machine.path(&format!("forged/{name}"));
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    if !program.exists() {
        copy_program("/usr/bin/perl", &program);
    }
    machine.start_as(uid, program.to_str().unwrap(), &[&["-e", script], words].concat())
}

/// Listens at the addresses and the socket that it is told, as `Family Host Port v6only` or as a path, and sleeps.
const LISTENS: &str = r"use Socket qw(:all); my @held; foreach my $where (@ARGV) { my $s;
    if ($where =~ m{^/}) { socket($s, AF_UNIX, SOCK_STREAM, 0) or die; umask 0; bind($s, pack_sockaddr_un($where)) or die $!; }
    elsif (my ($h, $p) = $where =~ /^\[(.*)\]:(\d+)$/) { socket($s, AF_INET6, SOCK_STREAM, 0) or die; setsockopt($s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
      bind($s, pack_sockaddr_in6($p, inet_pton(AF_INET6, $h))) or die $!; }
    else { my ($h, $p) = split /:/, $where; socket($s, AF_INET, SOCK_STREAM, 0) or die; setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
      bind($s, pack_sockaddr_in($p, inet_aton($h))) or die $!; }
    listen($s, 5) or die; push @held, $s; }
    $| = 1; print qq{listening $ARGV[0]\n}; sleep 600;";

/// A forged server of a user at these places, once it listens.
fn listening(machine: &mut Machine, uid: u32, name: &str, places: &[&str]) -> u32 {
    let pid = forged(machine, uid, name, LISTENS, places);
    let line = format!("listening {}", places[0]);
    wait_for(&line, || machine.log().contains(&line).then_some(()));
    pid
}

/// A real Redis with a port and a socket that everyone may use, as a user.
fn redis(machine: &mut Machine, uid: u32, port: u16, socket: &Path) -> u32 {
    let command = redis_command(machine, port, socket);
    let words: Vec<String> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let pid = machine.start_as(uid, "redis-server", &words);
    answers(port);
    pid
}

fn redis_command(machine: &Machine, port: u16, socket: &Path) -> Command {
    let mut command = samehost_testing::redis_server(port, &machine.path(""));
    command.args(["--unixsocketperm", "777", "--unixsocket", socket.to_str().unwrap()]);
    command
}

fn answers(port: u16) {
    wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
}

/// A configuration of an application that reaches a Redis at a host; the file.
fn application(machine: &Machine, name: &str, host: &str, port: u16) -> PathBuf {
    machine.write(&format!("{name}/manage.py"), "#!/usr/bin/env python3\nimport django\n");
    let text = format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://{host}:{port}/0\n");
    machine.write(&format!("{name}/.env"), text)
}

/// The configuration of an nginx with a hop to itself: a page at port `web` that is asked for at `listen`, which is a
/// server beside a Unix socket `back.sock`. Its directory and its file.
fn nginx_hop(machine: &Machine, more: &str, web: u16, listen: &str) -> (String, PathBuf) {
    let at = machine.path("nginx").display().to_string();
    let back = listen.split(' ').next().unwrap();
    let text = format!(
        "daemon off;\n{more}\npid {at}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n    access_log off;\n    client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;\n    server {{ listen {listen}; listen unix:{at}/back.sock; return 200 ok; }}\n    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            proxy_pass http://{back};\n        }}\n    }}\n}}\n"
    );
    (at, machine.write("nginx/nginx.conf", text))
}

fn user(name: &str) -> u32 {
    let output = Command::new("id").args(["-u", name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap_or_else(|_| panic!("no user {name}"))
}
