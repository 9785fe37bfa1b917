//! What a server says to the bytes of one connection. No I/O: the same responder serves a connection in a thread of
//! its own, or a thousand by epoll.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// CPU time that this process spends on all that it reads, to play a server that has work to do.
static WORK: OnceLock<Duration> = OnceLock::new();

/// Sets, before any connection is served, how much work there is.
pub(super) fn set_work(work: Duration) {
    // Whoever served first has said it.
    let _ = WORK.set(work);
}

/// One connection's server.
pub(super) trait Responder: Default {
    /// The reply to the bytes that came, perhaps none yet; and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

/// Sends back what comes.
#[derive(Debug, Default)]
pub(super) struct Echo;

impl Responder for Echo {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        if let Some(work) = WORK.get().filter(|work| !work.is_zero()) {
            // Burnt, not slept: a server that works keeps its CPU, and that is what decides who has to be woken.
            let begun = Instant::now();
            while begun.elapsed() < *work {
                std::hint::spin_loop();
            }
        }
        (input, true)
    }
}
