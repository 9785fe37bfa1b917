//! Load engine: drives one trial, or one round of slices, and is the only code that reads the time of a
//! request. It knows nothing of what is exchanged, compared or printed.
//!
//! Start reading at [`drive`]. `workers` starts the threads and reads the meters; `blocking` and `epoll`
//! drive connections; `recorder` counts; `slices` does the same for a round.

pub mod bulk;
pub mod burst;
pub mod client;
pub mod clock;
pub mod process;
pub mod recorder;
pub mod seen;
pub mod session;
pub mod slices;
pub mod whole;

pub mod blocking;
mod epoll;
mod interruptions;
pub mod trial;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use samehost_model::Trial;

use crate::error::BenchError;
use crate::machine::CpuPlan;
use clock::Spacing;
use session::{Caller, Connector};

/// Work of one trial.
pub enum Job {
    /// Sessions over streams that the engine drives.
    Sessions {
        connector: Arc<dyn Connector>,
        /// Whether requests and replies are so small that one blocking connection cannot deadlock.
        small: bool,
    },
    /// Callers that own their sockets, one a connection, each in its own thread.
    Callers {
        /// Whom they call, for errors.
        endpoint: String,
        callers: Vec<Box<dyn Caller>>,
    },
    /// A stream to a receiver that acknowledges what it received.
    Bulk(bulk::Writer),
    /// One exchange on a fresh connection; the reply may be long.
    Whole {
        /// Opens the connection.
        connector: Arc<dyn Connector>,
    },
    /// Many connections at the same moment.
    Burst(burst::BurstJob),
    /// A program that generates the load itself, in a closed loop.
    Client(client::ClientJob),
    /// One run of a command.
    Process(process::ProcessJob),
}

/// How the work is driven.
#[derive(Clone, Debug)]
pub struct Load {
    pub connections: u32,
    /// Threads that share the connections.
    pub threads: u32,
    /// `None` in a closed loop.
    pub open_loop: Option<OpenLoop>,
    /// Warm-up before the window.
    pub warm_up: Duration,
    /// Length of the window.
    pub length: Duration,
    /// CPUs of client and server.
    pub cpus: CpuPlan,
    /// Whether we place the server: one that was already running keeps its CPUs.
    pub places_server: bool,
}

impl Load {
    /// Pins the server and the proxy to their CPUs if they are ours to place.
    fn place(&self, surroundings: &Surroundings) {
        if self.places_server {
            self.cpus.place_server(&surroundings.server_pids);
            self.cpus.place_server(&surroundings.proxy_pids);
        }
    }
}

/// Load whose requests are due at given times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLoop {
    pub rate_per_s: f64,
    pub spacing: Spacing,
    /// Seed of the arrival times.
    pub seed: u64,
    /// How long before a due time the engine stops sleeping and polls.
    pub spin: Duration,
}

/// What a trial needs to know of its surroundings.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Processes of the server; empty if we may not see them.
    pub server_pids: Vec<u32>,
    /// Processes of a proxy between client and server, such as nginx; empty without one.
    pub proxy_pids: Vec<u32>,
    /// Set by a signal handler; the trial then stops.
    pub interrupted: Arc<AtomicBool>,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// How long to wait for a reply after the window.
    pub patience: Duration,
}

/// Drives one trial. The caller fills in its identity (arm, block, position).
pub fn drive(job: Job, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    match job {
        Job::Sessions { connector, small } => workers::sessions(&connector, small, load, surroundings),
        Job::Callers { endpoint, callers } => workers::callers(&endpoint, callers, load, surroundings),
        Job::Bulk(writer) => workers::bulk(writer, load, surroundings),
        Job::Whole { connector } => workers::whole(&connector, load, surroundings),
        Job::Burst(job) => workers::burst(job, load, surroundings),
        Job::Client(job) => client::drive(job, load, surroundings),
        Job::Process(job) => workers::process(&job, surroundings),
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::Placement;

    use super::session::Bad;
    use super::*;
    use crate::machine::allowed_cpus;

    struct Stuck;

    impl Caller for Stuck {
        fn call(&mut self) -> Result<(), Bad> {
            std::thread::sleep(Duration::from_secs(5));
            Ok(())
        }
    }

    #[test]
    fn a_load_that_hangs_names_whom_it_calls() {
        let load = Load {
            connections: 1,
            threads: 1,
            open_loop: None,
            warm_up: Duration::ZERO,
            length: Duration::from_millis(10),
            cpus: CpuPlan::new(Placement::Free, &allowed_cpus()).unwrap(),
            places_server: false,
        };
        let surroundings = Surroundings {
            server_pids: Vec::new(),
            proxy_pids: Vec::new(),
            interrupted: Arc::default(),
            cpus: 1,
            patience: Duration::from_millis(10),
        };
        let job = Job::Callers { endpoint: "tcp:127.0.0.1:1".into(), callers: vec![Box::new(Stuck)] };
        let error = drive(job, &load, &surroundings).unwrap_err().to_string();
        assert!(error.contains("tcp:127.0.0.1:1"), "{error}");
    }
}
