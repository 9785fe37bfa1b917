//! The running servers, and what each trial needs from them. Makes single trials and rounds; `measure` makes blocks of them.
//! Start reading at `TrialRunner::trial`. A round has the connections of all arms of a point at once, to one server.

use samehost_system::threads;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::{Arm, Code, Driven, Plan, Report, ServerInfo, Trial, Warning};

use crate::engine::slices::{Lanes, Round};
use crate::engine::{self, Job, Load, OpenLoop, Surroundings, floor};
use crate::error::BenchError;
use crate::machine::{MachineMeter, Others, ServerMeter, families};
use crate::measure::{Aim, ArmSlot, Measurer, run_blocks};
use crate::network::OwnNetwork;
use crate::plan::Planned;
use crate::plan::arms::FLOOR;
use crate::plan::driving::Driving;
use crate::request::{BenchOutcome, Recorder, Request};
use crate::served::{Instance, StartOptions};
use crate::socket_options::{congestion, unusual};
use crate::workload::{Configured, Starts, Workload};

const FLOOR_TRIAL: Duration = Duration::from_millis(20);
/// How long a server that runs already is looked at before it is measured.
const LOOKED_AT: Duration = Duration::from_millis(400);
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct Nets {
    /// For servers behind a Unix socket.
    pub(crate) behind: Option<Arc<OwnNetwork>>,
    /// For routes that set the congestion control.
    pub(crate) routed: Option<Arc<OwnNetwork>>,
}

pub(crate) struct TrialRunner<'a> {
    pub(crate) workload: &'static dyn Workload,
    pub(crate) configured: Arc<dyn Configured>,
    start: StartOptions,
    pub(crate) request: &'a Request,
    running: Box<dyn Instance>,
    start_in_use: u32,
    /// Number of starts in an earlier part of this measurement.
    starts_before: u32,
    /// Other servers of the rotation, by number of start.
    idle: BTreeMap<u32, Box<dyn Instance>>,
    /// Time that starting servers took, which does not count for the budget.
    starting: Duration,
    surroundings: Surroundings,
    driving: Driving,
    driven: Vec<Driven>,
    trial_time: Duration,
    begun: Instant,
    trials: u64,
    routed: Option<Arc<OwnNetwork>>,
    others: Others,
    /// No more servers are started than there are blocks.
    most_blocks: u32,
}

/// Ends servers, all at the same time: each waits for its processes and for its data directory to go. Beside other programs what lies
/// between a checkup's turns, such ends most of it, took 3.4 to 4.6 s where they were ended one after the other, and 2.0 to 2.3 s with
/// this.
fn end_together(servers: impl Iterator<Item = Box<dyn Instance>>) {
    threads::all(servers.map(|server| move || drop(server)));
}

impl<'a> TrialRunner<'a> {
    pub(crate) fn new(planned: &'a Planned, cpus: u32, nets: Nets) -> Result<Self, BenchError> {
        let (workload, request, matrix) = (planned.workload, &planned.request, &planned.matrix);
        let mut transports = matrix.transports.clone();
        transports.sort_unstable();
        transports.dedup();
        let start = StartOptions {
            program: request.program.clone(),
            transports,
            congestion: request.congestion.clone(),
            socket_buffers: request.socket_buffers.clone(),
            connections_of_an_arm: matrix.connections.iter().copied().max().unwrap_or(1),
            most_connections: planned.most_at_once(),
            servers: request.servers.clone(),
            commands: request.commands.clone(),
            behind: nets.behind,
            routed: nets.routed.is_some(),
        };
        raise_file_limit(start.most_connections)?;
        if let (Some(own), Some(name)) = (&nets.routed, request.congestion.first()) {
            own.set_congestion(name)?;
        }
        let running = planned.configured.start(&start)?;
        let surroundings = Surroundings {
            server_pids: running.server().pids,
            proxy_pids: Vec::new(),
            interrupted: Arc::clone(&request.interrupted),
            cpus,
            patience: REPLY_TIMEOUT,
        };
        Ok(TrialRunner {
            workload,
            configured: Arc::clone(&planned.configured),
            start,
            request,
            running,
            start_in_use: 0,
            starts_before: 0,
            idle: BTreeMap::new(),
            starting: Duration::ZERO,
            surroundings,
            driving: planned.driving.clone(),
            driven: Vec::new(),
            trial_time: Duration::from_millis(300),
            begun: Instant::now(),
            trials: 0,
            routed: nets.routed,
            others: Others::watch(),
            most_blocks: u32::MAX,
        })
    }

