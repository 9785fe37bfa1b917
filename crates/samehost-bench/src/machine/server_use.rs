//! What the server's processes use, read from outside: CPU time and context switches, and how often their threads were
//! given a CPU, at every border of slices. For the latter only threads that work are watched, and only if they are few: each reading
//! takes a microsecond.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::{AddAssign, Sub};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use samehost_system::peer::family;
use samehost_system::proc::status::{self, Stat};

use super::Schedstat;

/// Most threads whose context switches are read: reading more would disturb the trial.
const MAX_THREADS_READ: usize = 256;

/// Use of the server's processes: a reading, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUse {
    pub cpu_ns: u64,
    /// Context switches; `None` if there are too many threads to read.
    pub switches: Option<u64>,
    /// Number of threads, where not whole processes but the threads that serve an arm's connections were read.
    pub threads: Option<u32>,
}

#[derive(Debug)]
struct Reading {
    cpu_ns: u64,
    stat: Stat,
}

/// Meters a server's processes and their descendants during a window.
/// CPU time per operation decides where time cannot. The client's is the workers' own thread clock, which
/// is exact; the server's is the process clock of its whole family. A server that runs already is found
/// by its listening socket: left out, its CPU time would be taken for a stranger's. Without root the
/// processes of other users stay unseen.
#[derive(Debug)]
pub struct ServerMeter {
    roots: Vec<u32>,
    before: BTreeMap<u32, Reading>,
    /// Time from the call of [`begin`](Self::begin) to the middle of its reading of the clocks.
    pub delay: Duration,
    switches_before: Option<u64>,
}

/// Readings of these processes, without those that have ended, and the time from the call to the middle of the reading of
/// the clocks. CPU time is read first, for all of them: it matters most, and the rest needs files to be read.
fn readings(pids: &[u32]) -> (BTreeMap<u32, Reading>, Duration) {
    let begun = Instant::now();
    let mut clocks = Vec::with_capacity(pids.len());
    for pid in pids {
        if let Some(cpu_ns) = process_cpu_ns(*pid) {
            clocks.push((*pid, cpu_ns));
        }
    }
    let middle = begun.elapsed() / 2;
    let mut readings = BTreeMap::new();
    for (pid, cpu_ns) in clocks {
        let Some(stat) = status::read_stat(pid) else { continue };
        readings.insert(pid, Reading { cpu_ns, stat });
    }
    (readings, middle)
}

/// The processes and all their descendants. With thousands of threads or processes this takes a while, so it
/// is called before the window, not at its edge.
pub fn families(roots: &[u32]) -> Vec<u32> {
    each_once(roots.iter().flat_map(|root| family(*root)).collect())
}

/// In ascending order.
pub fn each_once(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Context switches of all threads of these processes; `None` if a process has ended, or there are too many threads.
fn switches(pids: impl Iterator<Item = u32>) -> Option<u64> {
    let mut sum = 0;
    let mut read = 0;
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            read += 1;
            if read > MAX_THREADS_READ {
                return None;
            }
            let Some(status) = super::text(task.path().join("status")) else { continue };
            for line in status.lines() {
                if !line.contains("ctxt_switches") {
                    continue;
                }
                let count = line.split_ascii_whitespace().nth(1).unwrap_or_default();
                sum += count.parse::<u64>().unwrap_or(0);
            }
        }
    }
    Some(sum)
}

impl ServerMeter {
    /// Starts metering `family`, the processes that descend from `roots`.
    pub fn begin(roots: &[u32], family: &[u32]) -> Self {
        let (before, delay) = readings(family);
        let switches_before = switches(before.keys().copied());
        ServerMeter { roots: roots.to_vec(), before, delay, switches_before }
    }

