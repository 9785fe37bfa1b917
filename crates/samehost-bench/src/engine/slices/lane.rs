//! An arm in a round: its connections, how they are driven, and its counter.

use std::sync::Arc;

use samehost_transport::Stream;

use super::counter::SliceCounter;
use super::turns::Arm;
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
