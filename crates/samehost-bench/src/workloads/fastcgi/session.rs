//! FastCGI's sessions. One repeats a request, reads replies to their end and verifies them: pure, without I/O or clock.
//! The other has a connection for each request, as nginx does by default: connect, send, read the whole reply, close.

use std::io::{Read, Write};
use std::sync::Arc;

use samehost_model::Endpoint;
use samehost_transport::{ConnectOptions, connect};

use super::record::{Piece, RecordReader};
use crate::engine::session::{Bad, Caller, Progress, Session};
use crate::workloads::http::{BodyCheck, Expected};
use crate::workloads::requests::connect_failure;

const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_COMPLAINT_BYTES: usize = 2048;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// Status code; 200 if the script set none (RFC 3875, section 6.3.3).
    pub(super) status: u16,
    /// The script's stderr, or the beginning of it.
    pub(super) complaint: String,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    records: RecordReader,
    /// The fields of the script's output, as far as they have arrived; they may come in several records.
    head: Vec<u8>,
    status: Option<u16>,
    complaint: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct FastCgiSession {
    request: Arc<[u8]>,
    check: BodyCheck,
    reading: Reading,
}

impl FastCgiSession {
    pub(super) fn new(request: Arc<[u8]>, expected: Expected) -> Self {
        FastCgiSession { request, check: BodyCheck::new(expected), reading: Reading::default() }
    }
}

impl Session for FastCgiSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.reading.begin();
        self.check.begin();
        out.extend_from_slice(&self.request);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let check = &mut self.check;
        let (reply, consumed) = self.reading.take(input, |status, part| check.more(status, part))?;
        let Some(reply) = reply else { return Ok(Progress::More { consumed }) };
        Ok(match self.check.whole(reply.status)? {
            Some(kind) => Progress::Rejected { consumed, kind },
            None => Progress::Complete { consumed },
        })
    }
}

impl Reading {
    /// Prepares for the next reply; keeps what was allocated.
    fn begin(&mut self) {
        self.records = RecordReader::default();
        self.head.clear();
        self.status = None;
        self.complaint.clear();
    }

    /// Parses more bytes. Passes those of a body to `body`, with the status. Returns the reply once it
    /// is complete, and the bytes consumed.
    ///
    /// # Errors
    /// When the bytes are not a reply, or the server refused the request or the script failed, or `body` returns an error.
    fn take(
        &mut self,
        input: &[u8],
        mut body: impl FnMut(u16, &[u8]) -> Result<(), Bad>,
    ) -> Result<(Option<Reply>, usize), Bad> {
        let mut at = 0;
        loop {
            let (piece, used) = self.records.next(&input[at..])?;
            at += used;
            match piece {
                None => return Ok((None, at)),
                Some(Piece::Output(mut part)) => {
                    if self.status.is_none() {
                        part = self.take_head(part)?;
                    }
                    if let Some(status) = self.status {
                        body(status, part)?;
                    }
                }
                Some(Piece::Complaint(part)) => {
                    let room = MAX_COMPLAINT_BYTES.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&part[..part.len().min(room)]);
                }
                Some(Piece::End { protocol: 0, exit: 0 }) => {
                    let status = self.status.ok_or_else(|| Bad::malformed("it ends inside its head"))?;
                    let complaint = String::from_utf8_lossy(&self.complaint).trim().to_owned();
                    return Ok((Some(Reply { status, complaint }), at));
                }
                Some(Piece::End { protocol, exit }) => {
                    let detail = format!("protocol status {protocol}, exit status {exit}");
                    return Err(Bad::new(protocol_refusal(protocol), detail));
                }
            }
        }
    }

    /// Takes the fields of a script's output until the empty line; returns what follows them.
    fn take_head<'a>(&mut self, part: &'a [u8]) -> Result<&'a [u8], Bad> {
        let before = self.head.len();
        self.head.extend_from_slice(part);
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if self.head.len() > MAX_HEAD_BYTES {
                Err(Bad::malformed(format!("a head of more than {MAX_HEAD_BYTES} bytes")))
            } else {
                Ok(&[])
            };
        };
        self.status = Some(status(&self.head[..end])?);
        Ok(&part[end + 4 - before..])
    }
}

/// Status in the fields of a script's output; 200 if they contain none (RFC 3875, section 6.3.3).
fn status(head: &[u8]) -> Result<u16, Bad> {
    for line in head.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_at_checked(7) else { continue };
        if name.eq_ignore_ascii_case(b"Status:") {
            let code = value.trim_ascii().first_chunk::<3>().and_then(|code| std::str::from_utf8(code).ok());
            let code = code.and_then(|code| code.parse().ok());
            return code.ok_or_else(|| Bad::malformed("a Status that is not a number"));
        }
    }
    Ok(200)
}

/// Why the server refused a request (section 5.5).
fn protocol_refusal(protocol: u8) -> &'static str {
    match protocol {
        0 => "script failed",
        1 => "FCGI_CANT_MPX_CONN",
        2 => "FCGI_OVERLOADED",
        3 => "FCGI_UNKNOWN_ROLE",
        _ => "malformed reply",
    }
}

type WholeReply = ((Reply, Vec<u8>), usize);

/// Reads one reply outside the hot path: the reply, its body and the bytes consumed, or `None` while it is incomplete.
pub(super) fn whole_reply(input: &[u8]) -> Result<Option<WholeReply>, Bad> {
    let mut body = Vec::new();
    let (reply, consumed) = Reading::default().take(input, |_, part| {
        body.extend_from_slice(part);
        Ok(())
    })?;
    Ok(reply.map(|reply| ((reply, body), consumed)))
}

const BUFFER_BYTES: usize = 64 * 1024;

