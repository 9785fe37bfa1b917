//! Worker threads, the window, and the meters around it. The worker threads only generate load. The calling
//! thread reads the meters at both ends of the window, and gives up on a load that never ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use samehost_model::Trial;

use super::blocking::DueQueue;
use super::bulk::Writer;
use super::epoll::Pace;
use super::recorder::{Recorder, Tally};
use super::session::{Caller, Connected, Connector, Seen, connect_all};
use super::trial::{self, Metered};
use super::{Load, Nanos, OpenLoop, Surroundings, Window, blocking, bulk, burst, epoll, nanos, now, process};
use crate::error::BenchError;
use crate::machine::{MachineMeter, ServerMeter, ThreadUse, Threads, families, process_cpu_ns};

/// A load is given up this long after a signal at the latest.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The processes of server and proxy with their descendants. Listing them takes a while, and is done before the window
/// begins: what is listed at its edge is metered late by as much.
#[derive(Clone)]
pub(super) struct Families {
    pub(super) server: Vec<u32>,
    pub(super) proxy: Vec<u32>,
}

impl Families {
    pub(super) fn list(surroundings: &Surroundings) -> Self {
        Families { server: families(&surroundings.server_pids), proxy: families(&surroundings.proxy_pids) }
    }

    pub(super) fn all(&self) -> Vec<u32> {
        [self.server.as_slice(), &self.proxy].concat()
    }
}

struct Begun {
    meter: ServerMeter,
    read_at: Nanos,
}

impl Begun {
    fn begin(roots: &[u32], family: &[u32]) -> Self {
        let begun = now();
        let meter = ServerMeter::begin(roots, family);
        Begun { read_at: begun + nanos(meter.delay), meter }
    }
}

struct Meters {
    server: Begun,
    proxy: Option<Begun>,
    machine: MachineMeter,
    own_cpu_ns: u64,
}

impl Meters {
    fn begin(surroundings: &Surroundings) -> Self {
        Self::begin_with(surroundings, &Families::list(surroundings))
    }

    fn begin_with(surroundings: &Surroundings, families: &Families) -> Self {
        let (machine, own_cpu_ns) = (MachineMeter::begin(), own_cpu_ns());
        let server = Begun::begin(&surroundings.server_pids, &families.server);
        let proxies = &surroundings.proxy_pids;
        let proxy = if proxies.is_empty() { None } else { Some(Begun::begin(proxies, &families.proxy)) };
        Meters { server, proxy, machine, own_cpu_ns }
    }

    fn end(self, surroundings: &Surroundings) -> Metered {
        let (machine, client) = (self.machine.stop(), own_cpu_ns().saturating_sub(self.own_cpu_ns));
        let (server, proxy) = (self.server.meter.end(), self.proxy.and_then(|proxy| proxy.meter.end()));
        let theirs: u64 = [server, proxy].iter().flatten().map(|used| used.cpu_ns).sum();
        Metered { server, proxy, machine: machine.used(client + theirs, surroundings.cpus), late_ms: None }
    }

    /// Like `end`, but scales the CPU time of server and proxy up, each by what its own meter missed of the window (an
    /// overloaded machine). Where one missed more than half, both are dropped.
    fn end_of(self, window: Window, surroundings: &Surroundings) -> Metered {
        let length = (window.end - window.start) as f64;
        let server_missed = self.server.read_at.saturating_sub(window.start) as f64;
        let proxy_read_at = self.proxy.as_ref().map_or(window.start, |proxy| proxy.read_at);
        let proxy_missed = proxy_read_at.saturating_sub(window.start) as f64;
        let mut metered = self.end(surroundings);
        let most_missed = server_missed.max(proxy_missed);
        if most_missed > length / 2.0 {
            return Metered { server: None, proxy: None, late_ms: Some(most_missed / 1e6), ..metered };
        }
        for (used, missed) in [(&mut metered.server, server_missed), (&mut metered.proxy, proxy_missed)] {
            if let Some(used) = used {
                used.cpu_ns = (used.cpu_ns as f64 * length / (length - missed)) as u64;
            }
        }
        metered
    }
}

/// CPU time of this whole process so far; 0 where it cannot be read.
pub(super) fn own_cpu_ns() -> u64 {
    process_cpu_ns(std::process::id()).unwrap_or(0)
}

/// Workers that report over a channel. If the receiver is dropped, stuck threads end by themselves once their
/// server is gone.
pub(super) struct WorkerPool<T> {
    receiver: mpsc::Receiver<Result<T, BenchError>>,
    size: usize,
    pub(super) done: Vec<T>,
}

