//! Protocol of a server on one connection, without I/O: the same responder serves a connection in its own
//! thread, or a thousand with epoll.

use std::sync::OnceLock;
use std::time::Duration;

use super::work::{self, Memory};

/// Steps of work per message in this process; unset for none.
static STEPS: OnceLock<u64> = OnceLock::new();

/// Additional steps for a message that ends with [`MARK`].
static STEPS_MORE: OnceLock<u64> = OnceLock::new();

/// Last byte of a message that gets additional work: a known difference, for tests of the method.
pub(crate) const MARK: u8 = 0xff;

/// Sets the work per message, and the additional work of a marked message as a fraction of it. Called before
/// any connection is served.
pub(super) fn set_work(time: Duration, longer: f64) {
    // The first call decides.
    let steps = *STEPS.get_or_init(|| work::steps(time, memory(longer > 0.0)));
    let _ = STEPS_MORE.set((steps as f64 * longer).round() as u64);
}

/// With a known difference, connections share memory, so that they differ in nothing else.
fn memory(is_known_difference: bool) -> Memory {
    if is_known_difference { Memory::shared() } else { Memory::default() }
}

/// Server side of one connection.
pub(super) trait Responder: Default {
    /// Returns the reply to the received bytes, possibly empty, and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

/// Sends everything back after doing the work.
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
