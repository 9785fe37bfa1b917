//! Load engine: drives one trial, or one round of slices, and is the only code that reads the time of a
//! request. It knows nothing of what is exchanged, compared or printed.
//!
//! Start reading at [`drive`]. `workers` starts the threads and reads the meters; `blocking` and `epoll`
//! drive connections, `bulk` streams; `recorder` counts; `slices` does the same for a round.

pub mod blocking;
pub mod bulk;
pub mod burst;
pub mod client;
mod epoll;
pub(crate) mod floor;
mod interruptions;
pub mod process;
pub mod recorder;
pub mod session;
pub mod slices;
pub mod trial;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, Timespec, clock_gettime};
use samehost_model::Trial;

use crate::error::BenchError;
use crate::machine::CpuPlan;
use session::{Caller, Connector, Seen};

/// Work of one trial: what a workload hands to the engine, which alone reads the clock.
/// Each kind is driven by one file of this folder. A workload says what is exchanged, and the engine says
/// when. A run loop in each workload was rejected: a workload would need a clock, and each would drive
/// its load in its own way.
pub enum Job {
    Sessions {
        connector: Arc<dyn Connector>,
        /// Whether requests and replies are so small that one blocking connection cannot deadlock.
        small: bool,
    },
    /// Callers that own their sockets, one a connection, each in its own thread.
    Callers {
        /// Whom they call, for errors.
        endpoint: String,
        /// Evidence of a connection that was made before the trial, as a look at each would be a part of what is measured;
        /// `None` where callers keep their connections.
        seen: Option<Seen>,
        callers: Vec<Box<dyn Caller>>,
    },
    /// A stream to a receiver that acknowledges what it received.
    Bulk(bulk::Writer),
    /// One exchange on a fresh connection; the reply may be long.
    Whole {
        connector: Arc<dyn Connector>,
    },
    Burst(burst::BurstJob),
    /// A program that generates the load itself, in a closed loop.
    Client(client::ClientJob),
    Process(process::ProcessJob),
}

impl Job {
    /// Callers of an endpoint, one for each connection, made by their numbers from 0.
    pub(crate) fn callers<C: Caller + 'static>(
        endpoint: &impl ToString,
        seen: Option<Seen>,
        connections: u32,
        mut caller: impl FnMut(u32) -> Result<C, BenchError>,
    ) -> Result<Job, BenchError> {
        let mut callers: Vec<Box<dyn Caller>> = Vec::new();
        for number in 0..connections {
            callers.push(Box::new(caller(number)?));
        }
        Ok(Job::Callers { endpoint: endpoint.to_string(), seen, callers })
    }
}

#[derive(Clone, Debug)]
pub struct Load {
    pub connections: u32,
    pub threads: u32,
    /// `None` in a closed loop.
    pub open_loop: Option<OpenLoop>,
    pub warm_up: Duration,
    /// Length of the window, which begins after the warm-up.
    pub length: Duration,
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

/// Requests are due at given times, whatever the replies do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLoop {
    pub rate_per_s: f64,
    pub seed: u64,
    /// How long before a due time the engine stops sleeping and polls.
    pub spin: Duration,
}

#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Processes of the server; empty if we may not see them.
    pub server_pids: Vec<u32>,
    /// Processes of a proxy between client and server, such as nginx; empty without one.
    pub proxy_pids: Vec<u32>,
    /// Set by a signal handler; the trial then stops.
    pub interrupted: Arc<AtomicBool>,
    pub cpus: u32,
    /// How long to wait for a reply after the window.
    pub patience: Duration,
}

