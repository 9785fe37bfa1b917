//! Counts one arm's slices. The first exchanges of a slice and those in flight at its end are not counted.
//! The counted part starts and ends with a completed exchange, so that operations ÷ time is right however
//! short a slice is.

use samehost_model::{Slices, Trial};

use crate::engine::bulk::BulkTally;
use crate::engine::clock::{Nanos, now};
use crate::engine::interruptions::{Heard, Interruptions};
use crate::engine::recorder::Tally;
use crate::engine::trial::{Count, Metered, add_usage, leave_out, of_counted};
use crate::machine::{ServerUse, ThreadUse};

/// Phase of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// First exchanges, not counted.
    Settling,
    Measuring,
    /// Enough was counted; replies that still arrive are not.
    Over,
}

/// Counts of an arm over all its slices so far.
#[derive(Debug)]
pub(in crate::engine) struct SliceCounter {
    pub(in crate::engine) tally: Tally,
    /// All operations, including those at the ends of slices that are not counted: they took CPU time too.
    pub(in crate::engine) driven: u64,
    /// Bytes of a stream; 0 for requests.
    pub(in crate::engine) bytes: u64,
    /// Total length of the counted parts.
    pub(in crate::engine) measured: Nanos,
    /// Number of slices.
    pub(in crate::engine) slices: u32,
    /// Total time from the end of the counted part to the last reply.
    pub(super) draining: Nanos,
    /// Sum of the latencies of the first exchange of each slice.
    first: Nanos,
    firsts: u32,
    levels: Levels,
    operations_per_exchange: u64,
    /// Exchanges at the start of each slice that are not counted.
    settling: u64,
    phase: Phase,
    left: u64,
    length: Nanos,
    began: Nanos,
    ended: Nanos,
    in_slice: u64,
    /// With one connection: exchanges that waited for a CPU.
    interruptions: Option<Interruptions>,
}

/// Mean and variance of ln(time per operation) over slices (Welford's algorithm).
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    number: f64,
    mean: f64,
    squares: f64,
}

impl Levels {
    fn add(&mut self, value: f64) {
        self.number += 1.0;
        let step = value - self.mean;
        self.mean += step / self.number;
        self.squares += step * (value - self.mean);
    }
}

impl SliceCounter {
    /// Leaves out `settling` exchanges at the start of each slice.
    pub(super) fn new(operations_per_exchange: u64, settling: u64) -> Self {
        SliceCounter {
            tally: Tally::new(false),
            driven: 0,
            bytes: 0,
            measured: 0,
            slices: 0,
            draining: 0,
            first: 0,
            firsts: 0,
            levels: Levels::default(),
            operations_per_exchange,
            settling,
            phase: Phase::Over,
            left: 0,
            length: 0,
            began: 0,
            ended: 0,
            in_slice: 0,
            interruptions: None,
        }
    }

    /// Discards the counts of the warm-up.
    pub(super) fn forget(&mut self) {
        *self = SliceCounter::new(self.operations_per_exchange, self.settling);
    }

    /// Leaves exchanges that waited for a CPU out of the mean from now on.
    pub(super) fn leave_out(&mut self, interruptions: Interruptions) {
        self.interruptions = Some(interruptions);
    }

    pub(super) fn begin(&mut self, length: Nanos) {
        self.length = length;
        self.left = self.settling;
        self.in_slice = 0;
        if let Some(interruptions) = &mut self.interruptions {
            interruptions.begin();
        }
        self.phase = Phase::Settling;
        if self.left == 0 {
            self.measure_from(now());
        }
    }

    /// The slice's last reply came at `at`.
    pub(super) fn drained(&mut self, at: Nanos) {
        self.draining += at.saturating_sub(self.ended);
    }

    /// Mean latency of the first exchange of a slice, as a multiple of the mean latency of the others.
    pub(in crate::engine) fn first_ratio(&self) -> Option<f64> {
        let mean = self.tally.latency.mean();
        (self.firsts > 0 && mean > 0.0).then(|| self.first as f64 / f64::from(self.firsts) / mean)
    }

    /// Standard deviation of ln(time per operation) over slices.
    pub(in crate::engine) fn scatter(&self) -> Option<f64> {
        (self.levels.number > 1.0).then(|| (self.levels.squares / (self.levels.number - 1.0)).sqrt())
    }

    fn measure_from(&mut self, at: Nanos) {
        self.phase = Phase::Measuring;
        self.began = at;
    }

