//! An arm in a round: its connections, how they are driven, and its counter; and the order in which the arms take turns: every
//! arm once in each pass, in random order, with readings at the borders. The order does no I/O and reads no clock, so that tests can play a
//! whole round with scripted arms.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_transport::Stream;

use super::counter::SliceCounter;
use crate::engine::blocking::Single;
use crate::engine::bulk::Writer;
use crate::engine::clock::{Nanos, now};
use crate::engine::epoll::Driver;
use crate::engine::interruptions::Interruptions;
use crate::engine::session::{Connector, Session};
use crate::error::BenchError;

/// Exchanges of each connection that are not counted at the start of a slice.
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
    /// Total length of its slices, from the first request to the last reply.
    in_slices: Nanos,
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
        Ok(Lane { client, patience, in_slices: 0 })
    }

    /// An arm that writes a stream.
    pub(super) fn of_stream(writer: Writer, patience: Nanos) -> Self {
        let client = Client::Stream(Box::new(writer), Box::new(SliceCounter::new(1, 0)));
        Lane { client, patience, in_slices: 0 }
    }

    pub(super) fn counter(&self) -> &SliceCounter {
        match &self.client {
            Client::One(_, counter) | Client::Stream(_, counter) => counter,
            Client::Several(driver) => driver.counter(),
        }
    }

    fn counter_mut(&mut self) -> &mut SliceCounter {
        match &mut self.client {
            Client::One(_, counter) | Client::Stream(_, counter) => counter,
            Client::Several(driver) => driver.counter_mut(),
        }
    }

    /// The shortest exchange so far, in nanoseconds.
    pub(super) fn shortest(&self) -> Option<Nanos> {
        let latency = &self.counter().tally.latency;
        (!latency.is_empty()).then(|| latency.min())
    }

    /// Whether it has one connection, with requests.
    pub(super) fn is_one_connection(&self) -> bool {
        matches!(self.client, Client::One(..))
    }

    /// Whether it writes a stream.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.client, Client::Stream(..))
    }

    /// Leaves exchanges that waited for a CPU out of the mean from now on.
    pub(super) fn leave_out(&mut self, interruptions: Interruptions) {
        self.counter_mut().leave_out(interruptions);
    }

    /// Discards the counts of the warm-up.
    pub(super) fn forget(&mut self) {
        self.counter_mut().forget();
        self.in_slices = 0;
    }

    /// Total length of its slices, from the first request to the last reply.
    pub(super) fn in_slices(&self) -> Nanos {
        self.in_slices
    }
}

impl Arm for Lane {
    fn turn(&mut self, length: Nanos) -> Result<(), BenchError> {
        let began = now();
        self.counter_mut().begin(length);
        match &mut self.client {
            Client::One(single, counter) => single.drive(counter.as_mut())?,
            Client::Several(driver) => driver.turn(self.patience)?,
            Client::Stream(writer, counter) => counter.streamed(&writer.write(length)?, now()),
        }
        let ended = now();
        self.counter_mut().drained(ended);
        self.in_slices += ended - began;
        Ok(())
    }
}

/// An arm that can be driven for a slice, repeatedly.
pub(super) trait Arm {
    /// Drives one slice of this length; no request is in flight on return.
    fn turn(&mut self, length: Nanos) -> Result<(), BenchError>;
}

/// What is read between slices.
pub(super) trait Borders {
    /// Called before a slice of this arm.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`] after a signal.
    fn before(&mut self, arm: usize) -> Result<(), BenchError>;

    /// Called after the slice.
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
        let turns = |seed| {
            let mut borders = Counted::default();
            play(&mut arms(&Log::default(), 3), (20, 1), seed, &mut borders).unwrap();
            borders.after
        };
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
}