    /// Use since `begin`. Processes started since count from their start. For processes that ended, adds what their
    /// parent inherited (in ticks of 10 ms, whatever their number), minus what they had used before the window:
    /// PostgreSQL has a process for each connection, and those of the trial before may end in this one.
    pub fn end(&self) -> Option<ServerUse> {
        let known: Vec<u32> = self.before.keys().copied().collect();
        let (mut after, _) = readings(&known);
        let born: Vec<u32> =
            families(&self.roots).into_iter().filter(|pid| !self.before.contains_key(pid)).collect();
        after.extend(readings(&born).0);
        if after.is_empty() {
            return None;
        }
        let tick_ns = 1e9 / status::ticks_per_second();
        let (mut cpu_ns, mut reaped_ns) = (0, 0);
        for (pid, now) in &after {
            let then = self.before.get(pid);
            let grown = |read: fn(&Reading) -> u64| read(now).saturating_sub(then.map_or(0, read));
            cpu_ns += grown(|one| one.cpu_ns);
            reaped_ns += (grown(|one| one.stat.reaped_ticks) as f64 * tick_ns) as u64;
        }
        let ended = self.before.iter().filter(|(pid, _)| !after.contains_key(pid));
        let used_before: u64 = ended.map(|(_, then)| then.cpu_ns).sum();
        cpu_ns += reaped_ns.saturating_sub(used_before);
        let switches = match (switches(after.keys().copied()), self.switches_before) {
            (Some(after), Some(before)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        Some(ServerUse { cpu_ns, switches, threads: None })
    }
}

/// Threads of some processes, and how often each had been given a CPU when they were listed.
#[derive(Debug)]
pub struct Threads(Vec<(SwitchCounter, u64)>);

/// A thread whose `schedstat` stays open: how often it was given a CPU, and how long it used one and waited for one.
#[derive(Debug)]
pub struct SwitchCounter {
    pub pid: u32,
    file: File,
}

impl Threads {
    pub fn list(pids: &[u32]) -> Self {
        let mut threads = Vec::new();
        for pid in pids {
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let Ok(file) = File::open(task.path().join("schedstat")) else { continue };
                let Some(counted) = schedstat(&file) else { continue };
                threads.push((SwitchCounter { pid: *pid, file }, counted.runs));
            }
        }
        Threads(threads)
    }

    /// Threads that have run since they were listed; empty if there are more than `most`.
    pub fn working(self, most: usize) -> Vec<SwitchCounter> {
        let mut working = Vec::new();
        for (thread, before) in self.0 {
            if thread.read().runs > before {
                working.push(thread);
            }
        }
        if working.len() > most { Vec::new() } else { working }
    }

    /// All threads if there are at most `most`; else so many that have run most often since they were listed.
    pub fn watched(self, most: usize) -> Vec<SwitchCounter> {
        if self.0.len() <= most {
            return self.all();
        }
        let mut ran = Vec::new();
        for (thread, before) in self.0 {
            let runs = thread.read().runs.saturating_sub(before);
            if runs > 0 {
                ran.push((runs, thread));
            }
        }
        ran.sort_by_key(|(runs, _)| std::cmp::Reverse(*runs));
        ran.truncate(most);
        ran.into_iter().map(|(_, thread)| thread).collect()
    }

    pub fn all(self) -> Vec<SwitchCounter> {
        self.0.into_iter().map(|(thread, _)| thread).collect()
    }
}

impl SwitchCounter {
    pub fn read(&self) -> Schedstat {
        schedstat(&self.file).unwrap_or_default()
    }
}

// CPU time, waiting time and context switches of the calling thread; CPU time of processes.

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadUse {
    /// Exact: the scheduler's own count.
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub wait_ns: u64,
    pub switches: u64,
}

impl ThreadUse {
    pub fn current() -> Self {
        ThreadMeter::current().read()
    }
}

/// CPU time of the calling thread so far, exact to the nanosecond.
pub fn thread_cpu_ns() -> u64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64
}

impl Sub for ThreadUse {
    type Output = ThreadUse;

