//! What wakes a thread that waits for a reply: in `read` the peer's taking of the request too, in poll the reply only.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use samehost_model::Transport;
use samehost_transport::Stream;

const REQUESTS: u64 = 60;

/// How often a thread with so many slow requests over a Unix socket gave up its CPU.
fn switches(waits_in_poll: bool) -> u64 {
    let (client, server) = UnixStream::pair().unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = Stream::from_fd(client.into(), Transport::Unix);
        let before = own_switches();
        let mut byte = [0];
        for _ in 0..REQUESTS {
            stream.write_all(b"?").unwrap();
            if waits_in_poll {
                stream.wait_readable(None).unwrap();
            }
            stream.read_exact(&mut byte).unwrap();
        }
        own_switches() - before
    });
    let mut server = Stream::from_fd(server.into(), Transport::Unix);
    let mut byte = [0];
    // Each step finds the client asleep.
    for _ in 0..REQUESTS {
        sleep(Duration::from_millis(2));
        server.read_exact(&mut byte).unwrap();
        sleep(Duration::from_millis(2));
        server.write_all(b"!").unwrap();
    }
    client.join().unwrap()
}

fn own_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn who_polls_is_woken_by_the_reply_only() {
    let (polls, reads) = (switches(true), switches(false));
    assert!(polls < REQUESTS * 5 / 4, "{polls} switches in {REQUESTS} requests");
    assert!(reads > REQUESTS * 3 / 2, "{reads} switches in {REQUESTS} requests: has the kernel changed?");
}

#[test]
fn patience_ends() {
    let (stream, _peer) = UnixStream::pair().unwrap();
    let stream = Stream::from_fd(stream.into(), Transport::Unix);
    let error = stream.wait_readable(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
