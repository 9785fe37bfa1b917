//! Counts one worker's operations: histograms, errors, tenths of the window, CPU time. It does not allocate
//! during the trial, except for the first error of a kind.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::interruptions::{Heard, Interruptions, Sums, clock};
use super::{Nanos, Window, now};
use crate::machine::{ThreadUse, Threads};

/// Upper bound of the histograms: 1,000 seconds.
const MAX_LATENCY_NS: u64 = 1_000_000_000_000;

#[derive(Debug)]
pub struct Tally {
    /// Verified operations that completed inside the window.
    pub operations: u64,
    pub errors: BTreeMap<String, u64>,
    /// Latency in nanoseconds; in an open loop from the due time.
    pub latency: Histogram<u64>,
    /// Open loop: time from sending to reply, in nanoseconds.
    pub service: Option<Histogram<u64>>,
    /// Open loop: lateness in nanoseconds, that is, how late the generator sent although a connection was idle.
    pub lateness: Option<Histogram<u64>>,
    /// Operations completed in each tenth of the window.
    pub tenths: [u64; 10],
    /// CPU time of the client's threads in the window, and how many they are.
    pub usage: ThreadUse,
    pub threads: u32,
    /// One connection in a closed loop: exchanges with and without those that waited for a CPU.
    pub sums: Option<Sums>,
}

/// Histogram of nanoseconds with 3 significant digits. It allocates its counts here, before the trial.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .unwrap_or_else(|error| unreachable!("constant bounds: {error}"))
}

impl Tally {
    pub fn new(open_loop: bool) -> Self {
        Tally {
            operations: 0,
            errors: BTreeMap::new(),
            latency: histogram(),
            service: open_loop.then(histogram),
            lateness: open_loop.then(histogram),
            tenths: [0; 10],
            usage: ThreadUse::default(),
            threads: 1,
            sums: None,
        }
    }

    pub fn merge(&mut self, other: &Tally) {
        self.operations += other.operations;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        add(&mut self.latency, &other.latency);
        for (mine, theirs) in [(&mut self.service, &other.service), (&mut self.lateness, &other.lateness)] {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                add(mine, theirs);
            }
        }
        for (mine, theirs) in self.tenths.iter_mut().zip(other.tenths) {
            *mine += theirs;
        }
        self.usage += other.usage;
        self.threads += other.threads;
    }
}

impl Default for Tally {
    /// Of a closed loop.
    fn default() -> Self {
        Tally::new(false)
    }
}

fn add(mine: &mut Histogram<u64>, theirs: &Histogram<u64>) {
    mine.add(theirs).unwrap_or_else(|error| unreachable!("histograms of equal bounds: {error}"));
}

pub struct Recorder {
    tally: Tally,
    pub(super) window: Window,
    /// Next time at which more than counting is due: the start, the end of a tenth, the end.
    next_mark: Nanos,
    tenth: usize,
    started: Option<ThreadUse>,
    /// Operations per exchange, successful or failed.
    per_exchange: u64,
    /// Until the window starts: the server's threads, and the shortest exchange of the warm-up.
    warm_up: Option<(Threads, Option<Nanos>)>,
    interruptions: Option<Interruptions>,
}

impl Recorder {
    pub fn new(window: Window, open_loop: bool) -> Self {
        Recorder {
            tally: Tally::new(open_loop),
            window,
            next_mark: window.start,
            tenth: 0,
            started: None,
            per_exchange: 1,
            warm_up: None,
            interruptions: None,
        }
    }

    /// Sets how many operations an exchange (a pipeline) counts as. Its latency is recorded once.
    #[must_use]
    pub fn counting(mut self, operations_per_exchange: u64) -> Self {
        self.per_exchange = operations_per_exchange;
        self
    }

