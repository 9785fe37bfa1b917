//! Builds HTTP requests, and the connections that send them.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_model::Endpoint;
use samehost_transport::{ConnectOptions, Stream, connect};

use super::reply::{Got, Head, ReplyReader, refusal};
use crate::engine::Job;
use crate::engine::session::{Bad, Caller, Progress, Seen, Session};
use crate::error::BenchError;
use crate::parameters::{Word, words};
use crate::workloads::requests::{MAX_SMALL_BYTES, connect_failure, open_plain, plain_job, plain_options};

/// How long a reply may take outside of the measurement, from the connect to its last byte.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest body that is kept, in bytes. A page has some hundred KiB; the server that sends it may be another user's, and it
/// is read as root in the middle of a switch. Of a longer one only the length is known.
const MAX_KEPT_BYTES: usize = 4 << 20;

words! {
    pub(crate) enum Version { V11 = "1.1", V10 = "1.0" }
}

#[derive(Clone, Debug)]
pub(crate) struct RequestParts<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) host: &'a str,
    pub(crate) version: Version,
    pub(crate) keeps: bool,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) body: Option<&'a [u8]>,
    /// Bytes that the request has at least: a field of letters fills it up. 0 for as short as it is.
    pub(crate) length: usize,
}

impl<'a> RequestParts<'a> {
    pub(crate) fn get(target: &'a str, host: &'a str) -> Self {
        RequestParts {
            method: "GET",
            target,
            host,
            version: Version::V11,
            keeps: true,
            authorization: None,
            body: None,
            length: 0,
        }
    }

