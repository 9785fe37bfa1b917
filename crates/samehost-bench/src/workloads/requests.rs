//! What request/reply workloads share, with their connections outside the hot path, for set-up and evidence.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use samehost_login::prove;
use samehost_login::{Expected, Link};
use samehost_model::{Arm, Better, Endpoint, MetricInfo, Protocol, Transport, metric};
use samehost_transport::{ConnectError, ConnectOptions, Stream, TlsTrust, connect};

use crate::engine::Job;
use crate::engine::session::{Connector, Session};
use crate::error::BenchError;
use crate::parameters::words;

pub(crate) fn burst_metrics() -> Vec<MetricInfo> {
    let mut metrics = vec![
        MetricInfo::own("served_percent", "percent", Better::Higher),
        MetricInfo::own("refused_percent", "percent", Better::Lower),
        MetricInfo::own("stalled_percent", "percent", Better::Lower),
        MetricInfo::own("slowest_ms", "ms", Better::Lower),
    ];
    metrics.extend([metric::LATENCY_P50.info(), metric::LATENCY_P90.info()]);
    metrics
}

pub(crate) fn connect_failure(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Refused { .. } => "connection refused",
        ConnectError::BacklogFull { .. } => "EAGAIN (backlog full)",
        ConnectError::OutOfPorts { .. } => "EADDRNOTAVAIL (no port left)",
        ConnectError::TooManyFiles { .. } => "too many open files",
        ConnectError::TimedOut { .. } => "connect timed out",
        _ => "connect failed",
    }
}

/// The most connections of an arm whose requests over persistent connections are cut into slices.
/// All connections are drained at the end of a slice, uncounted, before the next arm begins. Up to here a
/// thread waits for the last replies of all of them in a small part of a slice; with more, draining would
/// take a large part of it. Open loops, bursts, dumps, connections for each request and pages keep
/// undivided trials for reasons of their own (docs/method.md §1a).
pub(crate) const MAX_SLICED_CONNECTIONS: u32 = 256;

/// Bytes of an arm's requests or replies; 128 where its point has no size.
pub(crate) fn size_of(arm: &Arm) -> usize {
    usize::try_from(arm.point.size_bytes.unwrap_or(128)).unwrap_or(usize::MAX)
}

pub(crate) fn require_size(option: &str, size: u64, what: &str, most: u64) -> Result<(), BenchError> {
    if size <= most {
        return Ok(());
    }
    BenchError::refuse(format!("{option} {size} is too large for {what}: at most {most} bytes here"))
}

words! {
    pub(crate) enum Connect { Once = "once", PerQuery = "per-query" }
}

const MAX_THREADS: u32 = 1024;

pub(crate) fn require_threads(what: &str, connections: u32) -> Result<(), BenchError> {
    if connections <= MAX_THREADS {
        return Ok(());
    }
    BenchError::refuse(format!("{what} has a thread for each connection; at most {MAX_THREADS} of them"))
}

/// Remark in a report where each transport has a server of its own. Two identical server processes differed by 10 to
/// 20 %, so the reader must know that the difference of the transports contains theirs.
pub(crate) fn apart(what: &str) -> String {
    format!("a different {what} for each transport: what differs between them counts as the transport's")
}

/// How long a reply may take outside of trials: during set-up, clean-up and the login.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn link_to(endpoint: &Endpoint) -> Result<Link, BenchError> {
    Ok(Link::connect(endpoint, REPLY_TIMEOUT)?)
}

pub(crate) fn says(seen: impl std::fmt::Display) -> String {
    format!("the server says {seen}")
}

/// Most bytes that one blocking connection may send before it reads: they fit into every transport's buffers, so that
/// client and server cannot deadlock, each waiting for the other to read.
pub(crate) const MAX_SMALL_BYTES: usize = 16 * 1024;

type Opened = Result<(Stream, Box<dyn Session>), BenchError>;

struct Opener<F> {
    endpoint: String,
    open: F,
}

