//! One slice on connections that stay open: sends requests on all of them until enough are counted, then
//! waits for the last replies.

use super::{Driver, EVENTS, LONGEST_SLEEP};
use crate::engine::clock::{Nanos, now};
use crate::engine::trial::Count;
use crate::error::BenchError;

impl<C: Count> Driver<C> {
    pub fn counter(&self) -> &C {
        &self.recorder
    }

    pub fn counter_mut(&mut self) -> &mut C {
        &mut self.recorder
    }

    /// Drives one slice and waits for the requests in flight at its end.
    ///
    /// # Errors
    /// When a connection breaks and cannot be opened again, or a reply takes longer than `patience`.
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