    fn settled(&mut self, at: Nanos) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.measure_from(at);
        }
    }

    /// Counts a slice of a stream, from the first byte to the acknowledgement of the last. How much is
    /// written is decided beforehand.
    pub(super) fn streamed(&mut self, written: &BulkTally, ended: Nanos) {
        self.driven += written.messages;
        self.tally.operations += written.messages;
        self.bytes += written.bytes;
        self.in_slice = written.messages;
        self.began = ended.saturating_sub(written.elapsed);
        self.end(ended);
    }

    #[cold]
    fn end(&mut self, at: Nanos) {
        self.phase = Phase::Over;
        self.ended = at;
        self.slices += 1;
        let length = at - self.began;
        self.measured += length;
        if let Some(interruptions) = &mut self.interruptions {
            interruptions.learn();
        }
        if self.in_slice > 0 {
            self.levels.add((length as f64 / self.in_slice as f64).ln());
        }
    }

    /// Trial of the slices of an arm in a round. What happened at the ends of slices took CPU time and completed
    /// operations: it counts for CPU time per operation, not for throughput or latency.
    pub(super) fn trial(&self, mut client: ThreadUse, metered: Metered, border: f64) -> Trial {
        let reading = self.interruptions.as_ref().map_or(0, Interruptions::reading_ns);
        client.cpu_ns = client.cpu_ns.saturating_sub(reading);
        let counted = self.tally.operations as f64 / self.driven.max(1) as f64;
        let part = |amount: u64| (amount as f64 * counted) as u64;
        let per_operation = |used: ServerUse| ServerUse {
            cpu_ns: part(used.cpu_ns),
            switches: used.switches.map(part),
            ..used
        };
        let client = ThreadUse {
            cpu_ns: part(client.cpu_ns),
            wait_ns: part(client.wait_ns),
            user_us: part(client.user_us),
            system_us: part(client.system_us),
            switches: part(client.switches),
        };
        let metered = Metered {
            server: metered.server.map(per_operation),
            proxy: metered.proxy.map(per_operation),
            ..metered
        };
        let seconds = (self.measured as f64 / 1e9).max(1e-9);
        let mut trial = of_counted(&self.tally, seconds);
        trial.tenths = Vec::new();
        if self.bytes > 0 {
            trial.latency_us = None;
            trial.bytes_per_s = Some(self.bytes as f64 / seconds);
        }
        if let Some(interruptions) = &self.interruptions {
            leave_out(&mut trial, &interruptions.sums());
        }
        add_usage(&mut trial, client, 1, metered);
        trial.slices = Some(Slices {
            number: self.slices,
            length_ms: seconds * 1e3 / f64::from(self.slices.max(1)),
            border_percent: border * 100.0,
            first_ratio: self.first_ratio(),
            scatter_percent: self.scatter().map(|scatter| scatter * 100.0),
            are_weighed: false,
        });
        trial
    }
}

impl Count for SliceCounter {
    const GOES_ON: bool = true;

    #[inline]
    fn done(&mut self, at: Nanos, due: Nanos, _: Nanos) -> bool {
        self.driven += self.operations_per_exchange;
        match self.phase {
            Phase::Measuring => {
                self.tally.operations += self.operations_per_exchange;
                self.in_slice += self.operations_per_exchange;
                let latency = at - due;
                let heard = self.interruptions.as_mut().map_or(Heard::Whole, |found| found.hear(latency));
                if heard != Heard::Disturbed {
                    self.tally.latency.saturating_record(latency);
                }
            }
            Phase::Settling => {
                if self.left == self.settling {
                    self.first += at - due;
                    self.firsts += 1;
                }
                self.settled(at);
            }
            Phase::Over => {}
        }
        self.advance(at)
    }

    /// A failure counts in every phase of a slice.
    #[cold]
    fn failed(&mut self, kind: &str) {
        *self.tally.errors.entry(kind.to_owned()).or_default() += self.operations_per_exchange;
        if self.phase == Phase::Settling {
            self.settled(now());
        }
    }

    #[inline]
    fn advance(&mut self, at: Nanos) -> bool {
        if self.phase == Phase::Measuring && at - self.began >= self.length {
            self.end(at);
        }
        self.phase != Phase::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_exchanges_and_what_comes_after_the_end_are_not_counted() {
        let mut counter = SliceCounter::new(1, 2);
        counter.begin(100);
        assert!(counter.done(50, 0, 0), "the first");
        assert!(counter.done(70, 50, 50), "the second: counting begins when it is done");
        assert!(counter.done(110, 70, 70));
        assert!(!counter.done(180, 110, 110), "a hundred have passed since 70");
        assert!(!counter.done(200, 110, 110), "drained");
        counter.drained(200);
        assert_eq!((counter.tally.operations, counter.driven), (2, 5));
        assert_eq!((counter.measured, counter.draining, counter.slices), (110, 20, 1));
        assert_eq!(counter.tally.latency.max(), 70);
        assert_eq!(counter.first_ratio(), Some(50.0 / 55.0));
    }

    #[test]
    fn slices_add_up_and_warming_up_is_forgotten() {
        let mut counter = SliceCounter::new(16, 1);
        counter.begin(10);
        counter.done(30, 0, 0);
        counter.done(60, 30, 30);
        counter.forget();
        assert_eq!((counter.driven, counter.measured, counter.slices), (0, 0, 0));
        for at in [1000, 2000] {
            counter.begin(10);
            counter.done(at, at - 5, at - 5);
            counter.done(at + 20, at, at);
        }
        assert_eq!((counter.tally.operations, counter.driven, counter.measured), (32, 64, 40));
        assert_eq!(counter.scatter(), Some(0.0), "both took 20 ns for 16 operations");
    }

    #[test]
    fn a_failure_counts_wherever_it_happens_and_settles_too() {
        let mut counter = SliceCounter::new(1, 1);
        counter.begin(1_000_000_000_000);
        counter.failed("connection closed");
        let at = now();
        assert!(counter.done(at, at - 1, at - 1));
        counter.failed("connection closed");
        assert_eq!((counter.tally.operations, counter.tally.errors["connection closed"]), (1, 2));
        assert!(counter.advance(at + 1));
        assert!(!counter.advance(at + 2_000_000_000_000), "time passes without a reply, too");
        assert_eq!(counter.slices, 1);
    }

    #[test]
    fn of_a_stream_all_counts_until_the_acknowledgement() {
        let mut counter = SliceCounter::new(1, 0);
        for (messages, elapsed, ended) in [(10, 1000, 5000), (30, 3000, 9000)] {
            counter.begin(1000);
            counter.streamed(&BulkTally { messages, bytes: messages * 64, elapsed }, ended);
            counter.drained(ended);
        }
        assert_eq!((counter.tally.operations, counter.driven, counter.bytes), (40, 40, 2560));
        assert_eq!((counter.measured, counter.draining, counter.slices), (4000, 0, 2));
        assert_eq!(counter.scatter(), Some(0.0));
    }
}
