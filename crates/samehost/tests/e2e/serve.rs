//! `samehost serve` by itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

use crate::support::Home;

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