    /// Sets the congestion control of the arm's point for new connections if routes do that. A connection
    /// keeps the one it was opened with.
    fn set_congestion(&self, arm: &Arm) -> Result<(), BenchError> {
        match (&self.routed, congestion(&arm.point, &self.start.congestion)) {
            (Some(own), Some(name)) => own.set_congestion(name),
            _ => Ok(()),
        }
    }

    pub(crate) fn server(&self) -> ServerInfo {
        self.running.server()
    }

    /// Starts the servers with these numbers, as many at once as there are CPUs. A database waits for the disk and for its
    /// own threads for most of its start: after the first one, whose data directory the others copy, two took as long as
    /// one. Nothing is measured meanwhile.
    fn start_the_others(&mut self, numbers: Range<u32>) -> Result<(), BenchError> {
        let (configured, start) = (&*self.configured, &self.start);
        let at_once = (self.surroundings.cpus as usize).max(1);
        for some in numbers.collect::<Vec<u32>>().chunks(at_once) {
            let one = || configured.start(start);
            let started = threads::all(some.iter().map(|_| one));
            for (number, server) in some.iter().zip(started) {
                self.idle.insert(*number, server?);
            }
        }
        Ok(())
    }

    /// What a server that runs already uses for others, in percent of one CPU: looked at for a moment before we ask
    /// anything of it.
    pub(crate) fn for_others_percent(&self) -> Option<f64> {
        let server = self.running.server();
        if server.managed || server.pids.is_empty() {
            return None;
        }
        let meter = ServerMeter::begin(&server.pids, &families(&server.pids));
        let begun = Instant::now();
        std::thread::sleep(LOOKED_AT);
        let used = meter.end()?.cpu_ns as f64;
        Some(100.0 * used / begun.elapsed().as_nanos() as f64)
    }

    pub(crate) fn follow(&mut self, plan: &Plan) {
        if let Some(seconds) = plan.trial_s {
            self.trial_time = Duration::from_secs_f64(seconds);
        }
        self.driven.clone_from(&plan.driven);
        self.most_blocks = plan.max_blocks;
    }

    pub(crate) fn find_endpoints(&self, arms: &mut [Arm]) {
        for arm in arms {
            arm.endpoint = self.running.endpoint(arm.transport);
        }
    }

    pub(crate) fn trial(&mut self, arm: &Arm, open_loop: Option<OpenLoop>) -> Result<Trial, BenchError> {
        let is_floor = arm.id == FLOOR;
        let length = if is_floor { FLOOR_TRIAL } else { self.trial_time };
        let load = Load {
            connections: arm.point.connections,
            threads: self.request.threads,
            open_loop,
            warm_up: (length / 10).clamp(Duration::from_millis(5), Duration::from_millis(100)),
            length,
            cpus: self.driving.cpus(&arm.point)?,
            places_server: self.running.server().managed,
        };
        if !is_floor {
            self.set_congestion(arm)?;
        }
        let job = if is_floor { floor::job()? } else { self.running.job(arm)? };
        if !is_floor {
            self.look_around();
        }
        let result = engine::drive(job, &load, &self.surroundings);
        let mut trial = result.map_err(|error| self.with_last_words(error))?;
        if !is_floor {
            self.running.add_observations(&mut trial);
            self.running.finish_trial(&mut trial);
        }
        Ok(trial)
    }

    /// Sets the processes whose CPU time counts as the server's and the proxy's.
    fn look_around(&mut self) {
        self.surroundings.server_pids = self.running.server().pids;
        self.surroundings.proxy_pids = self.running.proxy_pids();
    }

    /// Processes that are the client, the server or between them, without their descendants.
    fn ours(&self) -> Vec<u32> {
        let mut ours = vec![std::process::id()];
        ours.extend(self.surroundings.server_pids.iter().chain(&self.surroundings.proxy_pids));
        ours
    }

