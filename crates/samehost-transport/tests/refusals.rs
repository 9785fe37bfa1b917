//! What `connect` says when it fails: the endpoint, the cause, and what to try.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::Place;
use rustix::io::Errno;
use rustix::process::geteuid;
use samehost_transport::{
    ConnectError, ConnectOptions, Endpoint, ListenOptions, Right, StartError, connect, connect_nonblocking,
    listen,
};

fn refused(endpoint: &Endpoint) -> ConnectError {
    let error = connect(endpoint, &ConnectOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&endpoint.to_string()), "the endpoint must be named: {error}");
    error
}

/// Runs as an ordinary user: ids belong to threads on Linux, and the thread ends here.
fn unprivileged<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if geteuid().is_root() {
                let nobody = 65534;
                rustix::thread::set_thread_groups(&[]).unwrap();
                let gid = Some(rustix::fs::Gid::from_raw(nobody));
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                let uid = Some(rustix::fs::Uid::from_raw(nobody));
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            body()
        });
        thread.join().unwrap()
    })
}

#[test]
fn nobody_listens() {
    let place = Place::new();
    for endpoint in place.endpoints() {
        let listener = listen(&endpoint, &common::listen_options()).unwrap();
        let actual = listener.endpoint().clone();
        drop(listener);
        let error = refused(&actual);
        match endpoint.path() {
            Some(path) => {
                let ConnectError::NotFound(_, missing) = error else { panic!("{error}") };
                assert_eq!(missing, path);
            }
            None => assert!(matches!(error, ConnectError::Refused { .. }), "{error}"),
        }
    }
}

#[test]
fn a_stale_socket_refuses() {
    let place = Place::new();
    drop(std::os::unix::net::UnixListener::bind(place.path("x.sock")).unwrap());
    assert!(matches!(refused(&place.unix("x.sock")), ConnectError::Refused { .. }));
}

#[test]
fn the_missing_directory_is_named() {
    let place = Place::new();
    let error = refused(&place.unix("none/x.sock"));
    let ConnectError::NotFound(_, missing) = error else { panic!("{error}") };
    assert_eq!(missing, place.path("none"));
}

#[test]
fn what_is_no_socket_is_named() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    for (name, what) in [("file", "a regular file"), ("directory", "a directory")] {
        let error = refused(&place.unix(name));
        let ConnectError::NotASocket(_, found) = error else { panic!("{error}") };
        assert_eq!(found, what);
    }
    assert!(matches!(refused(&place.unix("file/x.sock")), ConnectError::NotASocket { .. }));
}

#[test]
fn a_socket_of_another_kind_is_told_from_a_dead_one() {
    let place = Place::new();
    let path = place.path("x.sock");
    let _listener = listen(&Endpoint::Seqpacket(path.clone()), &ListenOptions::default()).unwrap();
    assert!(matches!(refused(&Endpoint::Unix(path)), ConnectError::WrongKind { .. }));
}

#[test]
fn addresses_that_cannot_be_are_refused_before_the_kernel_is_asked() {
    for path in ["p".repeat(108), String::new(), "a\0b".to_owned()] {
        let endpoint = Endpoint::Unix(path.into());
        let error = connect(&endpoint, &ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, ConnectError::Address(_)), "{error}");
    }
    let error = connect(&Endpoint::Abstract(String::new()), &ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Address(_)), "{error}");
}

#[test]
fn unknown_hosts_are_told() {
    // RFC 6761: `.invalid` never resolves.
    let endpoint = "tcp:samehost.invalid:1".parse().unwrap();
    assert!(matches!(refused(&endpoint), ConnectError::Lookup { .. }));
}

#[test]
fn the_directory_that_may_not_be_searched_is_named() {
    let place = Place::new();
    let outer = place.path("");
    std::fs::set_permissions(&outer, PermissionsExt::from_mode(0o755)).unwrap();
    let options = ListenOptions { create_directory: true, mode: 0o666, ..ListenOptions::default() };
    let endpoint = place.unix("private/x.sock");
    let _listener = listen(&endpoint, &options).unwrap();
    if !geteuid().is_root() {
        std::fs::set_permissions(place.path("private"), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let error = unprivileged(|| refused(&endpoint));
    std::fs::set_permissions(place.path("private"), PermissionsExt::from_mode(0o700)).unwrap();
    let text = error.to_string();
    let ConnectError::PermissionDenied(_, denied) = error else { panic!("{text}") };
    assert_eq!((denied.right, denied.part), (Right::Search, place.path("private")));
    assert!(text.contains("chmod o+x"), "{text}");
}

#[test]
fn the_socket_that_may_not_be_written_is_named() {
    let place = Place::new();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let endpoint = place.unix("x.sock");
    let mode = if geteuid().is_root() { 0o600 } else { 0o400 };
    let _listener = listen(&endpoint, &ListenOptions { mode, ..ListenOptions::default() }).unwrap();
    let error = unprivileged(|| refused(&endpoint));
    let text = error.to_string();
    let ConnectError::PermissionDenied(_, denied) = error else { panic!("{text}") };
    assert_eq!((denied.right, denied.part), (Right::Write, place.path("x.sock")));
    assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
}

#[test]
fn a_full_unix_backlog_is_eagain_at_once_and_told_after_a_time_limit() {
    let place = Place::new();
    let endpoint = place.unix("x.sock");
    let _listener = listen(&endpoint, &ListenOptions { backlog: 1, ..ListenOptions::default() }).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match connect_nonblocking(&endpoint, &ConnectOptions::default()) {
            Ok((stream, connecting)) => {
                assert_eq!(connecting, samehost_transport::Connecting::Done);
                waiting.push(stream);
            }
            Err(error) => break error,
        }
        assert!(waiting.len() < 16, "a backlog of 1 must be full by now");
    };
    assert!(matches!(error, StartError::Os(_, Errno::AGAIN)), "{error}");
    assert!(error.to_string().contains("backlog"), "{error}");

    let started = Instant::now();
    let options = ConnectOptions { timeout: Some(Duration::from_millis(50)), ..ConnectOptions::default() };
    let error = connect(&endpoint, &options).unwrap_err();
    assert!(matches!(error, ConnectError::BacklogFull { .. }), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(50));
}

#[test]
fn a_tcp_backlog_that_stays_full_times_out() {
    let endpoint = "tcp:127.0.0.1:0".parse().unwrap();
    let listener = listen(&endpoint, &ListenOptions { backlog: 1, ..ListenOptions::default() }).unwrap();
    let options = ConnectOptions { timeout: Some(Duration::from_millis(200)), ..ConnectOptions::default() };
    let mut waiting = Vec::new();
    let error = loop {
        match connect(listener.endpoint(), &options) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(waiting.len() < 16, "a backlog of 1 must be full by now");
    };
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
}
