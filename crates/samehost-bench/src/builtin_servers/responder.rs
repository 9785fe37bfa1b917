//! Protocols of a server on one connection, without I/O: the same responder serves a connection in its own
//! thread, or a thousand with epoll. `echo` does the work that is asked for, and sends everything back. HTTP/1 reads a
//! complete request and replies with as many bytes as its path asks for; it costs next to nothing itself, so that a
//! measurement shows the transport.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Steps of work per message in this process; unset for none.
static STEPS: OnceLock<u64> = OnceLock::new();

/// Additional steps for a message that ends with [`MARK`].
static STEPS_MORE: OnceLock<u64> = OnceLock::new();

/// Last byte of a message that gets additional work: a known difference, for tests of the method.
pub(crate) const MARK: u8 = 0xff;

/// Sets the work per message, and the additional work of a marked message as a fraction of it. Called before
/// any connection is served.
pub(super) fn set_work(time: Duration, longer: f64) {
    // The first call decides.
    let steps = *STEPS.get_or_init(|| steps(time, memory(longer > 0.0)));
    let _ = STEPS_MORE.set((steps as f64 * longer).round() as u64);
}

/// With a known difference, connections share memory, so that they differ in nothing else.
fn memory(is_known_difference: bool) -> Memory {
    if is_known_difference { Memory::shared() } else { Memory::default() }
}

pub(super) trait Responder: Default {
    /// Returns the reply to the received bytes, possibly empty, and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

#[derive(Debug)]
pub(super) struct Echo {
    memory: Memory,
}

impl Default for Echo {
    fn default() -> Self {
        Echo { memory: memory(STEPS_MORE.get().is_some_and(|more| *more > 0)) }
    }
}

impl Responder for Echo {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        let more = if input.last() == Some(&MARK) { STEPS_MORE.get() } else { None };
        self.memory.walk(STEPS.get().copied().unwrap_or(0) + more.copied().unwrap_or(0));
        (input, true)
    }
}

// Simulated work of a server: as many steps as take the given CPU time on an undisturbed machine. It counts
// steps, not time: over a transport that leaves less of the CPU caches to the server the same work takes
// longer, as a real server's does, and that is part of the transport's cost.

/// Size of the memory that a connection's work reads and writes, in words of 8 bytes: 256 KiB, more than
/// a first-level cache. Work is a number of steps that depend on one another, not a length of time. The
/// kernel's TCP code evicts the program's data from the caches, and a real server's own code is slower
/// for it (MariaDB: 12.1 against 9.9 µs of user time a query). Work by the clock does not feel that, and
/// saw a third less of what a Unix socket saves (docs/method.md §14).
const WORDS: usize = 32 * 1024;
/// Steps timed at once to calibrate.
const MEASURED_STEPS: u64 = 200_000;
/// Number of calibrations; the fastest is the undisturbed one.
const TRIES: u32 = 8;

/// Number of steps that take this CPU time on this machine.
pub(super) fn steps(work: Duration, mut memory: Memory) -> u64 {
    if work.is_zero() {
        return 0;
    }
    let tries = (0..TRIES).map(|_| {
        let begun = Instant::now();
        memory.walk(MEASURED_STEPS);
        begun.elapsed()
    });
    let fastest = tries.min().unwrap_or_default().as_secs_f64().max(f64::MIN_POSITIVE);
    (MEASURED_STEPS as f64 * work.as_secs_f64() / fastest).round() as u64
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    words: Vec<u64>,
    is_shared: bool,
    at: u64,
}

impl Memory {
    /// Read-only memory that all connections share: no connection is slower because of where its pages are in
    /// a cache.
    pub(super) fn shared() -> Self {
        Memory { is_shared: true, ..Memory::default() }
    }

    /// Makes steps. Each reads a word whose position depends on the previous one, so that no step can be
    /// executed ahead.
    pub(super) fn walk(&mut self, steps: u64) {
        if steps == 0 {
            return;
        }
        if self.is_shared {
            static SHARED: OnceLock<Vec<u64>> = OnceLock::new();
            let words = SHARED.get_or_init(words);
            for _ in 0..steps {
                let next = scattered(self.at);
                if let Some(word) = words.get(place(next)) {
                    self.at = next ^ word;
                }
            }
        } else {
            if self.words.is_empty() {
                self.words = words();
            }
            for _ in 0..steps {
                let next = scattered(self.at);
                if let Some(word) = self.words.get_mut(place(next)) {
                    *word ^= next;
                    self.at = *word;
                }
            }
        }
        std::hint::black_box(self.at);
    }
}

