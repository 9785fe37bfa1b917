//! What a server says to the bytes of one connection. No I/O: the same responder serves a connection in a thread of
//! its own, or a thousand by epoll.

use std::sync::OnceLock;
use std::time::Duration;

use super::work::{self, Memory};

/// Steps of work with each message that this process has; unset for none.
static STEPS: OnceLock<u64> = OnceLock::new();

/// Sets, before any connection is served, how much work there is.
pub(super) fn set_work(time: Duration) {
    // Whoever served first has said it.
    let _ = STEPS.set(work::steps(time));
}

/// One connection's server.
pub(super) trait Responder: Default {
    /// The reply to the bytes that came, perhaps none yet; and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

/// Sends back what comes, after the work that it has with it.
#[derive(Debug, Default)]
pub(super) struct Echo {
    memory: Memory,
}

impl Responder for Echo {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        self.memory.walk(STEPS.get().copied().unwrap_or(0));
        (input, true)
    }
}