/// Opens the connections of a job by one function, which connects, proves the transport, logs in and starts a session. The
/// workloads of requests and replies differ in that and in their sessions.
pub(crate) fn opener<F>(endpoint: &Endpoint, open: F) -> Arc<dyn Connector>
where
    F: Fn() -> Opened + Send + Sync + 'static,
{
    Arc::new(Opener { endpoint: endpoint.to_string(), open })
}

impl<F: Fn() -> Opened + Send + Sync> Connector for Opener<F> {
    fn connect(&self) -> Opened {
        (self.open)()
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }
}

/// The job of sessions with a server that needs no login.
pub(crate) fn plain_job<S: Session + 'static>(
    endpoint: Endpoint,
    small: bool,
    session: impl Fn() -> S + Send + Sync + 'static,
) -> Job {
    let connector = opener(&endpoint.clone(), move || Ok((open_plain(&endpoint)?, Box::new(session()))));
    Job::Sessions { connector, small }
}

/// Any certificate is accepted: verifying them is not what is measured.
pub(crate) fn plain_options() -> ConnectOptions {
    let timeout = Some(Duration::from_secs(10));
    ConnectOptions { tls: TlsTrust::any_on_loopback(), timeout, ..ConnectOptions::default() }
}

/// A connection to a server that needs no login, whose transport is proved.
pub(crate) fn open_plain(endpoint: &Endpoint) -> Result<Stream, BenchError> {
    let stream = connect(endpoint, &plain_options())?;
    prove(&stream, endpoint.transport())?;
    Ok(stream)
}

/// Refuses a transport whose connections another process makes, where connecting is measured.
/// `tcp+run` gets its sockets from a client below `samehost run`, by SCM_RIGHTS. With a connection for
/// each query or request the hand-over would be measured too. What a connect costs under `run` is a
/// benchmark of its own (docs/decisions/0120).
pub(crate) fn require_own_connects(transport: Transport) -> Result<(), BenchError> {
    if transport != Transport::TcpRun {
        return Ok(());
    }
    BenchError::refuse(
        "tcp+run is for connections that stay: a client under `samehost run` makes them and hands them over, which would be measured too; docs/run.md says what a connect costs",
    )
}

/// Bytes of the correct reply, learned from the first one and filled in with what is known of each row.
/// Every reply is checked. A full backlog made a Unix socket look ten times faster, because 50,000 of
/// 65,000 replies were errors. Parsing each reply would cost the client CPU time that is not the
/// transport's, so a reply is one comparison of memory, and only one that differs is parsed and judged by
/// its meaning.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    bytes: Arc<[u8]>,
    /// Length of the head: its bytes are compared together, because they determine kind and length of the reply.
    head: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Whole {
        consumed: usize,
    },
    Partly {
        consumed: usize,
    },
    /// Nothing is consumed: the protocol has to parse this reply.
    OtherHead,
    WrongBody,
}

impl Awaited {
    pub(super) fn new(head: &[u8], body: &[u8], end: &[u8]) -> Self {
        Awaited { bytes: [head, body, end].concat().into(), head: head.len() }
    }

    /// Compares more bytes of the reply. The caller keeps `received`, the bytes of this reply that were consumed
    /// before: 0 at first, and 0 again after a whole reply. A part of the head consumes nothing and has to be
    /// given again, together with more.
    #[inline]
    pub(super) fn look(&self, received: &mut usize, input: &[u8]) -> Seen {
        if *received == 0 {
            let length = input.len().min(self.head);
            if input[..length] != self.bytes[..length] {
                return Seen::OtherHead;
            }
            if length < self.head {
                return Seen::Partly { consumed: 0 };
            }
        }
        let rest = &self.bytes[*received..];
        let length = input.len().min(rest.len());
        if input[..length] != rest[..length] {
            return Seen::WrongBody;
        }
        if length == rest.len() {
            *received = 0;
            Seen::Whole { consumed: length }
        } else {
            *received += length;
            Seen::Partly { consumed: length }
        }
    }
}

