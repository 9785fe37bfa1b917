//! The CPUs of a measurement: on which of them client and server run, and that they do not sleep.
//!
//! Waking a CPU is a large and uneven part of the cost of a request. How large is measured here as well, between two CPUs
//! that may sleep and two that are kept from it: it says what the choice of `--awake` costs, and enters no comparison.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::seq::IndexedRandom;
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use samehost_model::{AwakeBy, Placement};
use samehost_system::peer::family;
use samehost_system::silenced;

use crate::error::BenchError;

/// CPUs that this process may use, ascending; empty where the kernel does not say.
pub fn allowed_cpus() -> Vec<usize> {
    // The affinity that the process started with: its first thread never pins itself.
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    pub client: Vec<usize>,
    pub server: Vec<usize>,
}

impl CpuPlan {
    /// Divides the allowed CPUs according to the placement.
    ///
    /// # Errors
    /// When `cross-core` is asked for and only one CPU is allowed.
    pub fn new(placement: Placement, allowed: &[usize]) -> Result<Self, BenchError> {
        let (first, rest) = allowed.split_first().ok_or(BenchError::NoCpu)?;
        Ok(match placement {
            Placement::Free => CpuPlan { client: allowed.to_vec(), server: allowed.to_vec() },
            Placement::SameCore => CpuPlan { client: vec![*first], server: vec![*first] },
            Placement::CrossCore if rest.is_empty() => return Err(BenchError::OneCpu),
            Placement::CrossCore => CpuPlan { client: vec![*first], server: rest.to_vec() },
        })
    }

    /// One CPU for each end, which is what one connection can use. The server's CPU is of another core than
    /// the client's if possible: two hardware threads of one core slow each other down.
    #[must_use]
    pub fn one_each(self) -> Self {
        let (Some(client), [_, _, ..]) = (self.client.first().copied(), self.server.as_slice()) else {
            return self;
        };
        if self.client.len() > 1 {
            return self;
        }
        let own = siblings(client);
        let apart = self.server.iter().find(|cpu| siblings(**cpu) != own);
        let server = *apart.unwrap_or(&self.server[0]);
        CpuPlan { client: vec![client], server: vec![server] }
    }

    pub fn can_swap(&self) -> bool {
        self.client.len() == 1 && self.server.len() == 1 && self.client != self.server
    }

    #[must_use]
    pub fn swapped(self) -> Self {
        CpuPlan { client: self.server, server: self.client }
    }

    pub fn is_shared(&self) -> bool {
        self.client.len() == 1 && self.client == self.server
    }

    pub fn place_client(&self) {
        if let Err(error) = sched_setaffinity(None, &set(&self.client)) {
            tracing::warn!(%error, "the client could not be pinned");
        }
    }

    /// Moves the calling thread to one of the client's CPUs, and leaves it to the scheduler from there.
    pub fn start_anew(&self, random: &mut impl Rng) {
        if let Some(cpu) = self.client.choose(random)
            && sched_setaffinity(None, &set(&[*cpu])).is_ok()
        {
            self.place_client();
        }
    }

    /// Pins every thread of these processes and their descendants to the server's CPUs. Threads that they
    /// start later inherit that.
    pub fn place_server(&self, roots: &[u32]) {
        let cpus = set(&self.server);
        for pid in roots.iter().flat_map(|root| family(*root)) {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let name = task.file_name();
                let Some(tid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
                else {
                    continue;
                };
                if let Err(error) = sched_setaffinity(Some(tid), &cpus) {
                    tracing::debug!(%error, pid, "a server thread could not be pinned");
                }
            }
        }
    }
}

fn siblings(cpu: usize) -> Option<String> {
    super::text(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
}

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    set
}

