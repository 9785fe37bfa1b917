//! Bulk: one writer, one reader, one direction. The clock stops when the receiver acknowledges the last byte,
//! never when the sender has merely filled a buffer.
//!
//! A round on the wire: a header of 16 bytes (payload length and the receiver's read size, both u64 little
//! endian), the payload, and 8 bytes back: the number of bytes received, u64 little endian.

use std::io::{Read, Write};
use std::time::Duration;

use samehost_transport::Stream;

use super::clock::{Nanos, nanos, now};
use crate::BenchError;
use crate::machine::ThreadUse;

/// Bytes of a round's header.
pub const HEADER: usize = 16;
/// Bytes of a round's acknowledgement.
pub const ACKNOWLEDGEMENT: usize = 8;

/// A round's header.
#[must_use]
pub fn header(bytes: u64, read_size: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&bytes.to_le_bytes());
    header[8..].copy_from_slice(&read_size.to_le_bytes());
    header
}

/// Payload length and read size of a round.
#[must_use]
pub fn parse_header(header: [u8; HEADER]) -> (u64, u64) {
    let [a @ .., _, _, _, _, _, _, _, _] = header;
    let [_, _, _, _, _, _, _, _, b @ ..] = header;
    (u64::from_le_bytes(a), u64::from_le_bytes(b))
}

/// Bytes of the first round of the warm-up: a millisecond or two, and no more than 16 messages.
const FIRST_ROUND: u64 = 4 * 1024 * 1024;

/// What a timed round showed.
#[derive(Debug)]
pub struct BulkTally {
    /// Messages written.
    pub messages: u64,
    /// Bytes written and acknowledged.
    pub bytes: u64,
    /// From the first write to the acknowledgement of the last byte.
    pub elapsed: Nanos,
    /// The writing thread's CPU in that time.
    pub usage: ThreadUse,
}

/// Drives one connection: a warm-up that finds the speed, then a timed round of about `length`. `mark` is told
/// the moments at which the timed round begins and ends.
///
/// # Errors
/// When the connection breaks, or the receiver acknowledges another number of bytes than were sent.
pub fn drive(
    stream: &mut Stream,
    endpoint: &str,
    size: u64,
    length: Duration,
    mut mark: impl FnMut(Mark),
) -> Result<BulkTally, BenchError> {
    let payload = vec![0x5a_u8; usize::try_from(size).unwrap_or(usize::MAX)];
    let lost = |error: std::io::Error| match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::MSGSIZE) => BenchError::Usage(format!(
            "a message of {size} bytes does not fit into one packet of this socket; use a smaller --size or another transport"
        )),
        _ => BenchError::ServerLost {
            endpoint: endpoint.to_owned(),
            reason: error.to_string(),
            server_said: String::new(),
        },
    };
    let mut messages = (FIRST_ROUND / size.max(1)).clamp(1, 16);
    let target = nanos(length);
    let mut elapsed = round(stream, &payload, messages).map_err(lost)?;
    // Grow until a round is long enough to tell the speed: a fifth of the wanted time.
    while elapsed < target / 5 {
        let growth = (target / 4 / elapsed.max(1)).clamp(2, 64);
        messages *= growth;
        elapsed = round(stream, &payload, messages).map_err(lost)?;
    }
    let messages = (messages as f64 * target as f64 / elapsed as f64).ceil().max(1.0) as u64;
    mark(Mark::Begin);
    let before = ThreadUse::current();
    let elapsed = round(stream, &payload, messages).map_err(lost)?;
    let usage = ThreadUse::current() - before;
    mark(Mark::End);
    Ok(BulkTally { messages, bytes: messages * size, elapsed, usage })
}

/// The beginning or the end of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The timed round begins.
    Begin,
    /// The last byte was acknowledged.
    End,
}

fn round(stream: &mut Stream, payload: &[u8], messages: u64) -> std::io::Result<Nanos> {
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
        Ok(elapsed)
    } else {
        Err(std::io::Error::other(format!("sent {bytes} bytes, but {received} were acknowledged")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_there_and_back() {
        assert_eq!(parse_header(header(7, 1 << 40)), (7, 1 << 40));
    }
}