impl<T: Send + 'static> WorkerPool<T> {
    pub(super) fn spawn(
        work: Vec<Box<dyn FnOnce() -> Result<T, BenchError> + Send>>,
    ) -> Result<Self, BenchError> {
        let (sender, receiver) = mpsc::channel();
        let size = work.len();
        for work in work {
            let sender = sender.clone();
            std::thread::Builder::new()
                .name("load".into())
                .stack_size(512 * 1024)
                .spawn(move || {
                    let _ = sender.send(work());
                })
                .map_err(|error| BenchError::io("starting a client thread", error))?;
        }
        Ok(WorkerPool { receiver, size, done: Vec::with_capacity(size) })
    }

    fn all_done(&self) -> bool {
        self.done.len() == self.size
    }

    pub(super) fn wait(&mut self, until: Nanos, surroundings: &Surroundings) -> Result<(), BenchError> {
        while !self.all_done() {
            if surroundings.interrupted.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let left = until.saturating_sub(now());
            if left == 0 {
                return Ok(());
            }
            match self.receiver.recv_timeout(POLL_INTERVAL.min(Duration::from_nanos(left))) {
                Ok(result) => self.done.push(result?),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(BenchError::io("a client thread", std::io::Error::other("it panicked")));
                }
            }
        }
        Ok(())
    }
}

/// Waits for the window with the meters at its ends, then for the workers; adds up what they counted. Workers that have
/// not ended when the patience is over count as hung.
fn attend(
    mut pool: WorkerPool<Tally>,
    window: Window,
    families: &Families,
    endpoint: &str,
    load: &Load,
    surroundings: &Surroundings,
) -> Result<Trial, BenchError> {
    pool.wait(window.start, surroundings)?;
    let meters = Meters::begin_with(surroundings, families);
    pool.wait(window.end, surroundings)?;
    let metered = meters.end_of(window, surroundings);
    pool.wait(window.end + nanos(surroundings.patience), surroundings)?;
    if !pool.all_done() {
        return Err(BenchError::Hung {
            endpoint: endpoint.to_owned(),
            seconds: surroundings.patience.as_secs_f64(),
        });
    }
    let mut tallies = pool.done.into_iter();
    let mut sum = tallies.next().unwrap_or_else(|| Tally::new(load.open_loop.is_some()));
    for tally in tallies {
        sum.merge(&tally);
    }
    Ok(trial::of_tally(&sum, window.seconds(), load.open_loop.as_ref(), metered))
}

fn schedule(open_loop: &OpenLoop, window: Window) -> Vec<Nanos> {
    let span = window.end - window.open;
    let mut due = super::arrivals(open_loop.rate_per_s, span, open_loop.seed);
    for moment in &mut due {
        *moment += window.open;
    }
    due
}

/// A window that leaves time to prepare the schedule and to start the threads.
fn window(load: &Load) -> Window {
    let mut lead = Duration::from_micros(500);
    if let Some(open_loop) = load.open_loop {
        // Drawing and sorting takes about 0.1 µs per request.
        let requests = open_loop.rate_per_s * (load.warm_up + load.length).as_secs_f64();
        lead += Duration::from_secs_f64(requests * 2e-7);
    }
    let now = Window::from_now(load.warm_up, load.length);
    let lead = nanos(lead);
    Window { open: now.open + lead, start: now.start + lead, end: now.end + lead }
}

