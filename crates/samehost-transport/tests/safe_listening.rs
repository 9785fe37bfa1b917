//! A listener takes a path only when nobody else has it, and gives back only what it took.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::Barrier;

use common::Place;
use rustix::process::geteuid;
use samehost_transport::{ConnectOptions, Endpoint, ListenError, ListenOptions, TlsServer, connect, listen};

fn plain() -> ListenOptions {
    ListenOptions::default()
}

fn refused(endpoint: &Endpoint) -> ListenError {
    let error = listen(endpoint, &plain()).unwrap_err();
    assert!(error.to_string().contains(&endpoint.to_string()), "the endpoint must be named: {error}");
    error
}

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn what_is_no_socket_stays() {
    let place = Place::new();
    std::fs::write(place.path("file"), "precious").unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    symlink(place.path("nowhere"), place.path("dangling")).unwrap();
    drop(UnixListener::bind(place.path("stale")).unwrap());
    symlink(place.path("stale"), place.path("link")).unwrap();
    for (name, what) in [
        ("file", "a regular file"),
        ("directory", "a directory"),
        ("dangling", "a symbolic link"),
        ("link", "a symbolic link"),
    ] {
        let before = place.path(name).symlink_metadata().unwrap().ino();
        let error = refused(&place.unix(name));
        let ListenError::Occupied(_, found) = error else { panic!("{error}") };
        assert_eq!(found, what);
        assert_eq!(place.path(name).symlink_metadata().unwrap().ino(), before);
        assert!(
            !place.path(&format!("{name}.samehost-lock")).exists(),
            "a failed start leaves no lock behind"
        );
    }
    assert_eq!(std::fs::read_to_string(place.path("file")).unwrap(), "precious");
    assert!(place.path("stale").exists());
}

#[test]
fn a_socket_that_nobody_answers_is_replaced() {
    let place = Place::new();
    let path = place.path("x.sock");
    drop(UnixListener::bind(&path).unwrap());
    let listener = listen(&place.unix("x.sock"), &plain()).unwrap();
    connect(listener.endpoint(), &ConnectOptions::default()).unwrap();
}

#[test]
fn a_living_socket_is_refused_and_its_process_named() {
    let place = Place::new();
    for (name, kind) in
        [("a.sock", Endpoint::Unix as fn(_) -> _), ("b.sock", Endpoint::Seqpacket as fn(_) -> _)]
    {
        let theirs = UnixListener::bind(place.path(name)).unwrap();
        let error = refused(&kind(place.path(name)));
        assert!(matches!(error, ListenError::InUse(_, Some(pid)) if pid == std::process::id()), "{error}");
        assert!(place.path(name).exists());
        drop(theirs);
    }
    let _datagram = UnixDatagram::bind(place.path("c.sock")).unwrap();
    assert!(matches!(refused(&place.unix("c.sock")), ListenError::InUse { .. }));
    assert!(place.path("c.sock").exists());
}

#[test]
fn our_own_listener_is_refused_too_and_its_process_named() {
    let place = Place::new();
    let endpoint = place.unix("x.sock");
    let first = listen(&endpoint, &plain()).unwrap();
    let error = refused(&endpoint);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    connect(&endpoint, &ConnectOptions::default()).unwrap();
    drop(first);
    listen(&endpoint, &plain()).unwrap();
}

#[test]
fn of_many_starters_exactly_one_wins_every_time() {
    let place = Place::new();
    let endpoint = place.unix("x.sock");
    for round in 0..50 {
        if round % 2 == 0 {
            drop(UnixListener::bind(place.path("x.sock")).unwrap()); // A dead socket lies in the way.
        }
        let barrier = Barrier::new(8);
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let starters: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        listen(&endpoint, &plain())
                    })
                })
                .collect();
            starters.into_iter().map(|starter| starter.join().unwrap()).collect()
        });
        let winners = listeners.iter().filter(|result| result.is_ok()).count();
        assert_eq!(winners, 1, "{listeners:?}");
        for loser in listeners.iter().filter_map(|result| result.as_ref().err()) {
            assert!(matches!(loser, ListenError::InUse { .. }), "{loser}");
        }
        connect(&endpoint, &ConnectOptions::default()).unwrap();
        drop(listeners);
        assert!(!place.path("x.sock").exists() && !place.path("x.sock.samehost-lock").exists());
    }
}

