//! Long streams, from one writer to one reader.
//!
//! A *bulk* transfer writes as many messages as the time allows. The clock stops when the receiver acknowledges the
//! last byte, not when the sender has filled a buffer. A round on the wire: a header of 16 bytes (payload length and
//! the receiver's read size, both u64 little endian), the payload, and 8 bytes back: the number of bytes received,
//! u64 little endian.
//!
//! A *whole* exchange is one request whose reply is a long stream, such as a dump of a table. Its clock runs from the
//! request to the last byte of the reply.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_transport::Stream;

use super::session::{Progress, Session};
use super::{Nanos, now};
use crate::error::BenchError;
use crate::machine::ThreadUse;

pub const HEADER: usize = 16;
pub const ACKNOWLEDGEMENT: usize = 8;

pub fn header(bytes: u64, read_size: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&bytes.to_le_bytes());
    header[8..].copy_from_slice(&read_size.to_le_bytes());
    header
}

/// Returns payload length and read size of a round.
pub fn parse_header(header: [u8; HEADER]) -> (u64, u64) {
    let [a @ .., _, _, _, _, _, _, _, _] = header;
    let [_, _, _, _, _, _, _, _, b @ ..] = header;
    (u64::from_le_bytes(a), u64::from_le_bytes(b))
}

/// Bytes of the first round of the warm-up: that takes a millisecond or two, and is at most 16 messages.
const FIRST_ROUND: u64 = 4 * 1024 * 1024;
#[derive(Debug)]
pub struct BulkTally {
    pub messages: u64,
    /// Of the payloads, written and acknowledged.
    pub bytes: u64,
    /// From the first write to the acknowledgement of the last byte.
    pub elapsed: Nanos,
}

#[derive(Debug)]
pub struct Writer {
    pub(super) stream: Stream,
    pub(super) endpoint: String,
    payload: Vec<u8>,
    /// Messages per nanosecond in the last round; `None` before the first.
    pace: Option<f64>,
}

impl Writer {
    pub fn new(stream: Stream, endpoint: String, size: u64) -> Self {
        let payload = vec![0x5a_u8; usize::try_from(size).unwrap_or(usize::MAX)];
        Writer { stream, endpoint, payload, pace: None }
    }

    /// Writes for about `length`, at the speed of the last round. The first call finds the speed in rounds
    /// that grow until one takes a fifth of `length`.
    ///
    /// # Errors
    /// When the connection breaks, or the receiver acknowledges another number of bytes than was
    /// sent.
    pub fn write(&mut self, length: Nanos) -> Result<BulkTally, BenchError> {
        let pace = match self.pace {
            Some(pace) => pace,
            None => self.warm_up(length)?,
        };
        self.round((pace * length as f64).ceil().max(1.0) as u64)
    }

    /// Finds the speed, in messages per nanosecond, in rounds that grow until one takes a fifth of `length`.
    pub fn warm_up(&mut self, length: Nanos) -> Result<f64, BenchError> {
        let mut messages = (FIRST_ROUND / (self.payload.len() as u64).max(1)).clamp(1, 16);
        loop {
            let elapsed = self.round(messages)?.elapsed.max(1);
            if elapsed >= length / 5 {
                return Ok(messages as f64 / elapsed as f64);
            }
            messages *= (length / 4 / elapsed).clamp(2, 64);
        }
    }

    fn round(&mut self, messages: u64) -> Result<BulkTally, BenchError> {
        let tally = round(&mut self.stream, &self.payload, messages).map_err(|error| self.lost(&error))?;
        self.pace = Some(messages as f64 / tally.elapsed.max(1) as f64);
        Ok(tally)
    }

    fn lost(&self, error: &std::io::Error) -> BenchError {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MSGSIZE) => BenchError::Usage(format!(
                "a message of {} bytes does not fit into one packet of this socket; use a smaller --size or another transport",
                self.payload.len()
            )),
            _ => BenchError::lost(&self.endpoint, error.to_string()),
        }
    }
}

