//! A Redis session: some commands at once, and as many replies of which every byte is known. Pure: no I/O, no clock.

use std::io::Write;
use std::sync::Arc;

use samehost_login::redis::{self, Reply};

use super::super::requests::{Awaited, Seen};
use crate::engine::session::{Bad, Progress, Session};

/// A request and its replies, shared by all connections of a trial; of counters, each has its own.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// All commands of one request, serialised once: sending it is a copy.
    request: Arc<[u8]>,
    /// Reply to each command; `None` for a counter, whose replies count up.
    reply: Option<Awaited>,
    pipeline: u32,
}

impl Exchange {
    /// `pipeline` times a command, and the reply to each: head, body and end.
    pub(super) fn new(command: &[&[u8]], pipeline: u32, reply: (&[u8], &[u8], &[u8])) -> Self {
        Exchange {
            reply: Some(Awaited::new(reply.0, reply.1, reply.2)),
            ..Exchange::counting(command, pipeline)
        }
    }

    /// `pipeline` times a command whose replies are the numbers from 1 on.
    pub(super) fn counting(command: &[&[u8]], pipeline: u32) -> Self {
        let mut once = Vec::new();
        redis::command(command, &mut once);
        Exchange { request: once.repeat(pipeline as usize).into(), reply: None, pipeline }
    }
}

#[derive(Debug)]
pub(super) struct RedisSession {
    exchange: Exchange,
    left: u32,
    received: usize,
    refused: Option<&'static str>,
    counter: Counter,
}

/// Knows the reply to each INCR beforehand, as only its connection counts up its key. If another client does too,
/// every later number is wrong, and the connection is given up.
#[derive(Debug, Default)]
struct Counter {
    last: u64,
    /// The next number as the server writes it; keeps its allocation.
    text: Vec<u8>,
}

impl Counter {
    fn next(&mut self) -> &[u8] {
        self.text.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(self.text, ":{}\r\n", self.last + 1);
        &self.text
    }

    fn look(&mut self, input: &[u8]) -> Seen {
        let awaited = self.next();
        if input.len() >= awaited.len() && input.starts_with(awaited) {
            let consumed = awaited.len();
            self.last += 1;
            Seen::Whole { consumed }
        } else if awaited.starts_with(input) {
            Seen::Partly { consumed: 0 }
        } else {
            Seen::OtherHead
        }
    }
}

impl RedisSession {
    /// The key of a counter must be 0 in the server: the first number that comes has to be 1.
    pub(super) fn new(exchange: Exchange) -> Self {
        RedisSession { exchange, left: 0, received: 0, refused: None, counter: Counter::default() }
    }

    #[inline]
    fn look(&mut self, input: &[u8]) -> Seen {
        match &self.exchange.reply {
            Some(awaited) => awaited.look(&mut self.received, input),
            None => self.counter.look(input),
        }
    }

    /// Parses a reply other than the one that must come. A refusal leaves the connection usable, as the replies to the
    /// other commands follow. Returns the reply's length, or `None` while it is incomplete.
    #[cold]
    fn other(&mut self, input: &[u8]) -> Result<Option<usize>, Bad> {
        let parsed = redis::parse(input).map_err(|error| Bad::malformed(error.to_string()))?;
        let Some((reply, length)) = parsed else { return Ok(None) };
        let kind = match &reply {
            Reply::Error(text) => error_kind(text),
            Reply::Bulk(None) => "missing value",
            _ if self.exchange.reply.is_none() => return Err(Bad::new("wrong number", reply.to_string())),
            _ => "wrong reply",
        };
        self.refused.get_or_insert(kind);
        Ok(Some(length))
    }
}

impl Session for RedisSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.left = self.exchange.pipeline;
        self.received = 0;
        self.refused = None;
        out.extend_from_slice(&self.exchange.request);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let mut consumed = 0;
        while self.left > 0 {
            let rest = &input[consumed..];
            if rest.is_empty() {
                return Ok(Progress::More { consumed });
            }
            match self.look(rest) {
                Seen::Whole { consumed: more } => consumed += more,
                Seen::Partly { consumed: more } => return Ok(Progress::More { consumed: consumed + more }),
                Seen::WrongBody => return Err(Bad::new("wrong value", "a value differs from what was set")),
                Seen::OtherHead => match self.other(rest)? {
                    Some(more) => consumed += more,
                    None => return Ok(Progress::More { consumed }),
                },
            }
            self.left -= 1;
        }
        Ok(match self.refused.take() {
            None => Progress::Complete { consumed },
            Some(kind) => Progress::Rejected { consumed, kind },
        })
    }

    fn operations_per_exchange(&self) -> u64 {
        u64::from(self.exchange.pipeline)
    }
}