/// Knuth's multiplier for a linear congruential generator modulo 2^64 (MMIX).
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn place(number: u64) -> usize {
    (number >> 40) as usize % WORDS
}

fn words() -> Vec<u64> {
    (0..WORDS as u64).map(|number| scattered(scattered(number).rotate_left(32))).collect()
}

const DEFAULT_REPLY_BYTES: usize = 4096;
const MAX_REPLY_BYTES: usize = 64 << 20;
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_FIELDS: usize = 64;

/// Body of a reply of this size: letters that vary with the position.
pub(crate) fn body(size: usize) -> Vec<u8> {
    (0..size).map(|i| b'a' + (i % 23) as u8).collect()
}

#[derive(Debug, Default)]
pub(super) struct HttpResponder {
    head: Vec<u8>,
    /// Current request while bytes of its body are outstanding.
    awaited: Option<Request>,
    reply: Vec<u8>,
    /// The last reply to a valid request, ready to be sent again: size, whether it has a Connection field,
    /// and all its bytes.
    ready: Option<(usize, bool, Vec<u8>)>,
    known: Option<(Vec<u8>, Request)>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    body: u64,
    keeps: bool,
    /// Whether an HTTP/1.0 client needs `Connection: keep-alive` in the reply.
    says_keep: bool,
    /// Size of the reply, or the status of a refusal.
    answer: Result<usize, &'static str>,
}

impl Responder for HttpResponder {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        self.reply.clear();
        let mut rest = input;
        loop {
            let mut request = match self.awaited.take() {
                Some(request) => request,
                None => match self.take_head(&mut rest) {
                    Ok(Some(request)) => request,
                    Ok(None) => return (&self.reply, true),
                    Err(status) => {
                        self.refuse(status);
                        return (&self.reply, false);
                    }
                },
            };
            let length = request.body.min(rest.len() as u64);
            rest = &rest[length as usize..];
            request.body -= length;
            if request.body > 0 {
                self.awaited = Some(request);
                return (&self.reply, true);
            }
            match request.answer {
                Ok(size) => self.answer(size, request),
                Err(status) => {
                    self.refuse(status);
                    return (&self.reply, false);
                }
            }
            if !request.keeps {
                return (&self.reply, false);
            }
            if rest.is_empty() {
                return (&self.reply, true);
            }
        }
    }
}

impl HttpResponder {
    /// Parses the next request's head once it is complete, and removes it from `rest`.
    fn take_head(&mut self, rest: &mut &[u8]) -> Result<Option<Request>, &'static str> {
        if let Some((known, request)) = &self.known
            && self.head.is_empty()
            && rest.starts_with(known)
        {
            *rest = &rest[known.len()..];
            return Ok(Some(*request));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let before = self.head.len();
        self.head.extend_from_slice(rest);
        match parse(&self.head)? {
            Some((request, length)) => {
                *rest = &rest[length - before..];
                self.head.truncate(length);
                self.known = Some((std::mem::take(&mut self.head), request));
                Ok(Some(request))
            }
            None if self.head.len() > MAX_HEAD_BYTES => Err("431 Request Header Fields Too Large"),
            None => {
                *rest = &[];
                Ok(None)
            }
        }
    }