    /// Leaves exchanges that waited for a CPU out of the mean, where the server's threads are listed: for one connection in a closed
    /// loop.
    #[must_use]
    pub(super) fn leaving_out_waits(mut self, listed: Option<Threads>) -> Self {
        self.warm_up = listed.map(|listed| (listed, None));
        self
    }

    #[cold]
    fn pass_marks(&mut self, at: Nanos) -> bool {
        if self.started.is_none() {
            if let Some((listed, shortest)) = self.warm_up.take() {
                self.interruptions = Some(Interruptions::new(clock(listed), shortest));
            }
            self.started = Some(ThreadUse::current());
            self.next_mark = self.tenth_end();
        }
        while at >= self.next_mark && self.tenth < 10 {
            self.tenth += 1;
            self.next_mark = if self.tenth < 10 { self.tenth_end() } else { Nanos::MAX };
            if self.tenth == 10 {
                self.tally.usage = self.used();
            }
        }
        self.tenth < 10
    }

    fn tenth_end(&self) -> Nanos {
        self.window.start + (self.window.end - self.window.start) * (self.tenth as u64 + 1) / 10
    }

    /// Closed loop: counts an operation that completed at `at` after `latency`; false once the window is
    /// over. The latency runs from the previous completion on the connection to this one, since a closed
    /// loop sends the next request at once. One reading of the clock serves both ends; two for each
    /// request were rejected, as the second says nothing more. So the latencies of a connection add up to
    /// its window.
    #[inline]
    pub fn complete(&mut self, at: Nanos, latency: Nanos) -> bool {
        let inside = self.advance(at);
        if inside && self.started.is_some() {
            self.tally.operations += self.per_exchange;
            self.tally.tenths[self.tenth] += self.per_exchange;
            let heard = self.interruptions.as_mut().map_or(Heard::Whole, |found| found.hear(latency));
            if heard != Heard::Disturbed {
                self.tally.latency.saturating_record(latency);
            }
        } else if let Some((_, shortest)) = &mut self.warm_up {
            *shortest = Some(shortest.map_or(latency, |known| known.min(latency)));
        }
        inside
    }

    /// Open loop: counts a request, due at `due` and sent at `sent`, that completed at `at`. The latency
    /// counts if it was due inside the window, the operation if it completed inside it.
    #[inline]
    pub fn complete_due(&mut self, at: Nanos, due: Nanos, sent: Nanos) {
        if self.advance(at) && self.started.is_some() {
            self.tally.operations += self.per_exchange;
            self.tally.tenths[self.tenth] += self.per_exchange;
        }
        if self.is_counted(due) {
            self.tally.latency.saturating_record(at - due);
            if let Some(service) = &mut self.tally.service {
                service.saturating_record(at - sent);
            }
        }
    }

    /// Open loop: a request was sent `late` after the first moment at which the generator could have sent it.
    #[inline]
    pub fn sent(&mut self, due: Nanos, late: Nanos) {
        if self.is_counted(due)
            && let Some(lateness) = &mut self.tally.lateness
        {
            lateness.saturating_record(late);
        }
    }

    /// Open loop: waiting ended at `at` without a reply to the request due at `due`. Records that time as a
    /// lower bound of its latency.
    pub fn unfinished(&mut self, at: Nanos, due: Nanos) {
        if self.is_counted(due) {
            self.tally.latency.saturating_record(at.saturating_sub(due));
        }
    }

    fn is_counted(&self, due: Nanos) -> bool {
        (self.window.start..self.window.end).contains(&due)
    }

    /// Returns the counts. Reads the CPU time now if the load ended early.
    pub fn finish(mut self) -> Tally {
        self.advance(now());
        if self.tenth < 10 {
            self.tally.usage = self.used();
        }
        self.tally.sums = self.interruptions.as_ref().map(|found| found.sums);
        self.tally
    }

    fn used(&self) -> ThreadUse {
        let mut used = ThreadUse::current() - self.started.unwrap_or_default();
        let reading = self.interruptions.as_ref().map_or(0, Interruptions::reading_ns);
        used.cpu_ns = used.cpu_ns.saturating_sub(reading);
        used
    }
}

