//! Work for a server that would have none: as many steps as take the given CPU time where nothing disturbs them. Steps are
//! counted, not time: over a transport that leaves less of the processor's caches to a server the same work takes longer,
//! as a real server's does, and that is part of what the transport costs.

use std::time::{Duration, Instant};

/// Memory that the work goes about in, in words of 8 bytes: 256 KiB, more than a first-level cache holds.
const WORDS: usize = 32 * 1024;
/// Steps whose time is taken at once, to learn how long one takes.
const STEPS: u64 = 200_000;
/// How often; the fastest is the undisturbed one.
const TRIES: u32 = 8;

/// The steps that take this CPU time here.
pub(super) fn steps(work: Duration) -> u64 {
    if work.is_zero() {
        return 0;
    }
    let mut memory = Memory::default();
    let tries = (0..TRIES).map(|_| {
        let begun = Instant::now();
        memory.walk(STEPS);
        begun.elapsed()
    });
    let fastest = tries.min().unwrap_or_default().as_secs_f64().max(f64::MIN_POSITIVE);
    (STEPS as f64 * work.as_secs_f64() / fastest).round() as u64
}

/// What the work goes about in.
#[derive(Debug, Default)]
pub(super) struct Memory {
    words: Vec<u64>,
    at: u64,
}

impl Memory {
    /// Does so many steps. Each reads and writes a word whose place depends on the one before, so that none is done ahead.
    pub(super) fn walk(&mut self, steps: u64) {
        if self.words.is_empty() && steps > 0 {
            self.words = (0..WORDS as u64).collect();
        }
        for _ in 0..steps {
            // Knuth's multiplier for a linear congruential generator modulo 2^64 (MMIX).
            let next =
                self.at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if let Some(word) = self.words.get_mut((next >> 40) as usize % WORDS) {
                *word ^= next;
                self.at = *word;
            }
        }
        std::hint::black_box(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_work_takes_no_steps_and_no_memory() {
        assert_eq!(steps(Duration::ZERO), 0);
        let mut memory = Memory::default();
        memory.walk(0);
        assert!(memory.words.is_empty(), "nothing is taken for no work");
        memory.walk(10);
        assert_eq!(memory.words.len(), WORDS);
        assert!(steps(Duration::from_millis(1)) > 0);
    }
}
