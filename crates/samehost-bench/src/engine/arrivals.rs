//! Arrival times of an open loop, drawn from the seed before the trial and independent of the replies.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::clock::Nanos;

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
