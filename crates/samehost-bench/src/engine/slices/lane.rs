//! An arm in a round: its connections, how they are driven, and its counter; and the order in which the arms take turns: every
//! arm once in each pass, in random order, with readings at the borders. The order does no I/O and reads no clock, so that tests can play a
//! whole round with scripted arms.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::{Slices, Trial};
use samehost_transport::Stream;

use super::super::{Nanos, now};
use crate::engine::blocking::Single;
use crate::engine::bulk::{BulkTally, Writer};
use crate::engine::epoll::Driver;
use crate::engine::interruptions::{Heard, Interruptions};
use crate::engine::recorder::{Count, Tally};
use crate::engine::session::{Connector, Session};
use crate::engine::trial::{Metered, add_usage, leave_out, of_counted};
use crate::error::BenchError;
use crate::machine::{ServerUse, ThreadUse};

/// Exchanges of each connection that are not counted at the start of a slice.
/// The other arm's work is still in the caches then, and a server that slept has to be woken. What is
/// counted begins and ends with a completed exchange, and the one under way when the time is up counts:
/// the last exchange is a stopping time, so Σ time ÷ Σ operations has no bias however short the slices
/// are (Wald 1944, docs/method.md §1a).
const SETTLING: u64 = 2;

/// How an arm is driven, as in a trial: one connection with blocking I/O, several with epoll, or a stream in
/// one direction.
enum Client {
    One(Box<Single>, Box<SliceCounter>),
    Several(Box<Driver<SliceCounter>>),
    Stream(Box<Writer>, Box<SliceCounter>),
}

pub(super) struct Lane {
    client: Client,
    patience: Nanos,
}

impl Lane {
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        small: bool,
        mut streams: Vec<(Stream, Box<dyn Session>)>,
        patience: Nanos,
    ) -> Result<Self, BenchError> {
        let per_exchange = streams.first().map_or(1, |(_, session)| session.operations_per_exchange());
        let counter = SliceCounter::new(per_exchange, SETTLING * streams.len() as u64);
        let client = match streams.pop() {
            Some((stream, session)) if small && streams.is_empty() => {
                Client::One(Box::new(Single::new(stream, session, connector)), Box::new(counter))
            }
            last => {
                streams.extend(last);
                Client::Several(Box::new(Driver::new(streams, &connector, counter)?))
            }
        };
        Ok(Lane { client, patience })
    }

    pub(super) fn of_stream(writer: Writer, patience: Nanos) -> Self {
        let client = Client::Stream(Box::new(writer), Box::new(SliceCounter::new(1, 0)));
        Lane { client, patience }
    }

    pub(super) fn counter(&self) -> &SliceCounter {
        match &self.client {
            Client::One(_, counter) | Client::Stream(_, counter) => counter,
            Client::Several(driver) => &driver.recorder,
        }
    }

    fn counter_mut(&mut self) -> &mut SliceCounter {
        match &mut self.client {
            Client::One(_, counter) | Client::Stream(_, counter) => counter,
            Client::Several(driver) => &mut driver.recorder,
        }
    }

    pub(super) fn shortest(&self) -> Option<Nanos> {
        let latency = &self.counter().tally.latency;
        (!latency.is_empty()).then(|| latency.min())
    }

    pub(super) fn is_one_connection(&self) -> bool {
        matches!(self.client, Client::One(..))
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.client, Client::Stream(..))
    }

    pub(super) fn leave_out(&mut self, interruptions: Interruptions) {
        self.counter_mut().interruptions = Some(interruptions);
    }

    pub(super) fn forget(&mut self) {
        self.counter_mut().forget();
    }
}

impl Arm for Lane {
    fn turn(&mut self, length: Nanos) -> Result<(), BenchError> {
        self.counter_mut().begin(length);
        match &mut self.client {
            Client::One(single, counter) => single.drive(counter.as_mut())?,
            Client::Several(driver) => driver.turn(self.patience)?,
            Client::Stream(writer, counter) => counter.streamed(&writer.write(length)?, now()),
        }
        Ok(())
    }
}

