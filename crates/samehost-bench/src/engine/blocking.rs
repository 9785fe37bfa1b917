//! What blocks, one connection or operation at a time in a thread: a closed loop over one connection, as a program with one
//! connection does (write, wait, read, repeat); and callers, for protocols whose library owns the socket and for
//! operations that need a new connection each time. Callers run a closed loop, or an open one with one queue of due times for all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use samehost_transport::Stream;

use super::recorder::{Count, Recorder, Tally};
use super::session::{Caller, Connector, MAX_UNREAD_BYTES, Progress, Session, Wait};
use super::{Nanos, now, timespec};
use crate::error::BenchError;

const BUFFER: usize = MAX_UNREAD_BYTES;

enum Reply {
    Right,
    Rejected(&'static str),
    /// The reply is complete, and the server closes the connection after it; with the kind of refusal, if it was one.
    Last(Option<&'static str>),
}

pub struct Single {
    stream: Stream,
    session: Box<dyn Session>,
    connector: Arc<dyn Connector>,
    out: Vec<u8>,
    input: Vec<u8>,
    waits: Wait,
}

impl Single {
    pub fn new(stream: Stream, session: Box<dyn Session>, connector: Arc<dyn Connector>) -> Self {
        let (out, input) = (Vec::with_capacity(BUFFER), vec![0; BUFFER]);
        let waits = connector.waits();
        Single { stream, session, connector, out, input, waits }
    }

    /// Sends requests and waits for each reply until the counter has enough. No request is in flight on return.
    ///
    /// # Errors
    /// When the connection breaks and cannot be opened again.
    pub fn drive<C: Count>(&mut self, counter: &mut C) -> Result<(), BenchError> {
        // Each operation starts where the one before ended, so that latencies add up to the window: one reading
        // of the clock serves both.
        let mut begun = now();
        loop {
            let inside = match self.exchange() {
                Ok(Reply::Right) => {
                    let done = now();
                    let inside = counter.done(done, begun, begun);
                    begun = done;
                    inside
                }
                Ok(Reply::Rejected(kind)) => {
                    counter.failed(kind);
                    begun = now();
                    counter.advance(begun)
                }
                Ok(Reply::Last(rejected)) => {
                    let done = now();
                    let inside = match rejected {
                        None => counter.done(done, begun, begun),
                        Some(kind) => {
                            counter.failed(kind);
                            counter.advance(done)
                        }
                    };
                    if inside || C::GOES_ON {
                        self.connect_again("connection closed")?;
                    }
                    // The time to reconnect counts for the next request.
                    begun = done;
                    inside
                }
                Err(kind) => {
                    counter.failed(kind);
                    let inside = counter.advance(now());
                    if inside || C::GOES_ON {
                        self.connect_again(kind)?;
                    }
                    begun = now();
                    inside
                }
            };
            if !inside {
                return Ok(());
            }
        }
    }

    fn connect_again(&mut self, kind: &str) -> Result<(), BenchError> {
        let again = self.connector.connect();
        (self.stream, self.session) = again.map_err(|error| self.connector.lost(kind, &error))?;
        Ok(())
    }

    /// One request and its reply. The error is a kind for the error counts; the connection is unusable after it.
    #[inline]
    fn exchange(&mut self) -> Result<Reply, &'static str> {
        use std::io::{Read, Write};

        let Single { stream, session, out, input, waits, .. } = self;
        out.clear();
        session.request(out);
        stream.write_all(out).map_err(|_| "write failed")?;
        let mut filled = 0;
        loop {
            waits.before_read(stream).map_err(|_| "poll failed")?;
            match stream.read(&mut input[filled..]) {
                Ok(0) if filled == input.len() => return Err("reply too long"),
                Ok(0) => return Err("connection closed"),
                Ok(read) => filled += read,
                Err(_) => return Err("read failed"),
            }
            match session.response(&input[..filled]).map_err(|bad| bad.kind)? {
                Progress::Complete { consumed } if consumed == filled => return Ok(Reply::Right),
                Progress::Rejected { consumed, kind } if consumed == filled => {
                    return Ok(Reply::Rejected(kind));
                }
                Progress::More { consumed } => {
                    input.copy_within(consumed..filled, 0);
                    filled -= consumed;
                }
                Progress::Last { consumed, rejected } if consumed == filled => {
                    return Ok(Reply::Last(rejected));
                }
                Progress::Complete { .. } | Progress::Rejected { .. } | Progress::Last { .. } => {
                    return Err("unasked bytes");
                }
            }
        }
    }
}

/// When requests of an open loop are due, for all threads of a trial: whichever is idle takes the next time. While none
/// is idle, requests wait in line; that waiting is in the latency, and is not lateness of the generator.
#[derive(Debug)]
pub struct DueQueue {
    /// Ascending, in the engine's clock.
    pub due: Vec<Nanos>,
    /// Index in `due` of the time that is taken next.
    pub next: AtomicUsize,
}

/// The load of one thread: calls until the window is over or the queue is empty. A call that fails is counted and the next
/// one made; the caller opens a new connection itself.
pub fn drive(caller: &mut dyn Caller, mut recorder: Recorder, queue: Option<&Arc<DueQueue>>) -> Tally {
    match queue {
        None => closed_loop(caller, &mut recorder),
        Some(queue) => open_loop(caller, &mut recorder, queue),
    }
    recorder.finish()
}

fn closed_loop(caller: &mut dyn Caller, recorder: &mut Recorder) {
    let mut begun = now();
    loop {
        let result = caller.call();
        let done = now();
        let inside = match result {
            Ok(()) => recorder.complete(done, done - begun),
            Err(bad) => {
                recorder.failed(bad.kind);
                recorder.advance(done)
            }
        };
        if !inside {
            return;
        }
        begun = done;
    }
}

fn open_loop(caller: &mut dyn Caller, recorder: &mut Recorder, queue: &DueQueue) {
    let mut idle_since = now();
    loop {
        let Some(due) = queue.due.get(queue.next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
        let mut sent = now();
        while sent < due {
            // Returns early only on a signal; the loop then sleeps for the rest.
            let _ = rustix::thread::nanosleep(&timespec(due - sent));
            sent = now();
        }
        if sent >= recorder.window.end {
            recorder.unfinished(sent, due);
            continue;
        }
        recorder.sent(due, sent - due.max(idle_since));
        match caller.call() {
            Ok(()) => {
                idle_since = now();
                recorder.complete_due(idle_since, due, sent);
            }
            Err(bad) => {
                recorder.failed(bad.kind);
                idle_since = now();
            }
        }
    }
}
