//! Work for a server that would have none: as many steps as take the given CPU time where nothing disturbs them. Steps are
//! counted, not time: over a transport that leaves less of the processor's caches to a server the same work takes longer,
//! as a real server's does, and that is part of what the transport costs.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Memory that the work goes about in, in words of 8 bytes: 256 KiB, more than a first-level cache holds.
const WORDS: usize = 32 * 1024;
/// Steps whose time is taken at once, to learn how long one takes.
const STEPS: u64 = 200_000;
/// How often; the fastest is the undisturbed one.
const TRIES: u32 = 8;

/// The steps that take this CPU time here.
pub(super) fn steps(work: Duration, mut memory: Memory) -> u64 {
    if work.is_zero() {
        return 0;
    }
    let tries = (0..TRIES).map(|_| {
        let begun = Instant::now();
        memory.walk(STEPS);
        begun.elapsed()
    });
    let fastest = tries.min().unwrap_or_default().as_secs_f64().max(f64::MIN_POSITIVE);
    (STEPS as f64 * work.as_secs_f64() / fastest).round() as u64
}

/// What the work of a connection goes about in.
#[derive(Debug, Default)]
pub(super) struct Memory {
    words: Vec<u64>,
    is_shared: bool,
    at: u64,
}

impl Memory {
    /// Memory of all connections alike, which is read only: no connection is slower than another by the luck of where its
    /// pages lie in a cache.
    pub(super) fn shared() -> Self {
        Memory { is_shared: true, ..Memory::default() }
    }

    /// Does so many steps. Each takes a word whose place depends on the one before, so that none is done ahead.
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
            // Of places chosen at random, 1 in e^4 would be missed: 600.
            assert!(places.len() > WORDS - 1_000, "{} of {WORDS} places", places.len());
            assert_eq!(memory.words.is_empty(), memory.is_shared);
        }
    }
}