pub(super) trait Arm {
    /// Drives one slice of this length; no request is in flight on return.
    fn turn(&mut self, length: Nanos) -> Result<(), BenchError>;
}

pub(super) trait Borders {
    /// Called before a slice of this arm.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`] after a signal.
    fn before(&mut self, arm: usize) -> Result<(), BenchError>;

    fn after(&mut self, arm: usize);
}

/// Gives each arm `passes` slices of this length.
///
/// Every second pass reverses the order of the one before. Each arm thus has the same position on average,
/// and drift within the two passes cancels.
pub(super) fn play(
    arms: &mut [impl Arm],
    (passes, length): (u32, Nanos),
    seed: u64,
    borders: &mut impl Borders,
) -> Result<(), BenchError> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    for pass in 0..passes {
        if pass % 2 == 0 {
            order.shuffle(&mut random);
        } else {
            order.reverse();
        }
        for arm in &order {
            borders.before(*arm)?;
            arms[*arm].turn(length)?;
            borders.after(*arm);
        }
    }
    Ok(())
}

// Counts one arm's slices. The first exchanges of a slice and those in flight at its end are not counted.
// The counted part starts and ends with a completed exchange, so that operations ÷ time is right however
// short a slice is.

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    Settling,
    Measuring,
    /// Enough was counted; replies that still arrive are not.
    #[default]
    Over,
}

#[derive(Default)]
pub(in crate::engine) struct SliceCounter {
    pub(in crate::engine) tally: Tally,
    /// All operations, including those at the ends of slices that are not counted: they took CPU time too.
    pub(in crate::engine) driven: u64,
    /// Bytes of a stream; 0 for requests.
    pub(in crate::engine) bytes: u64,
    pub(in crate::engine) measured: Nanos,
    pub(in crate::engine) slices: u32,
    operations_per_exchange: u64,
    settling: u64,
    phase: Phase,
    left: u64,
    length: Nanos,
    began: Nanos,
    /// With one connection: exchanges that waited for a CPU.
    interruptions: Option<Interruptions>,
}

impl SliceCounter {
    /// Leaves out `settling` exchanges at the start of each slice.
    pub(super) fn new(operations_per_exchange: u64, settling: u64) -> Self {
        SliceCounter { operations_per_exchange, settling, ..SliceCounter::default() }
    }

    pub(super) fn forget(&mut self) {
        *self = SliceCounter::new(self.operations_per_exchange, self.settling);
    }

    pub(super) fn begin(&mut self, length: Nanos) {
        self.length = length;
        self.left = self.settling;
        if let Some(interruptions) = &mut self.interruptions {
            interruptions.begin();
        }
        self.phase = Phase::Settling;
        if self.left == 0 {
            self.measure_from(now());
        }
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
        self.began = ended.saturating_sub(written.elapsed);
        self.end(ended);
    }

    #[cold]
    fn end(&mut self, at: Nanos) {
        self.phase = Phase::Over;
        self.slices += 1;
        self.measured += at - self.began;
        if let Some(interruptions) = &mut self.interruptions {
            interruptions.learn();
        }
    }