    fn answer(&mut self, size: usize, request: Request) {
        if !matches!(self.ready, Some((ready, says, _)) if ready == size && says == request.says_keep) {
            let connection = if request.says_keep { "Connection: keep-alive\r\n" } else { "" };
            let mut reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n{connection}\r\n"
            )
            .into_bytes();
            reply.extend_from_slice(&body(size));
            self.ready = Some((size, request.says_keep, reply));
        }
        if let Some((.., ready)) = &self.ready {
            self.reply.extend_from_slice(ready);
        }
    }

    fn refuse(&mut self, status: &str) {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.reply.extend_from_slice(text.as_bytes());
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("400 Bad Request"),
    };
    let new = request.version == Some(1);
    let (mut keeps, mut says_keep, mut body) = (new, false, 0);
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("connection") {
            keeps = if new {
                !field.value.eq_ignore_ascii_case(b"close")
            } else {
                field.value.eq_ignore_ascii_case(b"keep-alive")
            };
            says_keep = !new && keeps;
        } else if field.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).map_err(|_| "400 Bad Request")?;
            body = text.trim().parse().map_err(|_| "400 Bad Request")?;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("501 Not Implemented");
        }
    }
    let answer = match request.method {
        Some("GET" | "POST") => size_of(request.path.unwrap_or_default()),
        _ => Err("405 Method Not Allowed"),
    };
    Ok(Some((Request { body, keeps, says_keep, answer }, length)))
}

fn size_of(path: &str) -> Result<usize, &'static str> {
    match path.split('?').next() {
        Some("/") => Ok(DEFAULT_REPLY_BYTES),
        Some(path) => {
            let size = path.strip_prefix("/bytes/").and_then(|size| size.parse().ok());
            size.filter(|size| *size <= MAX_REPLY_BYTES).ok_or("404 Not Found")
        }
        None => Err("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use samehost_testing::bent;
    use std::collections::BTreeSet;

    #[test]
    fn no_work_takes_no_steps_and_no_memory() {
        assert_eq!(steps(Duration::ZERO, Memory::default()), 0);
        let mut memory = Memory::default();
        memory.walk(0);
        assert!(memory.words.is_empty(), "nothing is taken for no work");
        assert!(steps(Duration::from_millis(1), Memory::default()) > 0);
    }

    #[test]
    fn steps_go_all_over_the_memory() {
        for mut memory in [Memory::default(), Memory::shared()] {
            let mut places = BTreeSet::new();
            for _ in 0..4 * WORDS {
                memory.walk(1);
                places.insert(place(scattered(memory.at)));
            }
            // Of positions chosen at random, 1 in e^4 would be missed: 600.
            assert!(places.len() > WORDS - 1_000, "{} of {WORDS} places", places.len());
            assert_eq!(memory.words.is_empty(), memory.is_shared);
        }
    }

    fn replies(requests: &[u8], pieces: &[usize]) -> (String, bool) {
        let (mut responder, mut said, mut from) = (HttpResponder::default(), Vec::new(), 0);
        let mut pieces = pieces.iter().copied().cycle();
        while from < requests.len() {
            let to = (from + pieces.next().unwrap_or(1)).min(requests.len());
            let (reply, goes_on) = responder.respond(&requests[from..to]);
            said.extend_from_slice(reply);
            if !goes_on {
                return (String::from_utf8(said).unwrap(), false);
            }
            from = to;
        }
        (String::from_utf8(said).unwrap(), true)
    }

    #[test]
    fn requests_are_read_whole_and_answered_in_order() {
        let three = "GET /bytes/3 HTTP/1.1\r\nHost: x\r\n\r\n\
                     POST /bytes/1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\
                     GET /bytes/3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        for pieces in [&[1][..], &[13, 2], &[1000]] {
            let (said, goes_on) = replies(three.as_bytes(), pieces);
            assert_eq!(said.matches("200 OK").count(), 3, "{said}");
            assert_eq!(said.matches("\r\n\r\nabc").count(), 2);
            assert_eq!(said.matches("keep-alive").count(), 1, "only the old client needs the word");
            assert!(goes_on);
        }
        let (said, goes_on) = replies(b"GET / HTTP/1.0\r\n\r\n", &[5]);
        assert!(said.contains("Content-Length: 4096") && !goes_on);
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for (request, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("GET /bytes/99999999999 HTTP/1.1\r\n\r\n", "404"),
            ("DELETE / HTTP/1.1\r\n\r\n", "405"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            let (said, goes_on) = replies(request.as_bytes(), &[100]);
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")) && !goes_on, "{said}");
        }
        assert!(replies(&[b'G'; 20_000], &[1000]).0.starts_with("HTTP/1.1 431"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello".to_vec()])) {
            let mut responder = HttpResponder::default();
            let _ = responder.respond(&bytes);
            let _ = responder.respond(&bytes);
        }
    }
}
