//! The floor of the harness: an operation that does nothing, timed and counted like any other.

use super::Job;
use super::session::{Bad, Caller};
use crate::error::BenchError;

struct Nothing;

impl Caller for Nothing {
    fn call(&mut self) -> Result<(), Bad> {
        Ok(())
    }
}

pub(crate) fn job() -> Result<Job, BenchError> {
    Job::callers(&"nothing", None, 1, |_| Ok(Nothing))
}