    /// Trial of the slices of an arm in a round. What happened at the ends of slices took CPU time and completed
    /// operations: it counts for CPU time per operation, not for throughput or latency.
    pub(super) fn trial(&self, mut client: ThreadUse, metered: Metered) -> Trial {
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
            leave_out(&mut trial, &interruptions.sums);
        }
        add_usage(&mut trial, client, 1, metered);
        trial.slices =
            Some(Slices { number: self.slices, length_ms: seconds * 1e3 / f64::from(self.slices.max(1)) });
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
                let latency = at - due;
                let heard = self.interruptions.as_mut().map_or(Heard::Whole, |found| found.hear(latency));
                if heard != Heard::Disturbed {
                    self.tally.latency.saturating_record(latency);
                }
            }
            Phase::Settling => self.settled(at),
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
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<String>>>;

    struct Scripted {
        name: usize,
        log: Log,
        fails_at: Option<u32>,
        turns: u32,
    }

    impl Arm for Scripted {
        fn turn(&mut self, length: Nanos) -> Result<(), BenchError> {
            self.turns += 1;
            if self.fails_at == Some(self.turns) {
                return Err(BenchError::Usage("the server died".into()));
            }
            self.log.borrow_mut().push(format!("{} {length}", self.name));
            Ok(())
        }
    }

    #[derive(Default)]
    struct Counted {
        before: Vec<usize>,
        after: Vec<usize>,
        stops_after: Option<usize>,
    }

    impl Borders for Counted {
        fn before(&mut self, arm: usize) -> Result<(), BenchError> {
            if self.stops_after == Some(self.after.len()) {
                return Err(BenchError::Interrupted);
            }
            self.before.push(arm);
            Ok(())
        }

        fn after(&mut self, arm: usize) {
            self.after.push(arm);
        }
    }

    fn arms(log: &Log, number: usize) -> Vec<Scripted> {
        (0..number).map(|name| Scripted { name, log: Rc::clone(log), fails_at: None, turns: 0 }).collect()
    }

    #[test]
    fn every_arm_once_a_pass_and_every_order_reversed() {
        let log = Log::default();
        let mut borders = Counted::default();
        play(&mut arms(&log, 3), (100, 7), 5, &mut borders).unwrap();
        assert_eq!(log.borrow().len(), 300);
        assert_eq!(borders.before, borders.after);
        let mut orders = std::collections::BTreeSet::new();
        let mut places = [[0_u32; 3]; 3];
        for two in borders.after.chunks(6) {
            let mut sorted = two[..3].to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            assert_eq!(two[..3].iter().rev().collect::<Vec<_>>(), two[3..].iter().collect::<Vec<_>>());
            orders.insert(two[..3].to_vec());
            two.iter().enumerate().for_each(|(place, arm)| places[*arm][place % 3] += 1);
        }
        assert_eq!(orders.len(), 6, "every order comes");
        for arm in places {
            assert_eq!(arm[0], arm[2], "as often first as last");
        }
        assert!(log.borrow().iter().all(|turn| turn.ends_with(" 7")));
    }

    #[test]
    fn the_seed_decides_the_orders() {
        fn turns(seed: u64) -> Vec<usize> {
            let mut borders = Counted::default();
            play(&mut arms(&Log::default(), 3), (20, 1), seed, &mut borders).unwrap();
            borders.after
        }
        assert_eq!(turns(1), turns(1));
        assert_ne!(turns(1), turns(2));
    }

    #[test]
    fn an_arm_that_fails_ends_the_round_and_a_signal_does() {
        let log = Log::default();
        let mut some = arms(&log, 3);
        some[1].fails_at = Some(4);
        let mut borders = Counted::default();
        let failed = play(&mut some, (10, 1), 1, &mut borders);
        assert!(failed.unwrap_err().to_string().contains("the server died"));
        assert_eq!(borders.after.iter().filter(|arm| **arm == 1).count(), 3);
        assert!(borders.after.len() < 12, "the others do not go on either");
        let mut stopped = Counted { stops_after: Some(8), ..Counted::default() };
        let result = play(&mut arms(&log, 3), (10, 1), 1, &mut stopped);
        assert!(matches!(result, Err(BenchError::Interrupted)));
        assert_eq!(stopped.after.len(), 8);
    }

    #[test]
    fn the_first_exchanges_and_what_comes_after_the_end_are_not_counted() {
        let mut counter = SliceCounter::new(1, 2);
        counter.begin(100);
        assert!(counter.done(50, 0, 0), "the first");
        assert!(counter.done(70, 50, 50), "the second: counting begins when it is done");
        assert!(counter.done(110, 70, 70));
        assert!(!counter.done(180, 110, 110), "a hundred have passed since 70");
        assert!(!counter.done(200, 110, 110), "drained");
        assert_eq!((counter.tally.operations, counter.driven), (2, 5));
        assert_eq!((counter.measured, counter.slices), (110, 1));
        assert_eq!(counter.tally.latency.max(), 70);
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
        }
        assert_eq!((counter.tally.operations, counter.driven, counter.bytes), (40, 40, 2560));
        assert_eq!((counter.measured, counter.slices), (4000, 2));
    }
}
