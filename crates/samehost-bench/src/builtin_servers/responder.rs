//! What a server says to the bytes of one connection. No I/O: the same responder serves a connection in a thread of
//! its own, or a thousand by epoll.

use std::sync::OnceLock;
use std::time::Duration;

use super::work::{self, Memory};

/// Steps of work with each message that this process has; unset for none.
static STEPS: OnceLock<u64> = OnceLock::new();

/// Steps more with each message that ends with [`MARK`].
static STEPS_MORE: OnceLock<u64> = OnceLock::new();

/// What a message ends with that is to have more work: a known difference, for tests of the method.
pub(crate) const MARK: u8 = 0xff;

/// Sets, before any connection is served, how much work there is, and which part of it a marked message has besides.
pub(super) fn set_work(time: Duration, longer: f64) {
    // Whoever served first has said it.
    let steps = *STEPS.get_or_init(|| work::steps(time, memory(longer > 0.0)));
    let _ = STEPS_MORE.set((steps as f64 * longer).round() as u64);
}

/// A known difference is to be the only one between two connections.
fn memory(is_known_difference: bool) -> Memory {
    if is_known_difference { Memory::shared() } else { Memory::default() }
}

/// One connection's server.
pub(super) trait Responder: Default {
    /// The reply to the bytes that came, perhaps none yet; and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

/// Sends back what comes, after the work that it has with it.
#[derive(Debug)]
pub(super) struct Echo {
    memory: Memory,
}

impl Default for Echo {
    fn default() -> Self {
        Echo { memory: memory(STEPS_MORE.get().is_some_and(|more| *more > 0)) }
    }
}

impl Responder for Echo {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        let more = if input.last() == Some(&MARK) { STEPS_MORE.get() } else { None };
        self.memory.walk(STEPS.get().copied().unwrap_or(0) + more.copied().unwrap_or(0));
        (input, true)
    }
}