#[test]
fn a_dropped_listener_takes_its_file_and_its_lock_away() {
    let place = Place::new();
    let listener = listen(&place.unix("x.sock"), &plain()).unwrap();
    assert!(place.path("x.sock").exists() && place.path("x.sock.samehost-lock").exists());
    drop(listener);
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn a_file_that_replaced_ours_stays() {
    let place = Place::new();
    let listener = listen(&place.unix("x.sock"), &plain()).unwrap();
    std::fs::remove_file(place.path("x.sock")).unwrap();
    std::fs::write(place.path("x.sock"), "theirs").unwrap();
    drop(listener);
    assert_eq!(std::fs::read_to_string(place.path("x.sock")).unwrap(), "theirs");
}

#[test]
fn the_mode_is_the_one_asked_for_whatever_the_umask() {
    let place = Place::new();
    for asked in [0o600, 0o660, 0o666] {
        let endpoint = place.unix(&format!("{asked:o}.sock"));
        let _listener = listen(&endpoint, &ListenOptions { mode: asked, ..plain() }).unwrap();
        assert_eq!(mode(endpoint.path().unwrap()), asked);
        assert_eq!(mode(&place.path(&format!("{asked:o}.sock.samehost-lock"))), 0o600);
    }
    let _listener = listen(&place.unix("default.sock"), &plain()).unwrap();
    assert_eq!(mode(&place.path("default.sock")), 0o600);
}

#[test]
fn the_owner_can_be_given_by_root_only() {
    let place = Place::new();
    let options =
        ListenOptions { owner: Some((65534, 65534)), mode: 0o660, create_directory: true, ..plain() };
    match listen(&place.unix("d/x.sock"), &options) {
        Ok(_listener) => {
            for (name, mode) in [("d", 0o700), ("d/x.sock", 0o660)] {
                let made = place.path(name).metadata().unwrap();
                assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (65534, 65534, mode), "{name}");
            }
        }
        Err(error) => {
            assert!(!geteuid().is_root(), "{error}");
            assert!(matches!(error, ListenError::PermissionDenied { .. }), "{error}");
            assert!(!place.path("d/x.sock").exists());
        }
    }
}

#[test]
fn only_the_last_directory_is_created_and_privately() {
    let place = Place::new();
    let error = refused(&place.unix("d/x.sock"));
    assert!(matches!(error, ListenError::NoDirectory { .. }), "{error}");
    let create = ListenOptions { create_directory: true, ..plain() };
    let error = listen(&place.unix("a/b/x.sock"), &create).unwrap_err();
    let ListenError::NoDirectory(_, directory) = error else { panic!("{error}") };
    assert_eq!(directory, place.path("a"));
    let _listener = listen(&place.unix("d/x.sock"), &create).unwrap();
    assert_eq!(mode(&place.path("d")), 0o700);
    assert_eq!(place.path("d").metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn paths_are_checked_for_length_with_the_way_out() {
    let place = Place::new();
    let long = "p".repeat(108);
    let error = listen(&place.unix(&long), &plain()).unwrap_err();
    assert!(matches!(error, ListenError::Address(_)), "{error}");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn services_stay_out_of_tmp_also_through_a_link() {
    let public = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let home = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    symlink(public.path(), home.path().join("link")).unwrap();
    for path in [public.path().join("x.sock"), "/var/tmp/x.sock".into(), home.path().join("link/x.sock")] {
        let error = listen(&Endpoint::Unix(path), &ListenOptions::service()).unwrap_err();
        assert!(matches!(error, ListenError::UnderTmp { .. }), "{error}");
    }
    listen(&Endpoint::Unix(home.path().join("x.sock")), &ListenOptions::service()).unwrap();
}

#[test]
fn a_foreign_lock_file_is_told() {
    let place = Place::new();
    std::fs::create_dir(place.path("x.sock.samehost-lock")).unwrap();
    let error = refused(&place.unix("x.sock"));
    assert!(matches!(error, ListenError::Lock { .. }), "{error}");
}

#[test]
fn a_taken_port_is_named_and_a_free_one_found() {
    let first = listen(&"tcp:127.0.0.1:0".parse().unwrap(), &plain()).unwrap();
    let Endpoint::Tcp { port, .. } = *first.endpoint() else { panic!("a TCP endpoint") };
    assert_ne!(port, 0);
    let error = refused(first.endpoint());
    assert!(matches!(error, ListenError::PortTaken(_, taken) if taken == port), "{error}");
    assert!(error.to_string().contains("ss -ltnp"), "{error}");
}

#[test]
fn a_taken_abstract_name_is_refused_and_its_process_named() {
    let endpoint = Endpoint::Abstract(format!("samehost-test-taken-{}", std::process::id()));
    let _first = listen(&endpoint, &plain()).unwrap();
    let error = refused(&endpoint);
    assert!(matches!(error, ListenError::InUse(_, Some(pid)) if pid == std::process::id()), "{error}");
}

#[test]
fn addresses_of_other_machines_and_tls_without_a_certificate_are_told() {
    let elsewhere = "tcp:192.0.2.1:0".parse().unwrap();
    assert!(matches!(refused(&elsewhere), ListenError::NotLocal { .. }));
    let tls = "tcp+tls:127.0.0.1:0".parse().unwrap();
    assert!(matches!(refused(&tls), ListenError::NoCertificate { .. }));
    let options = ListenOptions { tls: Some(TlsServer::self_signed().unwrap()), ..plain() };
    listen(&tls, &options).unwrap();
}