fn round(stream: &mut Stream, payload: &[u8], messages: u64) -> std::io::Result<BulkTally> {
    let bytes = payload.len() as u64 * messages;
    let begun = now();
    stream.write_all(&header(bytes, payload.len() as u64))?;
    for _ in 0..messages {
        stream.write_all(payload)?;
    }
    stream.flush()?;
    let mut acknowledged = [0; ACKNOWLEDGEMENT];
    stream.read_exact(&mut acknowledged)?;
    let elapsed = now() - begun;
    let received = u64::from_le_bytes(acknowledged);
    if received == bytes {
        Ok(BulkTally { messages, bytes, elapsed })
    } else {
        Err(std::io::Error::other(format!("sent {bytes} bytes, but {received} were acknowledged")))
    }
}

const WHOLE_BUFFER: usize = 256 * 1024;
/// Time after which the server counts as hung if it has sent less than `MIN_BYTES_IN_STALL`.
const STALL: Duration = Duration::from_secs(10);
/// Least bytes in each `STALL`. A limit for the whole would end a long dump, and one for each read never ends a server that
/// sends a byte a second.
const MIN_BYTES_IN_STALL: u64 = 4096;
/// Longest part of a reply that is judged as a whole: a packet of MySQL has up to 16 MiB.
const MAX_PART_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub struct WholeTally {
    /// The operations in the reply, such as rows (none if it was wrong), and its bytes; from before the request to after
    /// the last byte.
    pub reply: BulkTally,
    pub usage: ThreadUse,
    /// Kind of error, if the reply was wrong or a refusal.
    pub failure: Option<&'static str>,
}

/// Whether bytes of a reply come fast enough: at least [`MIN_BYTES_IN_STALL`] in each [`STALL`].
struct Flow {
    since: Instant,
    before: u64,
}

impl Flow {
    fn check(&mut self, bytes: u64) -> std::io::Result<()> {
        if bytes - self.before >= MIN_BYTES_IN_STALL {
            *self = Flow { since: Instant::now(), before: bytes };
        }
        if self.since.elapsed() >= STALL { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Makes a whole exchange: sends one request and reads the whole reply.
///
/// # Errors
/// When the connection breaks, or less than `MIN_BYTES_IN_STALL` bytes come in `STALL`. A wrong reply or a refusal is not an error
/// but a tally with a failure.
pub fn drive_whole(
    mut stream: Stream,
    mut session: Box<dyn Session>,
    endpoint: &str,
) -> Result<WholeTally, BenchError> {
    let lost = |reason: String| BenchError::lost(endpoint, reason);
    let broken = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            BenchError::Hung { endpoint: endpoint.to_owned(), seconds: STALL.as_secs_f64() }
        }
        _ => lost(error.to_string()),
    };
    set_socket_timeout(&stream, Timeout::Recv, Some(STALL))
        .map_err(|error| BenchError::io("limiting waits for a reply", error))?;
    let mut request = Vec::new();
    let mut input = vec![0; WHOLE_BUFFER];
    let (mut filled, mut bytes) = (0, 0);
    let mut flow = Flow { since: Instant::now(), before: 0 };
    let before = ThreadUse::current();
    let begun = now();
    session.request(&mut request);
    stream.write_all(&request).map_err(broken)?;
    stream.flush().map_err(broken)?;
    let failure = loop {
        let read = stream.read(&mut input[filled..]).map_err(broken)?;
        if read == 0 {
            return Err(lost("it closed the connection in the middle of a reply".into()));
        }
        filled += read;
        bytes += read as u64;
        flow.check(bytes).map_err(broken)?;
        match session.response(&input[..filled]) {
            Ok(Progress::Complete { consumed }) if consumed == filled => break None,
            Ok(Progress::Last { consumed, rejected }) if consumed == filled => break rejected,
            Ok(Progress::Complete { .. } | Progress::Last { .. }) => break Some("unasked bytes"),
            Ok(Progress::Rejected { kind, .. }) => break Some(kind),
            Ok(Progress::More { consumed }) => {
                input.copy_within(consumed..filled, 0);
                filled -= consumed;
                if filled >= MAX_PART_BYTES {
                    break Some("reply too long");
                }
                if filled == input.len() {
                    input.resize(filled * 2, 0);
                }
            }
            Err(bad) => break Some(bad.kind),
        }
    };
    let elapsed = now() - begun;
    let usage = ThreadUse::current() - before;
    let messages = if failure.is_none() { session.operations_per_exchange() } else { 0 };
    Ok(WholeTally { reply: BulkTally { messages, bytes, elapsed }, usage, failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_there_and_back() {
        assert_eq!(parse_header(header(7, 1 << 40)), (7, 1 << 40));
    }
}