    pub(crate) fn bytes(&self) -> Arc<[u8]> {
        let mut head = format!(
            "{} {} HTTP/{}\r\nHost: {}\r\n",
            self.method,
            self.target,
            self.version.word(),
            self.host
        );
        match (self.version, self.keeps) {
            (Version::V10, true) => head.push_str("Connection: keep-alive\r\n"),
            (Version::V11, false) => head.push_str("Connection: close\r\n"),
            _ => {}
        }
        if let Some(authorization) = self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        if let Some(body) = self.body {
            head.push_str(&format!(
                "Content-Type: application/octet-stream\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        let body = self.body.unwrap_or_default();
        let filled = head.len() + "X: \r\n\r\n".len() + body.len();
        if filled <= self.length {
            head.push_str(&format!("X: {}\r\n", "x".repeat(self.length - filled)));
        }
        head.push_str("\r\n");
        [head.as_bytes(), body].concat().into()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    /// Its beginning: at most [`MAX_KEPT_BYTES`] bytes.
    pub(crate) begins: Vec<u8>,
    pub(crate) length: u64,
}

impl Body {
    pub(crate) fn is_whole(&self) -> bool {
        self.begins.len() as u64 == self.length
    }
}

#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) head: Head,
    pub(crate) body: Body,
    reader: ReplyReader,
}

impl Fetched {
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.reader.field(name)
    }
}

/// Fetches a reply outside the measurement, with one time limit for all of it, and keeps a limited part: the server may
/// be another user's, and drip bytes or send them without end to a process of root. A refusal is a reply too: look at
/// its status.
///
/// # Errors
/// When the server does not answer in time, or not in HTTP.
pub(crate) fn fetch(endpoint: &Endpoint, request: &[u8]) -> Result<Fetched, BenchError> {
    let ends = Instant::now() + REPLY_TIMEOUT;
    let mut stream = open_plain(endpoint)?;
    let (mut reader, mut body, mut pending) = (ReplyReader::new(), Body::default(), Vec::new());
    let outcome = exchange(&mut stream, request, Some(ends), &mut reader, &mut pending, |_, bytes| {
        body.length += bytes.len() as u64;
        let room = MAX_KEPT_BYTES - body.begins.len();
        body.begins.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    });
    match outcome {
        Ok(head) => Ok(Fetched { head, body, reader }),
        Err(_) if samehost_system::interrupt::is_requested() => Err(BenchError::Interrupted),
        Err(bad) if bad.kind == NO_ANSWER => {
            Err(BenchError::Hung { endpoint: endpoint.to_string(), seconds: REPLY_TIMEOUT.as_secs_f64() })
        }
        Err(bad) => Err(BenchError::lost(endpoint, bad.to_string())),
    }
}

const NO_ANSWER: &str = "no answer in time";

fn limit(stream: &mut Stream, which: Timeout, ends: Instant) -> std::io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    // The kernel takes less than a microsecond as 0, which means no limit.
    let left = left.max(Duration::from_micros(1));
    set_socket_timeout(&*stream, which, Some(left))?;
    Ok(left)
}

/// Sends a request. With a limit, every write is limited anew: a server may take a request as slowly as it answers.
fn send(stream: &mut Stream, request: &[u8], ends: Option<Instant>) -> std::io::Result<()> {
    let Some(ends) = ends else {
        stream.write_all(request)?;
        return stream.flush();
    };
    stream.set_deadline(Some(ends));
    let mut rest = request;
    while !rest.is_empty() {
        limit(stream, Timeout::Send, ends)?;
        match stream.write(rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    stream.flush()
}

/// Waits for bytes and reads them; 0 where the server closed the connection.
fn receive(stream: &mut Stream, input: &mut [u8], ends: Option<Instant>) -> std::io::Result<usize> {
    // Over TLS a read blocks; the limit of the socket counts for it.
    let left = ends.map(|ends| limit(stream, Timeout::Recv, ends)).transpose()?;
    stream.wait_readable(left)?;
    stream.read(input)
}

/// Sends one request and reads the whole reply on a connection, until `ends`. `pending` is room for bytes that are not
/// parsed yet, which callers keep for the next exchange.
fn exchange(
    stream: &mut Stream,
    request: &[u8],
    ends: Option<Instant>,
    reader: &mut ReplyReader,
    pending: &mut Vec<u8>,
    mut body: impl FnMut(u16, &[u8]) -> Result<(), Bad>,
) -> Result<Head, Bad> {
    // A server that refuses early may close while we still send; its reply decides.
    let unsent = send(stream, request, ends).err();
    pending.clear();
    let mut input = [0; 16 * 1024];
    loop {
        let read = match receive(stream, &mut input, ends) {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Bad::new(NO_ANSWER, error.to_string()));
            }
            Err(error) => return Err(Bad::new("read failed", error.to_string())),
        };
        if read == 0 {
            return match unsent {
                Some(error) => Err(Bad::new("write failed", error.to_string())),
                None => reader.closed(),
            };
        }
        pending.extend_from_slice(&input[..read]);
        match reader.take(pending, &mut body)? {
            Got::Whole { consumed, head } if consumed == pending.len() => return Ok(head),
            Got::Whole { .. } => return Err(Bad::new("unasked bytes", "behind a reply")),
            Got::Part { consumed } => drop(pending.drain(..consumed)),
        }
    }
}

/// Opens a new connection for each request. As connecting is a part of what is measured, it has a thread of its own
/// instead of a place in the engine's epoll loop.
pub(crate) struct OneShot {
    endpoint: Endpoint,
    options: ConnectOptions,
    request: Arc<[u8]>,
    check: BodyCheck,
    pending: Vec<u8>,
}

impl OneShot {
    /// Callers for so many connections, after one that checks the transport.
    ///
    /// # Errors
    /// When the server does not answer, or over another transport.
    pub(crate) fn several(
        number: u32,
        endpoint: &Endpoint,
        request: &Arc<[u8]>,
        expected: &Expected,
    ) -> Result<Job, BenchError> {
        let seen = Seen::of_socket(&open_plain(endpoint)?);
        Job::callers(endpoint, Some(seen), number, |_| {
            Ok(OneShot {
                endpoint: endpoint.clone(),
                // A time limit would cost each connection two more system calls.
                options: ConnectOptions { timeout: None, ..plain_options() },
                request: Arc::clone(request),
                check: BodyCheck::new(expected.clone()),
                pending: Vec::new(),
            })
        })
    }
}

impl Caller for OneShot {
    fn call(&mut self) -> Result<(), Bad> {
        let mut stream = connect(&self.endpoint, &self.options)
            .map_err(|error| Bad::new(connect_failure(&error), error.to_string()))?;
        // A reply that broke off in its body would be counted into the next one's.
        self.check.begin();
        let (mut reader, check) = (ReplyReader::new(), &mut self.check);
        let head =
            exchange(&mut stream, &self.request, None, &mut reader, &mut self.pending, |status, bytes| {
                check.more(status, bytes)
            })?;
        match self.check.whole(head.status)? {
            None => Ok(()),
            Some(kind) => Err(Bad::new(kind, "refused")),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Bytes(Arc<[u8]>),
    /// The server's replies differ from one another, so only their status and framing are checked.
    Anything,
}

impl Expected {
    /// How replies are checked where nothing but a first body is known. If a second one is equal, all others must be too,
    /// and if not, as with a page that shows the time, only their status and length are checked.
    pub(crate) fn learned(
        first: Body,
        second: impl FnOnce() -> Result<Body, BenchError>,
    ) -> Result<Self, BenchError> {
        if first.is_whole() && second()? == first {
            return Ok(Expected::Bytes(first.begins.into()));
        }
        Ok(Expected::Anything)
    }
}

/// Compares bodies with the expected one as they arrive, so that none is kept.
#[derive(Clone, Debug)]
pub(crate) struct BodyCheck {
    expected: Expected,
    seen: usize,
}

impl BodyCheck {
    pub(crate) fn new(expected: Expected) -> Self {
        BodyCheck { expected, seen: 0 }
    }

    /// Forgets what was taken of a body that did not come whole.
    pub(crate) fn begin(&mut self) {
        self.seen = 0;
    }

    /// Takes more of the body of a reply with this status. The body of a refusal is not compared.
    #[inline]
    pub(crate) fn more(&mut self, status: u16, bytes: &[u8]) -> Result<(), Bad> {
        let from = self.seen;
        self.seen += bytes.len();
        match &self.expected {
            Expected::Bytes(expected)
                if refusal(status).is_none() && expected.get(from..self.seen) != Some(bytes) =>
            {
                Err(Bad::new("wrong body", "a body differs from the one before"))
            }
            _ => Ok(()),
        }
    }

    /// Ends a reply: returns the kind of its refusal, or `None` for a success. The next body begins at 0 again.
    pub(crate) fn whole(&mut self, status: u16) -> Result<Option<&'static str>, Bad> {
        let seen = std::mem::take(&mut self.seen);
        let rejected = refusal(status);
        match &self.expected {
            Expected::Bytes(expected) if rejected.is_none() && seen != expected.len() => {
                Err(Bad::new("wrong body", format!("{seen} bytes instead of {}", expected.len())))
            }
            _ => Ok(rejected),
        }
    }
}

/// Repeats the same request on one connection, alone or in a pipeline, and reads replies to their end. Pure: no I/O, no
/// clock.
#[derive(Debug)]
pub(crate) struct HttpSession {
    request: Arc<[u8]>,
    pipeline: u32,
    reader: ReplyReader,
    check: BodyCheck,
    replies: u32,
    /// Kind of the last refusal among the current exchange's replies.
    rejected: Option<&'static str>,
}

impl HttpSession {
    pub(crate) fn new(request: Arc<[u8]>, pipeline: u32, expected: Expected) -> Self {
        HttpSession {
            request,
            pipeline,
            reader: ReplyReader::new(),
            check: BodyCheck::new(expected),
            replies: 0,
            rejected: None,
        }
    }