    /// Adds the end of the servers' stderr to the error if a server went away.
    fn with_last_words(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::ServerLost { endpoint, reason, .. } => {
                BenchError::ServerLost { endpoint, reason, server_said: self.running.stderr_tail() }
            }
            other => other,
        }
    }

    /// Seed of the next trial or round, from that of the measurement and its number.
    fn next_seed(&mut self) -> u64 {
        self.trials += 1;
        self.request.seed.wrapping_add(self.trials.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn open_loop(&mut self, arm: &Arm) -> Option<OpenLoop> {
        let seed = self.next_seed();
        arm.point.rate_per_s.map(|rate_per_s| OpenLoop {
            rate_per_s,
            seed,
            spin: spin(&self.driving.allowed, rate_per_s),
        })
    }

    pub(crate) fn run(
        mut self,
        mut report: Report,
        request: &Request,
        observer: &mut dyn Recorder,
    ) -> BenchOutcome {
        observer.head(&mut report);
        let machine = MachineMeter::begin();
        self.others = Others::watch();
        self.begun = Instant::now();
        let (arms, plan, metrics) =
            (report.head.arms.clone(), report.head.plan.clone(), report.head.workload.metrics.clone());
        let cpus = report.head.host.cpus;
        let before = request.earlier.as_ref().map(|earlier| earlier.trials.clone()).unwrap_or_default();
        if let Some(last) = before.iter().filter_map(|trial| trial.server_start).max() {
            self.starts_before = last + 1;
        }
        // Continues the numbering of an earlier part, so that no schedule repeats.
        self.trials += before.len() as u64;
        let aim = Aim { arms: &arms, plan: &plan, metrics: &metrics, seed: request.seed };
        let measured = run_blocks(aim, before, &mut self, observer);
        report.head.host.steal_percent = machine.end(0, cpus).steal_percent;
        let others = std::mem::replace(&mut self.others, Others::watch());
        report.head.host.other_programs = others.end(&self.ours());
        report.trials = measured.trials;
        report.head.outcome = measured.outcome;
        if let Some(failure) = &measured.failure {
            report.warnings.push(Warning::new(
                Code::Interrupted,
                "",
                format!("measuring ended early: {failure}"),
            ));
        }
        report.warnings.extend(unusual(&report));
        samehost_analysis::analyse(&report).apply(&mut report);
        end_together(self.idle.into_values().chain([self.running]));
        BenchOutcome { report, failure: measured.failure }
    }
}

impl Measurer for TrialRunner<'_> {
    fn begin_block(&mut self, block: u32) -> Result<(), BenchError> {
        let ours = self.ours();
        self.others.look_again(&ours);
        // A server that was already running is not restarted.
        let usual = self.configured.axes().starts.at_most(self.request.most_servers);
        let starts = if self.start.servers.is_empty() { usual } else { Starts::Once };
        let due = starts.of_block(block);
        if due == self.start_in_use {
            return Ok(());
        }
        let since = Instant::now();
        if let Starts::InTurn(servers) = starts
            && !self.idle.contains_key(&due)
        {
            self.start_the_others(due..servers.min(self.most_blocks))?;
        }
        let next = match self.idle.remove(&due) {
            Some(idle) => idle,
            None => self.configured.start(&self.start)?,
        };
        let before = std::mem::replace(&mut self.running, next);
        if starts != Starts::EachBlock {
            self.idle.insert(self.start_in_use, before);
            self.starting += since.elapsed();
        }
        self.start_in_use = due;
        Ok(())
    }

    fn takes_turns(&self, arm: &Arm) -> bool {
        self.slice(arm).is_some()
    }

    fn measure_slots(&mut self, slots: &[ArmSlot<'_>]) -> Result<Vec<Trial>, BenchError> {
        let mut trials = Vec::with_capacity(slots.len());
        match slots.first().and_then(|slot| self.slice(slot.arm)) {
            Some(slice) => trials = self.round(slots, slice)?,
            None => {
                for slot in slots {
                    let open_loop = self.open_loop(slot.arm);
                    trials.push(self.trial(slot.arm, open_loop)?);
                }
            }
        }
        for trial in &mut trials {
            trial.server_start = Some(self.starts_before + self.start_in_use);
        }
        Ok(trials)
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.starting)
    }
}