/// Drives sessions: one connection whose requests are small with blocking I/O, as a program with one connection does,
/// and everything else with epoll. Connections are spread over the threads in turn, as are the times of an open loop.
///
/// # Errors
/// When connecting fails, a connection breaks and cannot be opened again, or replies do not come in time.
pub fn sessions(
    connector: &Arc<dyn Connector>,
    small: bool,
    load: &Load,
    surroundings: &Surroundings,
) -> Result<Trial, BenchError> {
    let opened = connect_all(connector.as_ref(), load.connections, &surroundings.interrupted)?;
    let mut surroundings = surroundings.clone();
    surroundings.server_pids = connector.server_pids().unwrap_or(surroundings.server_pids);
    let surroundings = &surroundings;
    load.place(surroundings);
    let seen = opened.first().map(|(stream, _)| Seen::by_kernel(stream)).unwrap_or_default();
    let threads = load.threads.clamp(1, load.connections.max(1)) as usize;
    let mut shares: Vec<Connected> = (0..threads).map(|_| Vec::new()).collect();
    for (index, pair) in opened.into_iter().enumerate() {
        shares[index % threads].push(pair);
    }
    let families = Families::list(surroundings);
    let window = window(load);
    // The rate counts operations; what comes due are exchanges.
    let per_exchange = operations_per_exchange(&shares[0]);
    let due = load.open_loop.as_ref().map(|open_loop| {
        schedule(&OpenLoop { rate_per_s: open_loop.rate_per_s / per_exchange as f64, ..*open_loop }, window)
    });
    let mut work = Vec::with_capacity(threads);
    for (index, share) in shares.into_iter().enumerate() {
        let due = due.as_ref().map(|due| due.iter().copied().skip(index).step_by(threads).collect());
        work.push(session_work(connector, small, share, due, window, load, (&families, surroundings)));
    }
    let pool = WorkerPool::spawn(work)?;
    let mut trial = attend(pool, window, &families, &connector.endpoint(), load, surroundings)?;
    seen.tell(&mut trial);
    Ok(trial)
}

fn session_work(
    connector: &Arc<dyn Connector>,
    small: bool,
    mut share: Connected,
    due: Option<Vec<Nanos>>,
    window: Window,
    load: &Load,
    (families, surroundings): (&Families, &Surroundings),
) -> Box<dyn FnOnce() -> Result<Tally, BenchError> + Send> {
    let connector = Arc::clone(connector);
    let cpus = load.cpus.clone();
    let spin = load.open_loop.map_or(0, |open_loop| nanos(open_loop.spin));
    let grace = nanos(surroundings.patience) * 4 / 5;
    let listed = listed(load, families);
    Box::new(move || {
        cpus.place_client();
        precise_sleep();
        if due.is_some() {
            ask_for_priority();
        }
        let per_exchange = operations_per_exchange(&share);
        let recorder = Recorder::new(window, due.is_some()).counting(per_exchange);
        match due {
            None if small && share.len() == 1 => {
                let (stream, session) = share.remove(0);
                let mut recorder = recorder.leaving_out_waits(listed);
                blocking::Single::new(stream, session, connector).drive(&mut recorder)?;
                Ok(recorder.finish())
            }
            None => epoll::Driver::new(share, &connector, recorder)?.drive(Pace::Closed),
            Some(due) => {
                epoll::Driver::new(share, &connector, recorder)?.drive(Pace::Open { due, spin, grace })
            }
        }
    })
}

/// Operations of an exchange, which is the same for all sessions of a trial; 1 without a session.
fn operations_per_exchange(share: &Connected) -> u64 {
    share.first().map_or(1, |(_, session)| session.operations_per_exchange())
}

/// The server's threads, where one connection in a closed loop leaves out what waited for a CPU.
fn listed(load: &Load, families: &Families) -> Option<Threads> {
    let is_one = load.connections == 1 && load.open_loop.is_none();
    is_one.then(|| Threads::list(&families.all()))
}

/// Asks for precise timers: by default the kernel may add 50 µs to every sleep (timer slack).
pub(super) fn precise_sleep() {
    if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::debug!(%error, "timer slack stays as it is");
    }
}

/// Raises the priority of the sending thread above the server's, if the kernel allows it (root, or
/// RLIMIT_NICE). Requests come due even while the CPUs are busy with earlier ones, and a generator that
/// waits for a CPU then is late by its own fault. Lateness is in the latency of both arms alike and moves
/// a ratio towards 1: 13 µs in both, which is how late a timer wakes on a virtual machine, make 0.646 of
/// 60 ÷ 100 µs. The thread ends with the trial (docs/method.md §9).
fn ask_for_priority() {
    if let Err(error) = rustix::process::setpriority_process(None, -20) {
        tracing::debug!(%error, "the generator's priority stays as it is");
    }
}