/// Device for the latency that a program asks for (PM QoS): 32 bits, in microseconds and in native order. Only root may
/// open it. The request holds for as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// CPUs that do not sleep until this is dropped, for all arms alike.
/// Waking two idle CPUs is most of what one request costs on a virtual machine. Redis that sleeps between
/// requests answered in 200 to 270 µs here, of which 170 to 240 are waking up, and its ratio was known to
/// ±15 % after 10 s. One that does not sleep answered in 30 µs, and its ratio was known to ±4 %.
/// `--awake=no` lets them sleep, and the head of a report says what waking adds (docs/method.md §1a).
#[derive(Debug)]
pub struct Awake {
    /// The request is valid as long as this file is open.
    _request: Option<File>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Keeps these CPUs awake: by a latency request to the kernel if allowed, else by a thread on each that
    /// spins at idle priority.
    ///
    /// # Errors
    /// When neither is possible.
    pub fn keep(cpus: &[usize]) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let request = OpenOptions::new().write(true).open(LATENCY).and_then(|mut file| {
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(file)
        });
        match request {
            Ok(file) => return Ok(Awake { _request: Some(file), stop, threads: Vec::new() }),
            Err(error) => tracing::debug!(%error, "{LATENCY}"),
        }
        let mut awake = Awake { _request: None, stop, threads: Vec::new() };
        for cpu in cpus {
            let thread = spin(*cpu, Arc::clone(&awake.stop))?;
            awake.threads.push(thread);
        }
        Ok(awake)
    }

    pub fn by(&self) -> AwakeBy {
        if self.threads.is_empty() { AwakeBy::LatencyRequest } else { AwakeBy::IdleThreads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts a thread that spins on this CPU at idle priority. It does not spin before it has that priority.
fn spin(cpu: usize, stop: Arc<AtomicBool>) -> Result<JoinHandle<()>, BenchError> {
    let (report, tid) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let thread = Builder::new()
        .name("awake".into())
        .spawn(move || occupy(cpu, &report, &wait, &stop))
        .map_err(|error| BenchError::io("a thread that keeps a CPU awake", error))?;
    let Ok(tid) = tid.recv() else { return Ok(thread) };
    // No safe wrapper that we link sets this policy; util-linux is everywhere.
    let made_idle = silenced(Command::new("chrt").args(["--idle", "--pid", "0", &tid.to_string()])).status();
    match made_idle {
        Ok(status) if status.success() => {
            let _ = go.send(());
            Ok(thread)
        }
        Ok(_) | Err(_) => Err(BenchError::Usage(format!(
            "--awake: {LATENCY} cannot be opened (that takes root), and `chrt --idle` of util-linux, which gives a thread idle priority, does not work here"
        ))),
    }
}

/// Tells its id, waits for the word to go, and keeps its CPU busy until it is stopped.
fn occupy(cpu: usize, report: &mpsc::Sender<i32>, wait: &mpsc::Receiver<()>, stop: &AtomicBool) {
    if let Err(error) = sched_setaffinity(None, &set(&[cpu])) {
        tracing::debug!(%error, cpu, "a CPU is not kept awake");
        return;
    }
    let _ = report.send(gettid().as_raw_nonzero().get());
    if wait.recv().is_ok() {
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

/// How long an exchange is measured with sleeping CPUs, and as long with CPUs that are kept awake.
/// Two threads and two pipes show what waking two CPUs adds to an exchange: 45 of 58 µs on one virtual
/// machine. It stands in the head of a report, where one request at a time is measured, and enters no
/// comparison (docs/method.md §1a).
const LENGTH: Duration = Duration::from_millis(15);
const MIN_EXCHANGES: usize = 50;

/// Microseconds that two wake-ups add to an exchange; `None` with one CPU, where CPUs cannot be kept awake, or where
/// it makes no difference.
pub fn wake_up_us(cpus: &[usize]) -> Option<f64> {
    let [first, second, ..] = *cpus else { return None };
    let asleep = exchange_us(first, second)?;
    let kept = Awake::keep(&[first, second]).ok()?;
    let awake = exchange_us(first, second)?;
    drop(kept);
    (asleep > awake).then_some(asleep - awake)
}

/// The median time of an exchange between two threads, each of which sleeps while the other works.
fn exchange_us(first: usize, second: usize) -> Option<f64> {
    let ((asked, ask), (answered, answer)) = (pipe().ok()?, pipe().ok()?);
    let answering = spawn(second, move || answer_all(asked, answer))?;
    let asking = spawn(first, move || ask_for(LENGTH, ask, answered))?;
    let mut times = asking.join().ok()?;
    answering.join().ok()?;
    times.sort_by(f64::total_cmp);
    (times.len() >= MIN_EXCHANGES).then(|| times[times.len() / 2])
}

/// Asks until the time is over; the times of all exchanges, in microseconds. The other end sees the end of the pipe.
fn ask_for(length: Duration, mut ask: PipeWriter, mut answered: PipeReader) -> Vec<f64> {
    let (begun, mut times, mut byte) = (Instant::now(), Vec::new(), [0]);
    while begun.elapsed() < length {
        let sent = Instant::now();
        if ask.write_all(&byte).is_err() || answered.read_exact(&mut byte).is_err() {
            break;
        }
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    times
}

fn answer_all(mut asked: PipeReader, mut answer: PipeWriter) {
    let mut byte = [0];
    while asked.read_exact(&mut byte).is_ok() && answer.write_all(&byte).is_ok() {}
}

fn spawn<T: Send + 'static>(cpu: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    Builder::new()
        .name("wakes".into())
        .spawn(move || {
            if let Err(error) = sched_setaffinity(None, &set(&[cpu])) {
                tracing::debug!(%error, cpu, "a thread could not be pinned");
            }
            work()
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rustix::thread::sched_getcpu;
    use std::collections::BTreeSet;

    #[test]
    fn cpus_are_divided() {
        assert_eq!(CpuPlan::new(Placement::Free, &[0, 1]).unwrap().server, [0, 1]);
        assert_eq!(
            CpuPlan::new(Placement::SameCore, &[2, 3]).unwrap(),
            CpuPlan { client: vec![2], server: vec![2] }
        );
        assert_eq!(
            CpuPlan::new(Placement::CrossCore, &[0, 1, 2]).unwrap(),
            CpuPlan { client: vec![0], server: vec![1, 2] }
        );
        assert!(matches!(CpuPlan::new(Placement::CrossCore, &[0]), Err(BenchError::OneCpu)));
        let one_each = CpuPlan::new(Placement::CrossCore, &[0, 1, 2]).unwrap().one_each();
        assert_eq!((one_each.client.as_slice(), one_each.server.len()), (&[0][..], 1));
        assert_eq!(
            CpuPlan::new(Placement::Free, &[0, 1]).unwrap().one_each().server,
            [0, 1],
            "free stays free"
        );
        assert!(!allowed_cpus().is_empty());
    }

    #[test]
    fn a_thread_that_starts_anew_may_go_on_wherever_it_could() {
        let cpus = allowed_cpus();
        let plan = CpuPlan::new(Placement::Free, &cpus).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let began: BTreeSet<usize> = (0..64)
            .map(|_| {
                plan.start_anew(&mut random);
                assert_eq!(allowed_cpus(), cpus);
                sched_getcpu()
            })
            .collect();
        assert!(began.len() > 1 || cpus.len() == 1, "{began:?}");
    }

    #[test]
    fn a_thread_of_idle_priority_spins_until_it_is_stopped() {
        let stop = Arc::new(AtomicBool::new(false));
        let cpu = allowed_cpus()[0];
        let thread = spin(cpu, Arc::clone(&stop)).unwrap();
        assert!(!thread.is_finished());
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let awake = Awake::keep(&[cpu]).unwrap();
        assert_eq!(awake.by() == AwakeBy::LatencyRequest, awake.threads.is_empty());
    }

    #[test]
    fn an_exchange_takes_some_microseconds_and_one_cpu_has_none() {
        if let [first, second, ..] = allowed_cpus()[..] {
            // Beside other work one try may have too few exchanges.
            let mut tries = (0..100).filter_map(|_| exchange_us(first, second));
            let found = tries.next().expect("50 exchanges within 15 ms, once in a hundred times");
            assert!(found > 0.0, "{found}");
        }
        assert_eq!(wake_up_us(&[0]), None);
    }
}