/// Fills a place with the last digits of an id, from the left with zeros.
#[inline]
pub(super) fn write_digits(mut id: u32, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (id % 10) as u8;
        id /= 10;
    }
}

/// A value of this length: bytes that no text protocol mistakes for its own, and that vary with the position.
pub(super) fn value(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8).collect()
}

/// Servers that may receive a password: a private server of ours, or one that runs as its packages run it.
pub(crate) fn expected(protocol: Protocol) -> &'static Expected {
    &both(protocol).0
}

/// Servers that may receive a password on further measured connections, after a first one that was tied
/// in full. To recognise the server takes one query to the kernel over either transport, for its user.
/// The full check walks through /proc to find who holds the accepted socket, and with 64 connections that
/// was two thirds of a block's time. So no walk through /proc is inside any arm (docs/decisions/0065).
pub(crate) fn expected_again(protocol: Protocol) -> &'static Expected {
    &both(protocol).1
}

fn both(protocol: Protocol) -> &'static (Expected, Expected) {
    static MYSQL: OnceLock<(Expected, Expected)> = OnceLock::new();
    static POSTGRES: OnceLock<(Expected, Expected)> = OnceLock::new();
    static REDIS: OnceLock<(Expected, Expected)> = OnceLock::new();
    let known = match protocol {
        Protocol::Mysql => &MYSQL,
        Protocol::Postgres => &POSTGRES,
        _ => &REDIS,
    };
    known.get_or_init(|| {
        let first = Expected::of_service(protocol).or_started_by_us();
        let again = first.again();
        (first, again)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_judged_together_and_bodies_as_they_come() {
        let awaited = Awaited::new(b"$3\r\n", b"abc", b"\r\n");
        let mut received = 0;
        assert_eq!(awaited.look(&mut received, b"$3"), Seen::Partly { consumed: 0 });
        assert_eq!(awaited.look(&mut received, b"-E"), Seen::OtherHead);
        assert_eq!(awaited.look(&mut received, b"$3\r\nab"), Seen::Partly { consumed: 6 });
        assert_eq!(awaited.look(&mut received, b"c\r\nmore"), Seen::Whole { consumed: 3 });
        assert_eq!(received, 0, "ready for the next");
        assert_eq!(awaited.look(&mut received, b"$3\r\nabd\r\n"), Seen::WrongBody);
    }

    proptest! {
        #[test]
        fn a_right_reply_is_right_in_any_pieces(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            pieces in proptest::collection::vec(1_usize..40, 1..60),
        ) {
            let awaited = Awaited::new(b"HEAD\r\n", &body, b"\r\n");
            let whole = [b"HEAD\r\n".as_slice(), &body, b"\r\n"].concat();
            let (mut received, mut kept, mut from, mut pieces) = (0, Vec::new(), 0, pieces.into_iter().cycle());
            loop {
                let to = (from + pieces.next().unwrap()).min(whole.len());
                kept.extend_from_slice(&whole[from..to]);
                from = to;
                match awaited.look(&mut received, &kept) {
                    Seen::Partly { consumed } => { kept.drain(..consumed); }
                    seen => {
                        prop_assert_eq!(seen, Seen::Whole { consumed: kept.len() });
                        break;
                    }
                }
                prop_assert!(from < whole.len(), "not whole at the end");
            }
        }

        #[test]
        fn one_wrong_byte_is_seen(size in 1_usize..300, at in any::<prop::sample::Index>()) {
            let body = value(size);
            let awaited = Awaited::new(b"H", &body, b"\r\n");
            let mut reply = [b"H".as_slice(), &body, b"\r\n"].concat();
            let at = at.index(reply.len());
            reply[at] ^= 0x20;
            let seen = awaited.look(&mut 0, &reply);
            prop_assert_eq!(seen, if at == 0 { Seen::OtherHead } else { Seen::WrongBody });
        }
    }
}
