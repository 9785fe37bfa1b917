//! One slice on connections that stay: requests on all of them until enough was counted, and then until every reply is in.

use super::{Driver, EVENTS, LONGEST_SLEEP};
use crate::engine::clock::{Nanos, now};
use crate::engine::count::Count;
use crate::error::BenchError;

impl<C: Count> Driver<C> {
    /// What counts.
    pub fn counter(&self) -> &C {
        &self.recorder
    }

    /// What counts, to be told what comes next.
    pub fn counter_mut(&mut self) -> &mut C {
        &mut self.recorder
    }

    /// Drives one slice, and waits for what is under way at its end.
    ///
    /// # Errors
    /// When the server goes away and cannot be reached again, or a reply stays out for longer than `patience`.
    pub fn turn(&mut self, patience: Nanos) -> Result<(), BenchError> {
        self.inside = true;
        self.closed_loop()?;
        let last = now() + patience;
        let mut events = Vec::with_capacity(EVENTS);
        while self.connections.iter().any(|connection| connection.busy) {
            self.wait(&mut events, LONGEST_SLEEP)?;
            self.handle(&events)?;
            if now() > last {
                let (endpoint, seconds) = (self.connector.endpoint(), patience as f64 / 1e9);
                return Err(BenchError::Hung { endpoint, seconds });
            }
        }
        Ok(())
    }
}
