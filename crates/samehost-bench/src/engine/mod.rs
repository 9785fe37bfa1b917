//! The load engine: the only place that reads the time of a request. It knows how to drive a load, and nothing
//! of what is exchanged, compared or printed.

pub mod arrivals;
pub mod bulk;
pub mod burst;
pub mod callers;
pub mod client;
pub mod clock;
pub mod count;
pub mod process;
pub mod recorder;
pub mod seen;
pub mod session;
pub mod slices;
pub mod whole;

mod blocking;
mod epoll;
mod trial;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use samehost_model::Trial;

use crate::error::BenchError;
use crate::machine::CpuPlan;
use arrivals::Spacing;
use session::{Caller, Connector};

/// What a trial drives.
pub enum Job {
    /// Conversations over streams that the engine drives.
    Sessions {
        /// Opens them.
        connector: Arc<dyn Connector>,
        /// Whether requests and replies are so small that one blocking connection cannot lock up.
        small: bool,
    },
    /// Conversations that own their sockets: one caller a connection, each in its own thread.
    Callers(Vec<Box<dyn Caller>>),
    /// A stream to a receiver that acknowledges.
    Bulk(bulk::Writer),
    /// One exchange on a fresh connection, however long its reply.
    Whole {
        /// Opens the connection.
        connector: Arc<dyn Connector>,
    },
    /// Many connects at once.
    Burst(burst::BurstJob),
    /// A program that makes the load itself, in a closed loop.
    Client(client::ClientJob),
    /// One whole command.
    Process(process::ProcessJob),
}

/// How it is driven.
#[derive(Clone, Debug)]
pub struct Load {
    /// Connections open at the same time.
    pub connections: u32,
    /// Threads that share them.
    pub threads: u32,
    /// The open loop; none for a closed one.
    pub open_loop: Option<OpenLoop>,
    /// Load before the window.
    pub warm_up: Duration,
    /// The window.
    pub length: Duration,
    /// Where client and server run.
    pub cpus: CpuPlan,
    /// Whether the server is ours to place: one that already ran keeps its CPUs.
    pub places_server: bool,
}

impl Load {
    /// Puts the server where it belongs, if it is ours.
    fn place(&self, surroundings: &Surroundings) {
        if self.places_server {
            self.cpus.place_server(&surroundings.server_pids);
            self.cpus.place_server(&surroundings.proxy_pids);
        }
    }
}

/// Requests due at given times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLoop {
    /// Requests due per second.
    pub rate_per_s: f64,
    /// How they are spread.
    pub spacing: Spacing,
    /// Decides the schedule.
    pub seed: u64,
    /// How long before a due moment the engine stops sleeping and polls.
    pub spin: Duration,
}

/// What a trial may ask of its surroundings.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The server's processes; empty when they are not ours to see.
    pub server_pids: Vec<u32>,
    /// The processes of what stands between client and server, such as nginx; empty where nothing does.
    pub proxy_pids: Vec<u32>,
    /// Set by a signal.
    pub interrupted: Arc<AtomicBool>,
    /// CPUs of the machine.
    pub cpus: u32,
    /// How long to wait for a reply after the window.
    pub patience: Duration,
}

/// Drives one trial. The trial's identity (arm, block, position) is the caller's to fill in.
///
/// # Errors
/// When the server cannot be reached or goes away, or a signal asked to stop.
pub fn drive(job: Job, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    match job {
        Job::Sessions { connector, small } => workers::sessions(&connector, small, load, surroundings),
        Job::Callers(callers) => workers::callers(callers, load, surroundings),
        Job::Bulk(writer) => workers::bulk(writer, load, surroundings),
        Job::Whole { connector } => workers::whole(&connector, load, surroundings),
        Job::Burst(job) => workers::burst(job, load, surroundings),
        Job::Client(job) => client::drive(job, load, surroundings),
        Job::Process(job) => workers::process(&job, surroundings),
    }
}