    pub(crate) fn job(endpoint: Endpoint, request: Arc<[u8]>, pipeline: u32, expected: Expected) -> Job {
        let small = request.len() * pipeline as usize <= MAX_SMALL_BYTES;
        plain_job(endpoint, small, move || HttpSession::new(Arc::clone(&request), pipeline, expected.clone()))
    }
}

impl Session for HttpSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.replies = 0;
        self.rejected = None;
        for _ in 0..self.pipeline {
            out.extend_from_slice(&self.request);
        }
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let mut at = 0;
        loop {
            let check = &mut self.check;
            match self.reader.take(&input[at..], |status, bytes| check.more(status, bytes))? {
                Got::Part { .. } if self.reader.needs_close() => {
                    return Err(Bad::new(
                        "body without a length",
                        "it ends where the server closes the connection; use --connect per-request",
                    ));
                }
                Got::Part { consumed } => return Ok(Progress::More { consumed: at + consumed }),
                Got::Whole { consumed, head } => {
                    at += consumed;
                    self.replies += 1;
                    if let Some(kind) = self.check.whole(head.status)? {
                        self.rejected = Some(kind);
                    }
                    if self.replies < self.pipeline {
                        if !head.keeps {
                            return Err(Bad::new(
                                "connection closed",
                                "before all of a pipeline was answered",
                            ));
                        }
                        continue;
                    }
                    return Ok(match (head.keeps, self.rejected) {
                        (true, None) => Progress::Complete { consumed: at },
                        (true, Some(kind)) => Progress::Rejected { consumed: at, kind },
                        (false, rejected) => Progress::Last { consumed: at, rejected },
                    });
                }
            }
        }
    }