/// Drives one trial, and returns what was counted in its window and what client, server and machine used meanwhile. The
/// caller fills in its identity (arm, block, position).
///
/// # Errors
/// When connecting fails, the server goes away or does not reply in time, and [`BenchError::Interrupted`] after a
/// signal. A wrong or refused reply is not an error: it is counted in the trial.
pub fn drive(job: Job, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    match job {
        Job::Sessions { connector, small } => workers::sessions(&connector, small, load, surroundings),
        Job::Callers { endpoint, seen, callers } => {
            workers::callers(&endpoint, seen, callers, load, surroundings)
        }
        Job::Bulk(writer) => workers::bulk(writer, load, surroundings),
        Job::Whole { connector } => workers::whole(&connector, load, surroundings),
        Job::Burst(job) => workers::burst(job, load, surroundings),
        Job::Client(job) => client::drive(job, load, surroundings),
        Job::Process(job) => workers::process(&job, surroundings),
    }
}

// The only clock. The times at which the requests of an open loop are due are drawn here too, from the seed, before the
// trial: they do not depend on the replies.

/// Nanoseconds of `CLOCK_MONOTONIC`, or a difference of two readings. No code outside the engine reads the time of a
/// request.
pub type Nanos = u64;

/// One call of the vDSO; makes no system call if the kernel's clock source allows it.
#[inline]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Saturates.
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

pub fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

fn sleep_until(moment: Nanos) {
    loop {
        let left = moment.saturating_sub(now());
        if left == 0 {
            return;
        }
        // Returns early only on a signal; the loop then sleeps for the rest.
        let _ = rustix::thread::nanosleep(&timespec(left));
    }
}

/// Measured part of a trial. From `open` on the load runs; requests before `start` warm up; from `end` on nothing is
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub open: Nanos,
    pub start: Nanos,
    pub end: Nanos,
}

impl Window {
    /// A window whose load begins now, and whose counted part begins after the warm-up.
    pub fn from_now(warm_up: Duration, length: Duration) -> Self {
        let open = now();
        let start = open + nanos(warm_up);
        Window { open, start, end: start + nanos(length) }
    }

    pub fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}

/// Due times, ascending, in nanoseconds from the start of `span`; exactly `rate_per_s` × `span` of them.
/// A Poisson process given its number of events is that many independent uniform moments, sorted (Ross,
/// Stochastic Processes, 1996, theorem 2.3.1). So gaps are as irregular as they should be, and the
/// offered number is the same in each trial and arm. A free Poisson count was rejected: one of 50,000
/// strays by 0.45 %, and chance alone would change the offered load from trial to trial
/// (docs/method.md §9).
pub fn arrivals(rate_per_s: f64, span: Nanos, seed: u64) -> Vec<Nanos> {
    let count = (rate_per_s * span as f64 / 1e9).round() as usize;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut due: Vec<Nanos> = (0..count).map(|_| random.random_range(0..span)).collect();
    due.sort_unstable();
    due
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
        let job = Job::callers(&"tcp:127.0.0.1:1", None, 1, |_| Ok(Stuck)).unwrap();
        let error = drive(job, &load, &surroundings).unwrap_err().to_string();
        assert!(error.contains("tcp:127.0.0.1:1"), "{error}");
    }

    #[test]
    fn the_offered_number_is_exact_and_the_seed_decides() {
        let of_seed = |seed| arrivals(50_000.0, 200_000_000, seed);
        let due = of_seed(7);
        assert_eq!(due.len(), 10_000);
        assert!(due.is_sorted() && due.iter().all(|moment| *moment < 200_000_000));
        assert_eq!(due, of_seed(7));
        assert_ne!(due, of_seed(8));
    }

    #[test]
    fn gaps_of_a_poisson_schedule_are_exponential() {
        let due = arrivals(100_000.0, 1_000_000_000, 1);
        let mean = 10_000.0;
        let gaps: Vec<f64> = due.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        for (multiple, expected) in [(0.5, 0.6065), (1.0, 0.3679), (3.0, 0.0498)] {
            let longer = gaps.iter().filter(|gap| **gap > multiple * mean).count() as f64 / gaps.len() as f64;
            assert!((longer - expected).abs() < 0.005, "{multiple}: {longer} instead of {expected}");
        }
    }
}
