//! Our client of the rpc workload: a session of the JSON codec of Go's net/rpc.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Deserializer, Value};

use crate::engine::session::{Bad, Progress, Session};

/// A request up to its number, which is at its end, and a reply after its number, which is at its beginning; shared by
/// all connections of a trial.
#[derive(Clone, Debug)]
pub(super) struct JsonAsked {
    request: Arc<[u8]>,
    reply: Arc<[u8]>,
    /// Bytes of the reply's beginning that determine its kind: an error has others there.
    head: usize,
}

impl JsonAsked {
    /// `payload` must be text that JSON does not escape.
    pub(super) fn new(payload: &[u8]) -> Self {
        let head: &[u8] = b",\"result\":{\"payload\":\"";
        let request: [&[u8]; 3] =
            [b"{\"method\":\"Echo.Call\",\"params\":[{\"payload\":\"", payload, b"\"}],\"id\":"];
        JsonAsked {
            request: request.concat().into(),
            reply: [head, payload, b"\"},\"error\":null}\n"].concat().into(),
            head: head.len(),
        }
    }
}

/// Session of net/rpc's JSON codec (Go's net/rpc/jsonrpc: JSON-RPC 1.0 messages in sequence without framing). A reply is
/// known byte for byte except for its number, which counts up; only one that differs is parsed.
#[derive(Debug)]
pub(super) struct JsonSession {
    asked: JsonAsked,
    number: u64,
    /// Beginning of the reply: `{"id":` and the number.
    beginning: Vec<u8>,
    /// Bytes of the current reply that were compared and consumed; the head is consumed as a whole.
    received: usize,
}

impl JsonSession {
    pub(super) fn new(asked: JsonAsked) -> Self {
        JsonSession { asked, number: 0, beginning: Vec::with_capacity(32), received: 0 }
    }

    /// Length of the part that is compared before anything is consumed: number and kind of the reply.
    fn head(&self) -> usize {
        self.beginning.len() + self.asked.head
    }

    /// Whether these are the reply's bytes from `received` on, as far as they go.
    fn is_right(&self, input: &[u8]) -> bool {
        let (beginning, reply) = (self.beginning.as_slice(), &self.asked.reply);
        if self.received >= beginning.len() {
            let rest = &reply[self.received - beginning.len()..];
            let length = input.len().min(rest.len());
            return input[..length] == rest[..length];
        }
        // The beginning is never consumed alone.
        let length = input.len().min(beginning.len());
        let after = &input[length..];
        let rest = after.len().min(reply.len());
        input[..length] == beginning[..length] && after[..rest] == reply[..rest]
    }

    /// Parses a reply other than the one that must come: an error of the server leaves the connection usable.
    #[cold]
    fn other(&self, input: &[u8]) -> Result<Progress, Bad> {
        let mut values = Deserializer::from_slice(input).into_iter::<Value>();
        let reply = match values.next() {
            None => return Ok(Progress::More { consumed: 0 }),
            Some(Err(error)) if error.is_eof() => return Ok(Progress::More { consumed: 0 }),
            Some(Err(error)) => return Err(Bad::malformed(error.to_string())),
            Some(Ok(reply)) => reply,
        };
        let end = values.byte_offset();
        let consumed = match input.get(end) {
            None => return Ok(Progress::More { consumed: 0 }),
            Some(b'\n') => end + 1,
            Some(_) => return Err(Bad::malformed("no end of line after a reply")),
        };
        if reply.get("id").and_then(Value::as_u64) != Some(self.number) {
            return Err(Bad::new("wrong number", "a reply to another request"));
        }
        match reply.get("error") {
            Some(error) if !error.is_null() => Ok(Progress::Rejected { consumed, kind: "server error" }),
            _ => Err(Bad::new("wrong reply", "the reply differs from what was asked for")),
        }
    }
}

