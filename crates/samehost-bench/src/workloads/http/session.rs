//! An HTTP/1 session: repeats the same request, alone or in a pipeline, reads replies to their end and
//! compares them. Pure: no I/O, no clock.

use std::sync::Arc;

use super::reply::{Got, Head, ReplyReader, refusal};
use crate::engine::session::{Bad, Progress, Session};

/// The expected body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// Any: the server's replies differ from one another.
    Anything,
}

/// Compares bodies with the expected one as they arrive.
#[derive(Debug)]
pub(super) struct BodyCheck {
    expected: Expected,
    seen: usize,
}

impl BodyCheck {
    pub(super) fn new(expected: Expected) -> Self {
        BodyCheck { expected, seen: 0 }
    }

    /// More of the body of a reply with this status. The body of a refusal is not compared.
    #[inline]
    pub(super) fn more(&mut self, status: u16, bytes: &[u8]) -> Result<(), Bad> {
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

    /// The body is complete: returns the kind of refusal, if any.
    pub(super) fn whole(&mut self, head: &Head) -> Result<Option<&'static str>, Bad> {
        let seen = std::mem::take(&mut self.seen);
        let rejected = refusal(head.status);
        match &self.expected {
            Expected::Bytes(expected) if rejected.is_none() && seen != expected.len() => {
                Err(Bad::new("wrong body", format!("{seen} bytes instead of {}", expected.len())))
            }
            _ => Ok(rejected),
        }
    }
}

/// Session on one connection.
#[derive(Debug)]
pub(crate) struct HttpSession {
    request: Arc<[u8]>,
    pipeline: u32,
    reader: ReplyReader,
    check: BodyCheck,
    /// Replies received in the current exchange.
    replies: u32,
    /// Kind of the last refusal among them.
    rejected: Option<&'static str>,
}

impl HttpSession {
    /// `request` is sent `pipeline` times at once.
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
                    if let Some(kind) = self.check.whole(&head)? {
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
