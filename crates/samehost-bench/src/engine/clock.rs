//! The only clock: monotonic nanoseconds. No code outside the engine reads the time of a request.
//!
//! The times at which the requests of an open loop are due are drawn here too, from the seed, before the trial: they do not
//! depend on the replies.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// One call of the vDSO; makes no system call if the kernel's clock source allows it.
#[inline]
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Duration in nanoseconds, saturating.
#[must_use]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Nanoseconds in the kernel's format.
#[must_use]
pub fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Measured part of a trial: requests before `start` warm up; from `end` on nothing is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Time at which the load begins.
    pub open: Nanos,
    /// First counted nanosecond.
    pub start: Nanos,
    /// First nanosecond that is no longer counted.
    pub end: Nanos,
}

impl Window {
    /// A window that starts in `warm_up` from now and is `length` long.
    #[must_use]
    pub fn from_now(warm_up: Duration, length: Duration) -> Self {
        let open = now();
        let start = open + nanos(warm_up);
        Window { open, start, end: start + nanos(length) }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}

/// How requests are spread over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Poisson process: independent users.
    #[default]
    Poisson,
    /// Equal gaps, like a metronome.
    Uniform,
}

/// Due times, ascending, in nanoseconds from the start of `span`; exactly `rate_per_s` × `span` of them.
///
/// A Poisson process given its number of events is that many independent uniform moments, sorted (Ross,
/// Stochastic Processes, 1996, theorem 2.3.1). Drawing them this way fixes the offered number exactly; a free
/// Poisson count of 50,000 would itself stray by 0.45 %.
#[must_use]
pub fn arrivals(spacing: Spacing, rate_per_s: f64, span: Nanos, seed: u64) -> Vec<Nanos> {
    let count = (rate_per_s * span as f64 / 1e9).round() as usize;
    match spacing {
        Spacing::Uniform => (0..count)
            .map(|i| ((i as f64 + 0.5) / rate_per_s * 1e9) as Nanos)
            .filter(|due| *due < span)
            .collect(),
        Spacing::Poisson => {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut due: Vec<Nanos> = (0..count).map(|_| random.random_range(0..span)).collect();
            due.sort_unstable();
            due
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_offered_number_is_exact_and_the_seed_decides() {
        for spacing in [Spacing::Poisson, Spacing::Uniform] {
            let due = arrivals(spacing, 50_000.0, 200_000_000, 7);
            assert_eq!(due.len(), 10_000);
            assert!(due.is_sorted());
            assert!(due.iter().all(|d| *d < 200_000_000));
            assert_eq!(due, arrivals(spacing, 50_000.0, 200_000_000, 7));
        }
        let poisson = |seed| arrivals(Spacing::Poisson, 50_000.0, 200_000_000, seed);
        assert_ne!(poisson(7), poisson(8));
    }

    #[test]
    fn gaps_of_a_poisson_schedule_are_exponential() {
        let due = arrivals(Spacing::Poisson, 100_000.0, 1_000_000_000, 1);
        let mean = 10_000.0;
        let gaps: Vec<f64> = due.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        for (multiple, expected) in [(0.5, 0.6065), (1.0, 0.3679), (3.0, 0.0498)] {
            let longer = gaps.iter().filter(|gap| **gap > multiple * mean).count() as f64 / gaps.len() as f64;
            assert!((longer - expected).abs() < 0.005, "{multiple}: {longer} instead of {expected}");
        }
    }
}
