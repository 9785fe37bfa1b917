//! What to measure, what that gave, and who is told meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use samehost_model::{Placement, Profile, RateSpec, Report, Transport};

use crate::engine::arrivals::Spacing;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::measure::Observer;
use crate::points::Wishes;
use crate::profile::CallGraph;
use crate::workload::Parameters;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Request {
    /// This program, which serves the built-in servers.
    pub program: PathBuf,
    /// The command line, secrets removed, for the report.
    pub command: Vec<String>,
    /// Transports; empty for the workload's first two.
    pub transports: Vec<Transport>,
    /// Connections; empty for the workload's default.
    pub connections: Vec<u32>,
    /// Open-loop rates; empty for a closed loop.
    pub rates: Vec<RateSpec>,
    /// How due requests are spread.
    pub spacing: Spacing,
    /// Sizes; empty for the workload's default.
    pub sizes: Vec<u64>,
    /// Placements; empty for the usual one.
    pub placements: Vec<Placement>,
    /// Whether idle CPUs are kept from sleeping.
    pub awake: bool,
    /// Congestion controls; empty for what the machine has by default.
    pub congestion: Vec<String>,
    /// Whether routes of a private network set them even where each socket could be set: to see what a route does.
    pub congestion_by_routes: bool,
    /// Bytes of socket buffers; empty for what the kernel gives.
    pub socket_buffers: Vec<u64>,
    /// Whether each arm has a private server of its own.
    pub own_servers: bool,
    /// How many private servers are used in turn at most, where a start takes seconds; none for the usual number.
    pub most_servers: Option<u32>,
    /// Client threads.
    pub threads: u32,
    /// How much to measure.
    pub wishes: Wishes,
    /// Seed of order and schedules.
    pub seed: u64,
    /// Addresses of servers that already run, by transport.
    pub servers: BTreeMap<Transport, String>,
    /// Values of the workload's parameters.
    pub parameters: Parameters,
    /// Commands by arm name.
    pub commands: Vec<(String, String)>,
    /// How to find callers in a profile of where the CPU time goes; none for no profile.
    pub profile: Option<CallGraph>,
    /// An earlier part of this measurement: its trials count, and measuring goes on after them.
    pub earlier: Option<Arc<Report>>,
    /// Set by a signal.
    pub interrupted: Arc<AtomicBool>,
}

impl Request {
    /// A request with every default.
    #[must_use]
    pub fn new(program: PathBuf, command: Vec<String>, interrupted: Arc<AtomicBool>) -> Self {
        Request {
            program,
            command,
            transports: Vec::new(),
            connections: Vec::new(),
            rates: Vec::new(),
            spacing: Spacing::default(),
            sizes: Vec::new(),
            placements: Vec::new(),
            awake: false,
            congestion: Vec::new(),
            congestion_by_routes: false,
            socket_buffers: Vec::new(),
            own_servers: false,
            most_servers: None,
            threads: 1,
            wishes: Wishes::default(),
            seed: 0,
            servers: BTreeMap::new(),
            parameters: Parameters::new(),
            commands: Vec::new(),
            profile: None,
            earlier: None,
            interrupted,
        }
    }
}

/// What a measurement gave: always a report once something was measured, and the failure that ended it early.
#[derive(Debug)]
pub struct Benched {
    /// The report, analysed.
    pub report: Report,
    /// What ended it early.
    pub failure: Option<BenchError>,
}

/// An observer that also keeps the trials as they come.
pub trait Recorder: Observer + Send {
    /// Everything about the report that is known before the first trial. May fill in when it began.
    fn head(&mut self, _report: &mut Report) {}
    /// What measuring does to servers that already run, for so many seconds at most. Nothing was written yet, and with an
    /// error nothing is.
    ///
    /// # Errors
    /// When that is not to be done.
    fn consent(&mut self, _impacts: &[Impact], _seconds: f64) -> Result<(), BenchError> {
        Ok(())
    }
    /// An arm was profiled.
    fn profile(&mut self, _profile: &Profile) {}
}

impl Recorder for crate::measure::Silent {}
