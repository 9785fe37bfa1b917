//! `samehost serve` by itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Home, send, wait_for};

#[test]
fn echoes_on_both_transports_and_cleans_up_after_itself() {
    for model in ["threads", "epoll", "rounds"] {
        let home = Home::new();
        let mut server = home.serve("echo", &["--model", model, "--mode", "660"]);
        let path = home.path("echo.sock");
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
        let mut unix = UnixStream::connect(&path).unwrap();
        let mut tcp = TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
        let mut reply = [0; 5];
        unix.write_all(b"hello").unwrap();
        unix.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"hello");
        tcp.write_all(b"world").unwrap();
        tcp.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"world");
        server.signal(Signal::TERM);
        assert_eq!(server.wait(), 0, "{model}");
        assert!(!path.exists(), "{model}: the socket file goes with the server");
        assert!(!home.path("echo.sock.samehost-lock").exists(), "{model}");
    }
}

/// A Unix listener that was shut down and one of TCP answer accept(2) differently.
#[test]
fn a_server_of_one_transport_ends_when_it_is_told_to() {
    for server in ["echo", "http"] {
        for listen in ["unix:one.sock", "tcp:127.0.0.1:0"] {
            for model in ["threads", "blocking", "epoll", "rounds"] {
                let home = Home::new();
                let mut command = home.command(&["serve", server, "--listen", listen, "--model", model]);
                let mut child = command.current_dir(home.path(".")).stdout(Stdio::piped()).spawn().unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
                if !line.starts_with("listening on") {
                    let said = format!("{server} --model {model}");
                    assert_eq!((server, child.wait().unwrap().code()), ("http", Some(2)), "{said}");
                    continue;
                }
                send(child.id(), Signal::TERM);
                let ended = wait_for("its end", || child.try_wait().unwrap());
                assert_eq!(ended.code(), Some(0), "{server} --listen {listen} --model {model}");
            }
        }
    }
}

#[test]
fn a_second_server_does_not_steal_the_socket() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let ended = home.run(&["serve", "echo", "--listen", &server.unix]);
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("echo.sock"), "{}", ended.stderr);
    UnixStream::connect(home.path("echo.sock")).expect("the first server still answers");
}

#[test]
fn a_stale_socket_of_a_killed_server_is_taken_over() {
    let home = Home::new();
    let mut server = home.serve("echo", &[]);
    server.signal(Signal::KILL);
    server.wait();
    assert!(home.path("echo.sock").exists(), "kill -9 leaves the file");
    let _again = home.serve("echo", &[]);
    UnixStream::connect(home.path("echo.sock")).expect("the new server answers");
}