/// Opens a new connection for each request, as nginx does by default. As connecting is a part of what is measured, it has
/// a thread of its own instead of a place in the engine's epoll loop.
pub(super) struct PerRequest {
    endpoint: Endpoint,
    options: ConnectOptions,
    session: FastCgiSession,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl PerRequest {
    pub(super) fn new(endpoint: &Endpoint, session: FastCgiSession) -> Self {
        PerRequest {
            endpoint: endpoint.clone(),
            options: ConnectOptions::default(),
            session,
            out: Vec::with_capacity(1024),
            input: vec![0; BUFFER_BYTES],
        }
    }
}

impl Caller for PerRequest {
    fn call(&mut self) -> Result<(), Bad> {
        let mut stream = connect(&self.endpoint, &self.options)
            .map_err(|error| Bad::new(connect_failure(&error), error.to_string()))?;
        self.out.clear();
        self.session.request(&mut self.out);
        stream.write_all(&self.out).map_err(|error| Bad::new("write failed", error.to_string()))?;
        let mut filled = 0;
        loop {
            let ready = stream.wait_readable(None);
            ready.map_err(|error| Bad::new("poll failed", error.to_string()))?;
            match stream.read(&mut self.input[filled..]) {
                Ok(0) => return Err(Bad::new("connection closed", "before the end of the reply")),
                Ok(read) => filled += read,
                Err(error) => return Err(Bad::new("read failed", error.to_string())),
            }
            match self.session.response(&self.input[..filled])? {
                Progress::More { consumed } => {
                    self.input.copy_within(consumed..filled, 0);
                    filled -= consumed;
                }
                Progress::Complete { consumed } if consumed == filled => return Ok(()),
                Progress::Rejected { kind, .. } => return Err(Bad::new(kind, "the server's answer")),
                Progress::Complete { .. } | Progress::Last { .. } => {
                    return Err(Bad::new("unasked bytes", "behind the end of the reply"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::super::record::tests::reply;
    use super::*;
    use crate::engine::session::in_any_pieces;

    const DONE: [u8; 8] = [0; 8];

    fn answered(expected: &[u8], bytes: &[u8]) -> Result<Progress, Bad> {
        let mut session = FastCgiSession::new(b"ask".as_slice().into(), Expected::Bytes(expected.into()));
        let mut out = Vec::new();
        session.request(&mut out);
        assert_eq!(out, b"ask");
        session.response(bytes)
    }

    #[test]
    fn bodies_are_compared_and_statuses_read() {
        let ok = reply(b"Content-type: text/html\r\n\r\nhello", b"", 1000, DONE);
        assert_eq!(answered(b"hello", &ok), Ok(Progress::Complete { consumed: ok.len() }));
        assert_eq!(answered(b"hullo", &ok).unwrap_err().kind, "wrong body");
        assert_eq!(answered(b"hello!", &ok).unwrap_err().kind, "wrong body");
        assert_eq!(answered(b"hell", &ok).unwrap_err().kind, "wrong body");
        let missing = reply(b"Status: 404 Not Found\r\nA: b\r\n\r\nFile not found.\n", b"no", 1000, DONE);
        assert_eq!(
            answered(b"hello", &missing),
            Ok(Progress::Rejected { consumed: missing.len(), kind: "HTTP 404" })
        );
        let failed = reply(b"status:500\r\n\r\n", b"PHP Fatal error: no", 9, DONE);
        assert_eq!(
            answered(b"hello", &failed),
            Ok(Progress::Rejected { consumed: failed.len(), kind: "HTTP 500" })
        );
        let ((said, body), used) = whole_reply(&failed).unwrap().unwrap();
        assert_eq!((said.status, said.complaint.as_str(), used), (500, "PHP Fatal error: no", failed.len()));
        assert!(body.is_empty());
    }

    #[test]
    fn a_server_that_does_not_take_the_request_is_no_success() {
        for (end, kind) in [
            ([0, 0, 0, 0, 2, 0, 0, 0], "FCGI_OVERLOADED"),
            ([0, 0, 0, 0, 1, 0, 0, 0], "FCGI_CANT_MPX_CONN"),
            ([0, 0, 0, 0, 3, 0, 0, 0], "FCGI_UNKNOWN_ROLE"),
            ([0, 0, 0, 255, 0, 0, 0, 0], "script failed"),
        ] {
            assert_eq!(answered(b"", &reply(b"A: b\r\n\r\n", b"", 99, end)).unwrap_err().kind, kind);
        }
        let headless = reply(b"no head at all", b"", 99, DONE);
        assert_eq!(answered(b"", &headless).unwrap_err().kind, "malformed reply");
        let odd = reply(b"Status: ok\r\n\r\n", b"", 99, DONE);
        assert_eq!(answered(b"", &odd).unwrap_err().kind, "malformed reply");
    }

    proptest! {
        #[test]
        fn a_right_reply_is_right_in_any_pieces(
            body in proptest::collection::vec(any::<u8>(), 0..300),
            each in 1_usize..120,
            pieces in proptest::collection::vec(1_usize..50, 1..30),
        ) {
            let output = [b"X-Powered-By: PHP\r\nContent-type: text/plain\r\n\r\n".as_slice(), &body].concat();
            let bytes = reply(&output, b"", each, DONE);
            let mut session =
                FastCgiSession::new(b"ask".as_slice().into(), Expected::Bytes(body.as_slice().into()));
            for _ in 0..2 {
                session.request(&mut Vec::new());
                in_any_pieces(&mut session, &bytes, &pieces);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![reply(b"Content-type: text/plain\r\n\r\nok", b"", 9, DONE)])) {
            let _ = answered(b"hello", &bytes);
            let _ = answered(b"hello", &reply(&bytes, &bytes, 7, DONE));
        }
    }
}
