//! What to measure, the result, and the interface to the caller during a measurement.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use samehost_model::{Placement, RateSpec, Report, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::measure::Observer;
use crate::parameters::Parameters;
use crate::plan::blocks::StopOptions;
use crate::served::Servers;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub program: PathBuf,
    /// Command line, redacted, for the report.
    pub command: Vec<String>,
    /// Empty for the workload's first two.
    pub transports: Vec<Transport>,
    /// Empty for the workload's default, as `sizes`.
    pub connections: Vec<u32>,
    pub rates: Vec<RateSpec>,
    pub sizes: Vec<u64>,
    /// Empty for the usual placement.
    pub placements: Vec<Placement>,
    pub awake: KeepAwake,
    /// Congestion controls; empty for the machine's default.
    pub congestion: Vec<String>,
    /// Whether routes of a private network set them even if each socket could be set: shows the effect of a route.
    pub congestion_by_routes: bool,
    /// Bytes of socket buffers; empty for the kernel's default.
    pub socket_buffers: Vec<u64>,
    /// The most private servers used in turn if a start takes seconds; `None` for the usual number.
    pub most_servers: Option<u32>,
    pub threads: u32,
    pub stop: StopOptions,
    pub seed: u64,
    pub servers: Servers,
    pub parameters: Parameters,
    /// Commands by arm name.
    pub commands: Vec<(String, String)>,
    /// Earlier part of this measurement: its trials count, and measuring continues after them.
    pub earlier: Option<Arc<Report>>,
    pub interrupted: Arc<AtomicBool>,
}

/// Whether idle CPUs are kept from sleeping, for all arms alike.
///
/// They are by default, in every measurement: waking two idle CPUs is most of what one request costs on a virtual machine
/// (45 of 58 µs here), is not a property of a transport, and does not occur on a machine at work. The checkup and `bench`
/// answered one question with 28 and 13 % less, because only one of them kept CPUs awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAwake {
    /// Where that is possible, unless what the scheduler chooses is asked for (`--placement free`).
    #[default]
    Usual,
    Yes,
    No,
}

impl Request {
    #[must_use]
    pub fn new(program: PathBuf, command: Vec<String>, interrupted: Arc<AtomicBool>) -> Self {
        Request { program, command, threads: 1, interrupted, ..Request::default() }
    }
}

/// Result of a measurement: always a report once something was measured, and the error that ended it early.
#[derive(Debug)]
pub struct BenchOutcome {
    pub report: Report,
    pub failure: Option<BenchError>,
}

/// An observer that also receives the report's head, and asks the user for consent.
pub trait Recorder: Observer + Send {
    /// Receives the report's head before the first trial. May fill in the start time.
    fn head(&mut self, _report: &mut Report) {}
    /// Asks for consent to the impact on servers that are already running, for at most so many seconds.
    /// Nothing has been written so far; after an error nothing is.
    ///
    /// # Errors
    /// When the user declines.
    fn consent(&mut self, _impacts: &[Impact], _seconds: f64) -> Result<(), BenchError> {
        Ok(())
    }
}
