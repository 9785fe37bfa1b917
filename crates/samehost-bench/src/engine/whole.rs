//! One exchange as a trial: a request whose reply is a long stream, such as a dump of a table. The clock runs
//! from the request to the last byte of the reply.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_transport::Stream;

use super::session::{Progress, Session};
use super::{Nanos, now};
use crate::error::BenchError;
use crate::machine::ThreadUse;

/// Bytes of the buffer for the reply.
const BUFFER: usize = 256 * 1024;
/// Time after which the server counts as hung if it has sent less than `LEAST`.
const STALL: Duration = Duration::from_secs(10);
/// Least bytes in each `STALL`. A limit for the whole would end a long dump, and one for each read never ends a server that
/// sends a byte a second.
const LEAST: u64 = 4096;
/// Longest part of a reply that is judged as a whole: a packet of MySQL has up to 16 MiB.
const LONGEST_PART: usize = 32 << 20;

/// Result of the exchange.
#[derive(Debug)]
pub struct WholeTally {
    /// Operations in the reply, such as rows; 0 if it was wrong.
    pub operations: u64,
    /// Bytes received.
    pub bytes: u64,
    /// From before the request to after the last byte of the reply.
    pub elapsed: Nanos,
    /// CPU time of this thread during the exchange.
    pub usage: ThreadUse,
    /// Kind of error, if the reply was wrong or a refusal.
    pub failure: Option<&'static str>,
}

/// Whether a reply comes at all.
struct Flow {
    since: Instant,
    /// Bytes that had come by then.
    before: u64,
}

impl Flow {
    fn check(&mut self, bytes: u64) -> std::io::Result<()> {
        if bytes - self.before >= LEAST {
            *self = Flow { since: Instant::now(), before: bytes };
        }
        if self.since.elapsed() >= STALL { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Sends one request and reads the whole reply. A wrong reply or a refusal is not an error but a tally with a
/// failure.
pub fn drive(
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
    let mut input = vec![0; BUFFER];
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
                if filled >= LONGEST_PART {
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
    let operations = if failure.is_none() { session.operations_per_exchange() } else { 0 };
    Ok(WholeTally { operations, bytes, elapsed, usage, failure })
}