/// What a driver reports each exchange to, and which says when there are enough: the window of a trial, or a slice.
pub trait Count {
    /// Whether the connections are used again afterwards, as those of a round are in the next slice. If so, one that
    /// breaks at the end is reopened.
    const GOES_ON: bool;

    /// Counts an exchange that was due and sent at these times and completed at `at`. Returns false once there are enough.
    /// In a closed loop a request is due when the exchange before it was done.
    fn done(&mut self, at: Nanos, due: Nanos, sent: Nanos) -> bool;

    fn failed(&mut self, kind: &str);

    /// Advances the time to `at`. Returns false once there are enough.
    fn advance(&mut self, at: Nanos) -> bool;
}

impl Count for Recorder {
    const GOES_ON: bool = false;

    #[inline]
    fn done(&mut self, at: Nanos, due: Nanos, sent: Nanos) -> bool {
        if self.tally.service.is_some() {
            self.complete_due(at, due, sent);
            return true;
        }
        self.complete(at, at - due)
    }

    /// Counts a failed exchange with all its operations if inside the window.
    #[cold]
    fn failed(&mut self, kind: &str) {
        self.advance(now());
        if self.started.is_some() && self.tenth < 10 {
            match self.tally.errors.get_mut(kind) {
                Some(count) => *count += self.per_exchange,
                None => {
                    self.tally.errors.insert(kind.to_owned(), self.per_exchange);
                }
            }
        }
    }

    /// Ends the tenths of the window that end before `at`; false once the window is over. Called for each completion, so
    /// that the usual case is one comparison.
    #[inline]
    fn advance(&mut self, at: Nanos) -> bool {
        if at < self.next_mark { self.tenth < 10 } else { self.pass_marks(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window { open: 0, start: 1_000, end: 2_000 }
    }

    #[test]
    fn counts_only_inside_the_window_and_by_tenths() {
        let mut recorder = Recorder::new(window(), false);
        assert!(recorder.complete(999, 5));
        assert!(recorder.complete(1_000, 7));
        assert!(recorder.complete(1_099, 7));
        assert!(recorder.complete(1_550, 9));
        assert!(recorder.complete(1_999, 9));
        assert!(!recorder.complete(2_000, 9));
        assert!(!recorder.complete(2_500, 9));
        let tally = recorder.finish();
        assert_eq!(tally.operations, 4);
        assert_eq!(tally.tenths, [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(tally.latency.len(), 4);
        assert_eq!(tally.latency.max(), 9);
    }

    #[test]
    fn a_pipeline_counts_its_operations_and_one_latency() {
        let mut recorder = Recorder::new(window(), false).counting(16);
        recorder.complete(1_100, 7);
        recorder.complete(1_900, 9);
        recorder.advance(1_950);
        assert_eq!(recorder.tally.operations, 32);
        assert_eq!(recorder.tally.tenths, [0, 16, 0, 0, 0, 0, 0, 0, 0, 16]);
        assert_eq!(recorder.tally.latency.len(), 2);
    }

    #[test]
    fn open_loop_counts_from_when_it_was_due() {
        let mut recorder = Recorder::new(window(), true);
        recorder.sent(1_100, 10);
        recorder.complete_due(1_400, 1_100, 1_110);
        recorder.complete_due(2_100, 1_900, 1_950);
        recorder.complete_due(2_200, 500, 600);
        recorder.unfinished(3_000, 1_999);
        let tally = recorder.finish();
        assert_eq!(tally.operations, 1, "only one completed inside the window");
        assert_eq!(tally.latency.len(), 3, "three were due inside the window");
        assert_eq!(tally.latency.max(), 1_001);
        assert_eq!(tally.service.unwrap().max(), 290);
        assert_eq!(tally.lateness.unwrap().max(), 10);
    }
}
