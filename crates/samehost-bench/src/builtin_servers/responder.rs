//! Protocol of a server on one connection, without I/O: the same responder serves a connection in its own
//! thread, or a thousand with epoll.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
    let steps = *STEPS.get_or_init(|| steps(time, memory(longer > 0.0)));
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

// Simulated work of a server: as many steps as take the given CPU time on an undisturbed machine. It counts
// steps, not time: over a transport that leaves less of the CPU caches to the server the same work takes
// longer, as a real server's does, and that is part of the transport's cost.

/// Size of the memory that a connection's work reads and writes, in words of 8 bytes: 256 KiB, more than
/// a first-level cache. Work is a number of steps that depend on one another, not a length of time. The
/// kernel's TCP code evicts the program's data from the caches, and a real server's own code is slower
/// for it (MariaDB: 12.1 against 9.9 µs of user time a query). Work by the clock does not feel that, and
/// saw a third less of what a Unix socket saves (docs/method.md §14).
const WORDS: usize = 32 * 1024;
/// Steps timed at once to calibrate.
const MEASURED_STEPS: u64 = 200_000;
/// Number of calibrations; the fastest is the undisturbed one.
const TRIES: u32 = 8;

/// Number of steps that take this CPU time on this machine.
pub(super) fn steps(work: Duration, mut memory: Memory) -> u64 {
    if work.is_zero() {
        return 0;
    }
    let tries = (0..TRIES).map(|_| {
        let begun = Instant::now();
        memory.walk(MEASURED_STEPS);
        begun.elapsed()
    });
    let fastest = tries.min().unwrap_or_default().as_secs_f64().max(f64::MIN_POSITIVE);
    (MEASURED_STEPS as f64 * work.as_secs_f64() / fastest).round() as u64
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    words: Vec<u64>,
    is_shared: bool,
    at: u64,
}

impl Memory {
    /// Read-only memory that all connections share: no connection is slower because of where its pages are in
    /// a cache.
    pub(super) fn shared() -> Self {
        Memory { is_shared: true, ..Memory::default() }
    }

    /// Makes steps. Each reads a word whose position depends on the previous one, so that no step can be
    /// executed ahead.
    pub(super) fn walk(&mut self, steps: u64) {
        if steps == 0 {
            return;
        }
        if self.is_shared {
            static SHARED: OnceLock<Vec<u64>> = OnceLock::new();
            let words = SHARED.get_or_init(words);
            for _ in 0..steps {
                let next = scattered(self.at);
                if let Some(word) = words.get(place(next)) {
                    self.at = next ^ word;
                }
            }
        } else {
            if self.words.is_empty() {
                self.words = words();
            }
            for _ in 0..steps {
                let next = scattered(self.at);
                if let Some(word) = self.words.get_mut(place(next)) {
                    *word ^= next;
                    self.at = *word;
                }
            }
        }
        std::hint::black_box(self.at);
    }
}

/// Knuth's multiplier for a linear congruential generator modulo 2^64 (MMIX).
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn place(number: u64) -> usize {
    (number >> 40) as usize % WORDS
}

fn words() -> Vec<u64> {
    (0..WORDS as u64).map(|number| scattered(scattered(number).rotate_left(32))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_work_takes_no_steps_and_no_memory() {
        assert_eq!(steps(Duration::ZERO, Memory::default()), 0);
        let mut memory = Memory::default();
        memory.walk(0);
        assert!(memory.words.is_empty(), "nothing is taken for no work");
        assert!(steps(Duration::from_millis(1), Memory::default()) > 0);
    }

    #[test]
    fn steps_go_all_over_the_memory() {
        for mut memory in [Memory::default(), Memory::shared()] {
            let mut places = BTreeSet::new();
            for _ in 0..4 * WORDS {
                memory.walk(1);
                places.insert(place(scattered(memory.at)));
            }
            // Of positions chosen at random, 1 in e^4 would be missed: 600.
            assert!(places.len() > WORDS - 1_000, "{} of {WORDS} places", places.len());
            assert_eq!(memory.words.is_empty(), memory.is_shared);
        }
    }
}