/// Kind of an error reply, for the error counts: its first word if Redis documents it.
fn error_kind(text: &str) -> &'static str {
    const KNOWN: &[&str] = &[
        "ERR", "OOM", "LOADING", "NOAUTH", "NOPERM", "READONLY", "MISCONF", "WRONGTYPE", "BUSY",
        "MASTERDOWN", "NOREPLICAS", "MOVED", "ASK", "CLUSTERDOWN", "EXECABORT",
    ];
    let word = text.split(' ').next().unwrap_or_default();
    KNOWN.iter().copied().find(|known| *known == word).unwrap_or("other error reply")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::session::in_any_pieces;
    use proptest::prelude::*;
    use samehost_testing::bent;

    fn get(pipeline: u32) -> RedisSession {
        let exchange = Exchange::new(&[b"GET", b"k"], pipeline, (b"$3\r\n", b"abc", b"\r\n"));
        let mut session = RedisSession::new(exchange);
        let mut out = Vec::new();
        session.request(&mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(pipeline as usize));
        session
    }

    #[test]
    fn a_right_reply_is_complete_and_a_short_one_is_not() {
        assert_eq!(get(1).response(b"$3\r\nabc\r\n"), Ok(Progress::Complete { consumed: 9 }));
        assert_eq!(get(1).response(b"$3\r\na"), Ok(Progress::More { consumed: 5 }));
        assert_eq!(get(1).response(b"$"), Ok(Progress::More { consumed: 0 }));
        assert_eq!(get(2).response(b"$3\r\nabc\r\n"), Ok(Progress::More { consumed: 9 }));
        assert_eq!(get(1).response(b"$3\r\nabc\r\nx"), Ok(Progress::Complete { consumed: 9 }), "`x` is left");
    }

    #[test]
    fn refusals_are_told_apart_from_wrong_bytes() {
        fn rejected(consumed: usize, kind: &'static str) -> Result<Progress, Bad> {
            Ok(Progress::Rejected { consumed, kind })
        }
        assert_eq!(get(1).response(b"$-1\r\n"), rejected(5, "missing value"));
        assert_eq!(get(1).response(b"-NOAUTH Authentication required.\r\n"), rejected(34, "NOAUTH"));
        assert_eq!(get(1).response(b"-Never heard of\r\n"), rejected(17, "other error reply"));
        assert_eq!(get(1).response(b"-OO"), Ok(Progress::More { consumed: 0 }));
        assert_eq!(get(1).response(b"$4\r\nabcd\r\n"), rejected(10, "wrong reply"));
        assert_eq!(get(1).response(b"$3\r\nabx\r\n").unwrap_err().kind, "wrong value");
        assert_eq!(get(1).response(b"HTTP/1.1").unwrap_err().kind, "malformed reply");
    }

    #[test]
    fn one_refusal_spoils_the_pipeline_and_all_of_it_is_read() {
        let mut session = get(3);
        assert_eq!(session.operations_per_exchange(), 3);
        let replies = b"$3\r\nabc\r\n-OOM full\r\n$3\r\nabc\r\n";
        assert_eq!(
            session.response(replies),
            Ok(Progress::Rejected { consumed: replies.len(), kind: "OOM" })
        );
        session.request(&mut Vec::new());
        assert_eq!(session.response(&b"$3\r\nabc\r\n".repeat(3)), Ok(Progress::Complete { consumed: 27 }));
    }

    #[test]
    fn a_counter_counts() {
        let mut session = RedisSession::new(Exchange::counting(&[b"INCR", b"k"], 2));
        session.request(&mut Vec::new());
        assert_eq!(session.response(b":1\r\n:"), Ok(Progress::More { consumed: 4 }));
        assert_eq!(session.response(b":2\r\n"), Ok(Progress::Complete { consumed: 4 }));
        session.request(&mut Vec::new());
        let refused = session.response(b"-OOM full\r\n:3\r\n");
        assert_eq!(
            refused,
            Ok(Progress::Rejected { consumed: 15, kind: "OOM" }),
            "a refused INCR does not count"
        );
        session.request(&mut Vec::new());
        assert_eq!(session.response(b":5\r\n").unwrap_err().kind, "wrong number");
    }

    proptest! {
        #[test]
        fn replies_in_any_pieces_are_complete_once(
            pipeline in 1_u32..20,
            size in 0_usize..300,
            pieces in proptest::collection::vec(1_usize..90, 1..40),
        ) {
            let value = crate::workloads::requests::value(size);
            let head = format!("${size}\r\n");
            let exchange = Exchange::new(&[b"GET", b"k"], pipeline, (head.as_bytes(), &value, b"\r\n"));
            let mut session = RedisSession::new(exchange);
            session.request(&mut Vec::new());
            let all = [head.as_bytes(), &value, b"\r\n"].concat().repeat(pipeline as usize);
            in_any_pieces(&mut session, &all, &pieces);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![b"$3\r\nabc\r\n$3\r\nabc\r\n".to_vec(), b"-OOM full\r\n:3\r\n".to_vec()]), pipeline in 1_u32..4) {
            let _ = get(pipeline).response(&bytes);
        }
    }
}
