//! What the thread of each connection runs.

use std::io::{self, Read, Write};

use samehost_transport::Stream;

use super::responder::Responder;
use crate::engine::bulk::{HEADER, parse_header};
use crate::engine::session::Wait;

/// Bytes that a responder reads at once.
const BUFFER: usize = 64 * 1024;
/// Most bytes that the sink reads at once, whatever the sender asks for.
const MOST_READ: u64 = 64 * 1024 * 1024;

/// Responds until either side ends the connection.
pub(super) fn converse<R: Responder>(stream: &mut Stream, waits: Wait) -> io::Result<()> {
    let (mut buffer, mut responder) = (vec![0; BUFFER], R::default());
    loop {
        waits.before_read(stream)?;
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        let (reply, goes_on) = responder.respond(&buffer[..read]);
        stream.write_all(reply)?;
        stream.flush()?;
        if !goes_on {
            return Ok(());
        }
    }
}

/// Receives rounds of bytes (see `engine::bulk`) and acknowledges each. Reads as fast as it can and so never polls.
pub(super) fn sink(stream: &mut Stream, _: Wait) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let mut header = [0; HEADER];
        match stream.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let (bytes, read_size) = parse_header(header);
        let read_size = read_size.clamp(1, MOST_READ) as usize;
        if buffer.len() < read_size {
            buffer.resize(read_size, 0);
        }
        let mut received: u64 = 0;
        while received < bytes {
            let want = (bytes - received).min(read_size as u64) as usize;
            let read = stream.read(&mut buffer[..want])?;
            if read == 0 {
                return Ok(());
            }
            received += read as u64;
        }
        stream.write_all(&received.to_le_bytes())?;
        stream.flush()?;
    }
}
