//! One connection, closed loop, blocking: write, read, write, read. What a program with one connection does,
//! and the cheapest way to see a transport: two system calls per operation and nothing else.

use samehost_transport::Stream;

use super::clock::now;
use super::recorder::{Recorder, Tally};
use super::session::{Connector, Progress, Session};
use crate::BenchError;

/// Bytes of the buffer that replies are read into.
const BUFFER: usize = 64 * 1024;

enum Reply {
    Right,
    Rejected(&'static str),
    /// Right or not, and the server closes the connection.
    Last(Option<&'static str>),
}

/// Drives one connection until the window is over.
///
/// # Errors
/// When the server goes away and cannot be reached again.
pub fn drive(
    mut stream: Stream,
    mut session: Box<dyn Session>,
    connector: &dyn Connector,
    mut recorder: Recorder,
) -> Result<Tally, BenchError> {
    let mut out = Vec::with_capacity(BUFFER);
    let mut input = vec![0; BUFFER];
    // Each operation begins where the one before ended, so that latencies add up to the window.
    let mut begun = now();
    loop {
        let inside = match exchange(&mut stream, session.as_mut(), &mut out, &mut input) {
            Ok(Reply::Right) => {
                let done = now();
                let inside = recorder.complete(done, done - begun);
                begun = done;
                inside
            }
            Ok(Reply::Rejected(kind)) => {
                recorder.failed(kind);
                begun = now();
                recorder.advance(begun)
            }
            Ok(Reply::Last(rejected)) => {
                let done = now();
                let inside = match rejected {
                    None => recorder.complete(done, done - begun),
                    Some(kind) => {
                        recorder.failed(kind);
                        recorder.advance(done)
                    }
                };
                if inside {
                    (stream, session) =
                        connector.connect().map_err(|e| connector.lost("connection closed", &e))?;
                }
                // Connecting again is the price of the next request.
                begun = done;
                inside
            }
            Err(kind) => {
                recorder.failed(kind);
                if !recorder.advance(now()) {
                    return Ok(recorder.finish());
                }
                (stream, session) = connector.connect().map_err(|e| connector.lost(kind, &e))?;
                begun = now();
                true
            }
        };
        if !inside {
            return Ok(recorder.finish());
        }
    }
}

/// One request and its reply. Errors are kinds for the count; the connection is then of no further use.
#[inline]
fn exchange(
    stream: &mut Stream,
    session: &mut dyn Session,
    out: &mut Vec<u8>,
    input: &mut [u8],
) -> Result<Reply, &'static str> {
    use std::io::{Read, Write};

    out.clear();
    session.request(out);
    stream.write_all(out).map_err(|_| "write failed")?;
    let mut filled = 0;
    loop {
        match stream.read(&mut input[filled..]) {
            Ok(0) if filled == input.len() => return Err("reply too long"),
            Ok(0) => return Err("connection closed"),
            Ok(read) => filled += read,
            Err(_) => return Err("read failed"),
        }
        match session.response(&input[..filled]).map_err(|bad| bad.kind)? {
            Progress::Complete { consumed } if consumed == filled => return Ok(Reply::Right),
            Progress::Rejected { consumed, kind } if consumed == filled => return Ok(Reply::Rejected(kind)),
            Progress::More { consumed } => {
                input.copy_within(consumed..filled, 0);
                filled -= consumed;
            }
            Progress::Last { consumed, rejected } if consumed == filled => return Ok(Reply::Last(rejected)),
            Progress::Complete { .. } | Progress::Rejected { .. } | Progress::Last { .. } => {
                return Err("unasked bytes");
            }
        }
    }
}