/// Drives callers, one thread each. In an open loop they share one queue of due times.
///
/// # Errors
/// When a thread cannot be started, or an operation does not end in time. A failed operation is counted.
pub fn callers(
    endpoint: &str,
    seen: Option<Seen>,
    callers: Vec<Box<dyn Caller>>,
    load: &Load,
    surroundings: &Surroundings,
) -> Result<Trial, BenchError> {
    load.place(surroundings);
    let families = Families::list(surroundings);
    let window = window(load);
    let queue = load.open_loop.as_ref().map(|open_loop| {
        let due = schedule(open_loop, window);
        Arc::new(DueQueue { due, next: AtomicUsize::new(0) })
    });
    let (seen_sender, seen_receiver) = mpsc::channel();
    let mut work: Vec<Box<dyn FnOnce() -> Result<Tally, BenchError> + Send>> = Vec::new();
    for mut caller in callers {
        let (queue, cpus, seen) = (queue.clone(), load.cpus.clone(), seen_sender.clone());
        let listed = listed(load, &families);
        work.push(Box::new(move || {
            cpus.place_client();
            precise_sleep();
            if queue.is_some() {
                ask_for_priority();
            }
            let recorder = Recorder::new(window, queue.is_some()).leaving_out_waits(listed);
            let tally = blocking::drive(caller.as_mut(), recorder, queue.as_ref());
            let _ = seen.send(caller.seen());
            Ok(tally)
        }));
    }
    let pool = WorkerPool::spawn(work)?;
    let mut trial = attend(pool, window, &families, endpoint, load, surroundings)?;
    seen_receiver.try_iter().flatten().next().or(seen).unwrap_or_default().tell(&mut trial);
    Ok(trial)
}

/// Makes a whole trial in one thread on the client's CPUs. Fails as hung after `timeout`.
pub(super) fn in_one_thread(
    load: &Load,
    surroundings: &Surroundings,
    endpoint: String,
    timeout: Duration,
    make: impl FnOnce(&Surroundings) -> Result<Trial, BenchError> + Send + 'static,
) -> Result<Trial, BenchError> {
    let (cpus, around) = (load.cpus.clone(), surroundings.clone());
    let mut pool: WorkerPool<Trial> = WorkerPool::spawn(vec![Box::new(move || {
        cpus.place_client();
        make(&around)
    })])?;
    pool.wait(now().saturating_add(nanos(timeout)), surroundings)?;
    pool.done.pop().ok_or(BenchError::Hung { endpoint, seconds: timeout.as_secs_f64() })
}

pub fn bulk(mut writer: Writer, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    load.place(surroundings);
    let (seen, endpoint) = (Seen::by_kernel(&writer.stream), writer.endpoint.clone());
    let length = nanos(load.length);
    // Warm-up and rounding make a round longer than `length`; if it takes much longer, nobody reads.
    let timeout = load.length * 10 + surroundings.patience;
    let mut trial = in_one_thread(load, surroundings, endpoint, timeout, move |around| {
        writer.warm_up(length)?;
        let meters = Meters::begin(around);
        let before = ThreadUse::current();
        let tally = writer.write(length)?;
        let usage = ThreadUse::current() - before;
        Ok(trial::of_bulk(&tally, usage, meters.end(around)))
    })?;
    seen.tell(&mut trial);
    Ok(trial)
}

/// Makes one exchange, however long it takes; only a signal or a broken connection ends it early.
pub fn whole(
    connector: &Arc<dyn Connector>,
    load: &Load,
    surroundings: &Surroundings,
) -> Result<Trial, BenchError> {
    let (stream, session) = connector.connect()?;
    load.place(surroundings);
    let (seen, endpoint) = (Seen::by_kernel(&stream), connector.endpoint());
    let name = endpoint.clone();
    let mut trial = in_one_thread(load, surroundings, name, Duration::MAX, move |around| {
        let meters = Meters::begin(around);
        let tally = bulk::drive_whole(stream, session, &endpoint)?;
        Ok(trial::of_whole(&tally, meters.end(around)))
    })?;
    seen.tell(&mut trial);
    Ok(trial)
}

pub fn burst(job: burst::BurstJob, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    load.place(surroundings);
    let (endpoint, timeout) = (job.endpoint.to_string(), job.patience + surroundings.patience);
    in_one_thread(load, surroundings, endpoint, timeout, move |around| {
        let meters = Meters::begin(around);
        let tally = burst::drive(&job)?;
        Ok(trial::of_burst(&tally, job.connects, meters.end(around)))
    })
}

pub fn process(job: &process::ProcessJob, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    let (machine, own) = (MachineMeter::begin(), own_cpu_ns());
    let tally = process::drive(job, &surroundings.interrupted)?;
    let own = own_cpu_ns().saturating_sub(own) + ((tally.user_s + tally.system_s) * 1e9) as u64;
    // A command may work through a server that it did not start. That server's CPU time cannot be
    // distinguished from that of foreign processes, so only steal and throttling count against the trial.
    let machine = samehost_model::MachineUse { foreign_percent: 0.0, ..machine.end(own, surroundings.cpus) };
    Ok(trial::of_process(&tally, machine))
}
