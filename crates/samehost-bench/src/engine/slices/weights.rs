//! Weights of passes by how long client and servers waited for a CPU in them. Pure.
//!
//! With one connection a pass takes some milliseconds, and another program either has one of our CPUs meanwhile or has
//! not. A pass that waited says little about transports and much about the scheduler. All arms of a pass have the same
//! weight, which follows from the waiting of all of them together: exchanging arms changes no weight, so equal arms stay
//! equal on average. Conditioning on each arm's own waiting would favour the arm that needs more CPU, because that one
//! is preempted more often. What is assumed: the ratio does not differ between moments with and without waiting. Where it
//! does, the weighed ratio is nearer to that of moments with a free CPU.
//!
//! Measured with a program that computes 60 and 100 % of each 37 ms on two CPUs, 20–30 rounds of 100 ms an arm, slices of
//! 1 ms, standard deviation of a round's ln ratio: raw 12.1 → 7.4 and 11.0 → 5.0 %, Redis 15.8 → 11.3 and 10.4 → 8.0 %, and
//! without such a program 3.3 → 2.7 and 3.2 → 2.6 %. Rejected: leaving the half with more waiting out (raw 12.4 and 15.1 %),
//! the time less the waiting (17.1 and 35.3 %), the Hodges–Lehmann mean over passes (9.2 and 15.0 %). At 64 connections a
//! pass lasts 60 ms and weights change nothing (5.2 → 5.3 %), so there they are not used.

use crate::engine::clock::Nanos;

/// How fast a weight falls with waiting: a pass that waited 1 % of its time counts half.
const PER_PART_WAITED: f64 = 100.0;

/// What was counted of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SliceTally {
    pub(super) length: Nanos,
    pub(super) operations: u64,
    /// Sum of the latencies of its exchanges.
    pub(super) latencies: Nanos,
    pub(super) exchanges: u64,
}

/// The weights of all passes. `waited` has each slice's waiting in nanoseconds in the order of slices, `arms` of which are a
/// pass; `lengths` the time counted of each pass.
pub(super) fn weights(waited: &[u64], arms: usize, lengths: &[Nanos]) -> Vec<f64> {
    let mut weights = Vec::with_capacity(lengths.len());
    for (pass, length) in waited.chunks(arms.max(1)).zip(lengths) {
        let waited = pass.iter().sum::<u64>() as f64 / (*length).max(1) as f64;
        weights.push(1.0 / (1.0 + PER_PART_WAITED * waited));
    }
    weights
}

/// Mean latency in nanoseconds and operations per second of an arm, its slices weighed.
pub(super) fn weighed(slices: &[SliceTally], weights: &[f64]) -> Option<(f64, f64)> {
    let (mut latency, mut exchanges, mut operations, mut seconds) = (0.0, 0.0, 0.0, 0.0);
    for (slice, weight) in slices.iter().zip(weights) {
        latency += weight * slice.latencies as f64;
        exchanges += weight * slice.exchanges as f64;
        operations += weight * slice.operations as f64;
        seconds += weight * slice.length as f64 / 1e9;
    }
    (exchanges > 0.0 && seconds > 0.0).then(|| (latency / exchanges, operations / seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(length: Nanos, exchanges: u64) -> SliceTally {
        SliceTally { length, operations: 2 * exchanges, latencies: length, exchanges }
    }

    #[test]
    fn a_pass_that_waited_counts_less_for_all_of_its_arms() {
        // Two arms, three passes; in the second pass only the first arm waited.
        let found = weights(&[0, 0, 10, 0, 0, 0], 2, &[1000, 1000, 1000]);
        assert_eq!(found, [1.0, 0.5, 1.0]);
        assert_eq!(weights(&[0, 0, 0, 10, 0, 0], 2, &[1000, 1000, 1000]), found, "whichever arm it was");
    }

    #[test]
    fn means_are_weighed_and_without_waiting_they_are_plain() {
        let slices = [slice(1_000_000, 100), slice(3_000_000, 100)];
        let (mean, per_s) = weighed(&slices, &[1.0, 1.0]).unwrap();
        assert!((mean - 20_000.0).abs() < 1e-6 && (per_s - 100_000.0).abs() < 1e-6, "{mean} {per_s}");
        let (mean, per_s) = weighed(&slices, &[1.0, 0.0]).unwrap();
        assert!((mean - 10_000.0).abs() < 1e-6 && (per_s - 200_000.0).abs() < 1e-6, "{mean} {per_s}");
        assert_eq!(weighed(&slices, &[0.0, 0.0]), None);
    }
}