    fn sub(self, earlier: ThreadUse) -> ThreadUse {
        ThreadUse {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

impl AddAssign for ThreadUse {
    fn add_assign(&mut self, other: ThreadUse) {
        self.cpu_ns += other.cpu_ns;
        self.wait_ns += other.wait_ns;
        self.switches += other.switches;
    }
}

/// Reads one thread's use repeatedly. Its file stays open, so that a reading costs a microsecond.
#[derive(Debug)]
pub struct ThreadMeter {
    /// Open schedstat file, which has the waiting time; `None` if the kernel has none.
    schedstat: Option<File>,
}

impl ThreadMeter {
    /// Meter of the calling thread; only this thread may read it.
    pub fn current() -> Self {
        ThreadMeter { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    pub fn read(&self) -> ThreadUse {
        let mut usage = ThreadUse { wait_ns: self.waited_ns(), ..ThreadUse::default() };
        if let Ok(rusage) = getrusage(UsageWho::RUSAGE_THREAD) {
            usage.switches =
                (rusage.voluntary_context_switches() + rusage.involuntary_context_switches()) as u64;
        }
        usage.cpu_ns = thread_cpu_ns();
        usage
    }

    /// How long the thread was ready to run and waited for a CPU so far, in nanoseconds; 0 where the kernel does not count it.
    pub fn waited_ns(&self) -> u64 {
        let Some(file) = &self.schedstat else { return 0 };
        schedstat(file).map_or(0, |counted| counted.waited_ns)
    }
}

pub(super) fn schedstat(file: &File) -> Option<Schedstat> {
    let mut text = [0; 96];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    super::parse_schedstat(std::str::from_utf8(&text[..length]).ok()?)
}

/// CPU clocks of whole processes, kept for frequent readings: at the borders of slices.
#[derive(Debug)]
pub struct ProcessClocks {
    clocks: Vec<Option<nix::time::ClockId>>,
}

impl ProcessClocks {
    pub fn open(pids: &[u32]) -> Self {
        ProcessClocks { clocks: pids.iter().map(|pid| clock_of(*pid)).collect() }
    }

    /// Appends the CPU time of each process so far in nanoseconds, ended threads included; 0 for a process
    /// that has ended.
    pub fn read(&self, into: &mut Vec<u64>) {
        into.extend(self.clocks.iter().map(|clock| clock.and_then(cpu_ns_of).unwrap_or(0)));
    }
}

/// CPU time of a process so far in nanoseconds, ended threads included; `None` if it has ended.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    cpu_ns_of(clock_of(pid)?)
}

fn clock_of(pid: u32) -> Option<nix::time::ClockId> {
    nix::time::clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()
}

fn cpu_ns_of(clock: nix::time::ClockId) -> Option<u64> {
    let time = clock.now().ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// CPU time that a child used before the window does not count, although its parent inherits it inside
    /// the window.
    #[test]
    fn what_a_child_used_before_it_ended_in_the_window_does_not_count() {
        let script =
            "sh -c 'i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo; read line' & wait; read line";
        let mut parent = Command::new("sh")
            .args(["-c", &format!("exec 3<&0; {}", script.replace("read line'", "read line <&3'"))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let meter = ServerMeter::begin(&[parent.id()], &families(&[parent.id()]));
        let before: u64 = meter.before.values().map(|reading| reading.cpu_ns).sum();
        let children = meter.before.len();
        std::io::Write::write_all(parent.stdin.as_mut().unwrap(), b"\n").unwrap();
        while family(parent.id()).len() >= children {
            std::thread::sleep(Duration::from_millis(2));
        }
        let used = meter.end().unwrap().cpu_ns;
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(before > 20_000_000, "the child worked: {before}");
        assert!(used < before / 2, "{used} of {before} ns");
    }

    #[test]
    fn a_thread_that_sleeps_is_given_a_cpu_again_and_again() {
        let own = std::process::id();
        let threads = Threads::list(&[own, u32::MAX]);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let working = threads.working(1000);
        assert!(!working.is_empty() && working.iter().all(|thread| thread.pid == own));
        let before: Vec<u64> = working.iter().map(|thread| thread.read().runs).collect();
        // A timer that fires before the thread has left its CPU takes it from nobody: on a busy machine not
        // every sleep counts. This thread is one of them; those of other tests may end meanwhile.
        let counted = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_micros(50));
            working.iter().zip(&before).any(|(thread, before)| thread.read().runs >= before + 20)
        });
        assert!(counted, "10,000 sleeps were not counted as 20");
        assert!(Threads::list(&[own]).working(0).is_empty(), "too many");
        let threads = Threads::list(&[own]);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(threads.watched(1).len(), 1, "this thread ran, if no other did");
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let before = ThreadUse::current();
        let mut x = 0_u64;
        while (ThreadUse::current() - before).cpu_ns < 5_000_000 {
            x = std::hint::black_box(x + 1);
        }
        assert!(x > 0);
        let process = process_cpu_ns(std::process::id()).unwrap();
        assert!(process >= 5_000_000);
        assert!(process_cpu_ns(u32::MAX - 1).is_none());
        let mut clocks = Vec::new();
        ProcessClocks::open(&[u32::MAX - 1, std::process::id()]).read(&mut clocks);
        assert!(clocks[0] == 0 && clocks[1] >= process, "{clocks:?}");
    }
}