/// How long before a due time the generator polls instead of sleeping: 50 µs, a tenth of the mean gap at
/// most, never with one CPU. A request has to be sent when it is due, and a sleeping thread wakes late:
/// some tens of microseconds on a virtual machine, even with a timer slack of 1 ns. Polling all the time
/// was rejected because it takes a CPU from the server. At high rates the CPUs are awake anyway. The
/// client's CPU time per operation in an open loop includes the polling.
fn spin(allowed: &[usize], rate_per_s: f64) -> Duration {
    let longest = Duration::from_micros(50);
    let tenth = Duration::from_secs_f64(0.1 / rate_per_s.max(1.0));
    if allowed.len() > 1 { longest.min(tenth) } else { Duration::ZERO }
}

fn raise_file_limit(connections: u32) -> Result<(), BenchError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::from(connections) + 128;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(BenchError::Usage(format!(
            "{connections} connections need {needed} file descriptors, and the hard limit is {}; raise it with `ulimit -Hn` as root or in limits.conf, or use fewer",
            limit.maximum.unwrap_or(0)
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| BenchError::io("raising the limit of open files", error))
}

impl TrialRunner<'_> {
    /// Length of this arm's slices; `None` if its point is measured in separate trials.
    fn slice(&self, arm: &Arm) -> Option<Duration> {
        // The floor's arm shares its point with no other arm, so that it has no entry.
        let driven = self.driven.iter().find(|driven| {
            driven.connections == arm.point.connections && driven.placement == arm.point.placement
        })?;
        driven.slice_s.map(Duration::from_secs_f64)
    }

    /// Measures the arms of a point in slices. Returns their trials in the order of the slots.
    ///
    /// Their connections are opened in an order of their own. A server gives its threads out by that order (MariaDB those that were
    /// free last, memcached the next one), and a thread stays on its CPU for longer than a round. The order of the slots is reversed
    /// two blocks later, so that drift cancels; such a pair of blocks can then give an arm the same thread twice. One seed of
    /// a site's MariaDB failed its self-check in three of three runs; that this was why is inferred and not shown.
    fn round(&mut self, slots: &[ArmSlot<'_>], slice: Duration) -> Result<Vec<Trial>, BenchError> {
        let Some(first) = slots.first() else { return Ok(Vec::new()) };
        self.set_congestion(first.arm)?;
        let seed = self.next_seed();
        let mut opened: Vec<(usize, &ArmSlot<'_>)> = slots.iter().enumerate().collect();
        opened.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(16)));
        let mut lanes = Lanes::default();
        let mut evidence = Vec::with_capacity(slots.len());
        for (_, slot) in &opened {
            let job = self.running.job(slot.arm)?;
            self.look_around();
            let opened = match job {
                Job::Sessions { connector, small } => {
                    lanes.open(connector, small, slot.arm.point.connections, &self.surroundings)
                }
                Job::Bulk(writer) => Ok(lanes.stream(writer, &self.surroundings)),
                _ => Err(BenchError::Usage(format!(
                    "`bench {}` cannot be measured in slices (a fault of samehost); --threads 2 measures it in trials",
                    self.workload.name()
                ))),
            };
            let mut known = opened.map_err(|error| self.with_last_words(error))?;
            self.running.add_observations(&mut known);
            evidence.push(known);
        }
        let cpus = self.driving.cpus(&first.arm.point)?;
        let swap = self.driving.swaps(&cpus) && Xoshiro256PlusPlus::seed_from_u64(!seed).random_bool(0.5);
        let round = Round {
            slice,
            length: self.trial_time,
            cpus: if swap { cpus.swapped() } else { cpus },
            places_server: self.running.server().managed,
            seed,
        };
        let driven = lanes.drive(round, &self.surroundings);
        let measured = driven.map_err(|error| self.with_last_words(error))?;
        let mut trials = Vec::with_capacity(slots.len());
        for ((measured, known), (place, _)) in measured.into_iter().zip(evidence).zip(opened) {
            let mut trial = Trial {
                transport_observed: known.transport_observed,
                cipher: known.cipher,
                connection: known.connection,
                server_most_cpus: known.server_most_cpus,
                proxy_most_cpus: known.proxy_most_cpus,
                ..measured
            };
            self.running.finish_trial(&mut trial);
            trials.push((place, trial));
        }
        trials.sort_by_key(|(place, _)| *place);
        Ok(trials.into_iter().map(|(_, trial)| trial).collect())
    }
}