impl Session for JsonSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        self.received = 0;
        self.beginning.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(self.beginning, "{{\"id\":{}", self.number);
        out.extend_from_slice(&self.asked.request);
        let _ = writeln!(out, "{}}}", self.number);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        if !self.is_right(input) {
            let head = &input[..input.len().min(self.head())];
            return if self.received == 0 && !self.is_right(head) {
                self.other(input)
            } else {
                Err(Bad::new("wrong reply", "the payload differs from what was sent"))
            };
        }
        let left = self.beginning.len() + self.asked.reply.len() - self.received;
        if input.len() >= left {
            self.received = 0;
            return Ok(Progress::Complete { consumed: left });
        }
        if self.received == 0 && input.len() < self.head() {
            return Ok(Progress::More { consumed: 0 });
        }
        self.received += input.len();
        Ok(Progress::More { consumed: input.len() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::session::in_any_pieces;

    fn session(payload: &[u8]) -> JsonSession {
        let mut session = JsonSession::new(JsonAsked::new(payload));
        session.request(&mut Vec::new());
        session
    }

    const RIGHT: &[u8] = b"{\"id\":1,\"result\":{\"payload\":\"abc\"},\"error\":null}\n";

    #[test]
    fn requests_are_numbered_json() {
        let mut session = JsonSession::new(JsonAsked::new(b"abc"));
        for number in 1..=2 {
            let mut out = Vec::new();
            session.request(&mut out);
            assert!(out.ends_with(b"}\n"));
            let request: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(request["id"], number);
            assert_eq!(request["method"], "Echo.Call");
            assert_eq!(request["params"][0]["payload"], "abc");
        }
    }

    #[test]
    fn a_right_reply_is_complete_and_the_next_has_the_next_number() {
        let mut session = session(b"abc");
        let complete = Ok(Progress::Complete { consumed: RIGHT.len() });
        assert_eq!(session.response(RIGHT), complete);
        session.request(&mut Vec::new());
        assert_eq!(session.response(RIGHT).unwrap_err().kind, "wrong number");
        session.request(&mut Vec::new());
        let third = String::from_utf8(RIGHT.to_vec()).unwrap().replace(":1,", ":3,");
        assert_eq!(session.response(third.as_bytes()), complete);
    }

    #[test]
    fn a_refusal_is_told_apart_from_wrong_bytes() {
        fn kind(reply: &[u8]) -> &'static str {
            session(b"abc").response(reply).unwrap_err().kind
        }
        let refusal = b"{\"id\":1,\"result\":null,\"error\":\"rpc: can't find service Echo.Call\"}\n";
        let rejected = Ok(Progress::Rejected { consumed: refusal.len(), kind: "server error" });
        assert_eq!(session(b"abc").response(refusal), rejected);
        assert_eq!(session(b"abc").response(&refusal[..30]), Ok(Progress::More { consumed: 0 }));
        let unended = &refusal[..refusal.len() - 1];
        assert_eq!(session(b"abc").response(unended), Ok(Progress::More { consumed: 0 }));
        assert_eq!(kind(b"{\"id\":1,\"result\":{\"payload\":\"abd\"},\"error\":null}\n"), "wrong reply");
        assert_eq!(kind(b"{\"id\":1,\"result\":{},\"error\":null}\n"), "wrong reply");
        assert_eq!(kind(b"HTTP/1.1 400 Bad Request\r\n"), "malformed reply");
    }

    proptest! {
        #[test]
        fn replies_in_any_pieces_are_complete_once(
            size in 1_usize..300,
            calls in 1_u64..12,
            pieces in proptest::collection::vec(1_usize..90, 1..40),
        ) {
            let payload = super::super::payload(size);
            let mut session = JsonSession::new(JsonAsked::new(&payload));
            for number in 1..=calls {
                session.request(&mut Vec::new());
                let head = format!("{{\"id\":{number},\"result\":{{\"payload\":\"");
                let all = [head.as_bytes(), &payload, b"\"},\"error\":null}\n"].concat();
                in_any_pieces(&mut session, &all, &pieces);
            }
        }

        #[test]
        fn one_wrong_byte_is_seen(size in 1_usize..100, at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
            let payload = super::super::payload(size);
            let mut reply = [b"{\"id\":1,\"result\":{\"payload\":\"".as_slice(), &payload, b"\"},\"error\":null}\n"].concat();
            let at = at.index(reply.len());
            reply[at] ^= 1;
            let mut session = session(&payload);
            let cut = cut.index(reply.len());
            let mut consumed = 0;
            for end in [cut, reply.len()] {
                match session.response(&reply[consumed..end]) {
                    Ok(Progress::More { consumed: more }) => consumed += more,
                    Ok(Progress::Complete { .. }) => prop_assert!(false, "taken for right"),
                    _ => return Ok(()),
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..60) {
            let hostile = [&RIGHT[..cut.min(RIGHT.len())], &bytes].concat();
            for input in [bytes.as_slice(), &hostile] {
                let mut session = session(b"abc");
                if let Ok(Progress::More { consumed }) = session.response(input) {
                    let _ = session.response(&input[consumed..]);
                }
            }
        }
    }
}
