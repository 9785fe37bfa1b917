//! Bulk transfer: one writer, one reader, one direction. The clock stops when the receiver acknowledges the
//! last byte, not when the sender has filled a buffer.
//!
//! A round on the wire: a header of 16 bytes (payload length and the receiver's read size, both u64 little
//! endian), the payload, and 8 bytes back: the number of bytes received, u64 little endian.

use std::io::{Read, Write};

use samehost_transport::Stream;

use super::{Nanos, now};
use crate::error::BenchError;

/// Bytes of a round's header.
pub const HEADER: usize = 16;
/// Bytes of a round's acknowledgement.
pub const ACKNOWLEDGEMENT: usize = 8;

#[must_use]
pub fn header(bytes: u64, read_size: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&bytes.to_le_bytes());
    header[8..].copy_from_slice(&read_size.to_le_bytes());
    header
}

/// Returns payload length and read size of a round.
#[must_use]
pub fn parse_header(header: [u8; HEADER]) -> (u64, u64) {
    let [a @ .., _, _, _, _, _, _, _, _] = header;
    let [_, _, _, _, _, _, _, _, b @ ..] = header;
    (u64::from_le_bytes(a), u64::from_le_bytes(b))
}

/// Bytes of the first round of the warm-up: takes a millisecond or two, and has at most 16 messages.
const FIRST_ROUND: u64 = 4 * 1024 * 1024;

/// Result of a timed round.
#[derive(Debug)]
pub struct BulkTally {
    pub messages: u64,
    /// Bytes written and acknowledged.
    pub bytes: u64,
    /// From the first write to the acknowledgement of the last byte.
    pub elapsed: Nanos,
}

/// Writing end of a stream to a receiver that acknowledges.
#[derive(Debug)]
pub struct Writer {
    stream: Stream,
    endpoint: String,
    payload: Vec<u8>,
    /// Messages per nanosecond in the last round; `None` before the first.
    pace: Option<f64>,
}

impl Writer {
    /// Starts with nothing written. Messages have `size` bytes.
    #[must_use]
    pub fn new(stream: Stream, endpoint: String, size: u64) -> Self {
        let payload = vec![0x5a_u8; usize::try_from(size).unwrap_or(usize::MAX)];
        Writer { stream, endpoint, payload, pace: None }
    }

    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Endpoint, for messages.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
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

    /// Finds the speed in messages per nanosecond.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_there_and_back() {
        assert_eq!(parse_header(header(7, 1 << 40)), (7, 1 << 40));
    }
}