    fn operations_per_exchange(&self) -> u64 {
        u64::from(self.pipeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_both_versions() {
        fn text(parts: &RequestParts<'_>) -> String {
            String::from_utf8(parts.bytes().to_vec()).unwrap()
        }
        let parts = RequestParts {
            method: "GET",
            target: "/",
            host: "h",
            version: Version::V11,
            keeps: true,
            authorization: None,
            body: None,
            length: 0,
        };
        assert_eq!(text(&parts), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let old = RequestParts { version: Version::V10, ..parts.clone() };
        assert_eq!(text(&old), "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n");
        let once = RequestParts { keeps: false, ..parts.clone() };
        assert!(text(&once).contains("Connection: close"));
        let post = RequestParts { method: "POST", body: Some(b"abc"), ..parts.clone() };
        assert!(text(&post).ends_with("Content-Length: 3\r\n\r\nabc"));
        assert_eq!(RequestParts { length: 75, ..parts }.bytes().len(), 75);
    }

    fn answered(pipeline: u32, expected: &[u8], replies: &str) -> Result<Progress, Bad> {
        let expected = Expected::Bytes(expected.into());
        let mut session = HttpSession::new(b"GET / HTTP/1.1\r\n\r\n".as_slice().into(), pipeline, expected);
        session.request(&mut Vec::new());
        session.response(replies.as_bytes())
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";

    #[test]
    fn replies_are_compared_and_counted() {
        assert_eq!(answered(1, b"abc", OK), Ok(Progress::Complete { consumed: OK.len() }));
        assert_eq!(answered(2, b"abc", &OK.repeat(2)), Ok(Progress::Complete { consumed: 2 * OK.len() }));
        assert_eq!(answered(2, b"abc", OK), Ok(Progress::More { consumed: OK.len() }));
        assert_eq!(answered(1, b"abd", OK).unwrap_err().kind, "wrong body");
        assert_eq!(answered(1, b"abcd", OK).unwrap_err().kind, "wrong body");
        assert_eq!(answered(1, b"ab", OK).unwrap_err().kind, "wrong body");
    }

    /// A server whose first connection is the look of [`OneShot::several`], and which breaks its first reply off.
    #[test]
    fn a_reply_that_broke_off_is_not_counted_into_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            for reply in [&OK[..OK.len() - 1], OK] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        let request: Arc<[u8]> = b"GET / HTTP/1.1\r\n\r\n".as_slice().into();
        let expected = Expected::Bytes(b"abc".as_slice().into());
        let job = OneShot::several(1, &endpoint, &request, &expected).unwrap();
        let Job::Callers { mut callers, .. } = job else { unreachable!("callers were asked for") };
        let caller = &mut callers[0];
        assert_ne!(caller.call().unwrap_err().kind, "wrong body");
        assert_eq!(caller.call(), Ok(()));
        server.join().unwrap();
    }

    #[test]
    fn refusals_are_no_wrong_bodies_and_a_last_reply_no_failure() {
        let gone = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(
            answered(1, b"abc", gone),
            Ok(Progress::Rejected { consumed: gone.len(), kind: "HTTP 502" })
        );
        let both = format!("{gone}{OK}");
        assert_eq!(
            answered(2, b"abc", &both),
            Ok(Progress::Rejected { consumed: both.len(), kind: "HTTP 502" })
        );
        let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(answered(1, b"abc", last), Ok(Progress::Last { consumed: last.len(), rejected: None }));
        assert!(answered(2, b"abc", last).is_err());
        assert_eq!(
            answered(1, b"abc", "HTTP/1.1 200 OK\r\n\r\nab").unwrap_err().kind,
            "body without a length"
        );
    }
}
