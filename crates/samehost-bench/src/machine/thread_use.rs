//! CPU time, waiting time and context switches of the calling thread; CPU time of processes.

use std::fs::File;
use std::ops::{AddAssign, Sub};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

use super::proc::{self, Schedstat};

/// Use of a thread: a reading, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadUse {
    /// Time on a CPU in nanoseconds, exact (the scheduler's own count).
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub wait_ns: u64,
    /// User time in microseconds. Many kernels sample it by tick, so it is accurate only over many trials.
    pub user_us: u64,
    /// System time in microseconds, sampled likewise.
    pub system_us: u64,
    pub switches: u64,
}

fn micros(time: TimeVal) -> u64 {
    time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64
}

impl ThreadUse {
    /// Use of the calling thread so far.
    #[must_use]
    pub fn current() -> Self {
        ThreadMeter::current().read()
    }

    /// Reading without the waiting time, which needs a file.
    fn without_waiting() -> Self {
        let mut usage = ThreadUse::default();
        if let Ok(rusage) = getrusage(UsageWho::RUSAGE_THREAD) {
            usage.user_us = micros(rusage.user_time());
            usage.system_us = micros(rusage.system_time());
            usage.switches =
                (rusage.voluntary_context_switches() + rusage.involuntary_context_switches()) as u64;
        }
        usage.cpu_ns = thread_cpu_ns();
        usage
    }

    /// Fraction of the CPU time in user space; `None` if no tick fell into it.
    #[must_use]
    pub fn user_part(&self) -> Option<f64> {
        let both = self.user_us + self.system_us;
        (both > 0).then(|| self.user_us as f64 / both as f64)
    }
}

/// CPU time of the calling thread so far, exact to the nanosecond.
#[must_use]
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
            user_us: self.user_us.saturating_sub(earlier.user_us),
            system_us: self.system_us.saturating_sub(earlier.system_us),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

impl AddAssign for ThreadUse {
    fn add_assign(&mut self, other: ThreadUse) {
        self.cpu_ns += other.cpu_ns;
        self.wait_ns += other.wait_ns;
        self.user_us += other.user_us;
        self.system_us += other.system_us;
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
    #[must_use]
    pub fn current() -> Self {
        ThreadMeter { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    #[must_use]
    pub fn read(&self) -> ThreadUse {
        ThreadUse { wait_ns: self.waited_ns(), ..ThreadUse::without_waiting() }
    }

    /// How long the thread was ready to run and waited for a CPU so far, in nanoseconds; 0 where the kernel does not count it.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.schedstat.as_ref().and_then(schedstat).map_or(0, |counted| counted.waited_ns)
    }
}

/// Reads an open schedstat file; `None` if its thread has ended.
pub(super) fn schedstat(file: &File) -> Option<Schedstat> {
    let mut text = [0; 96];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok().and_then(proc::parse_schedstat)
}

/// CPU clocks of whole processes, kept for frequent readings: at the borders of slices.
#[derive(Debug)]
pub struct ProcessClocks {
    /// `None` for a process that has already ended.
    clocks: Vec<Option<nix::time::ClockId>>,
}

impl ProcessClocks {
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        ProcessClocks {
            clocks: pids
                .iter()
                .map(|pid| nix::time::clock_getcpuclockid(Pid::from_raw(i32::try_from(*pid).ok()?)).ok())
                .collect(),
        }
    }

    /// Appends the CPU time of each process so far in nanoseconds, ended threads included; 0 for a process
    /// that has ended.
    pub fn read(&self, into: &mut Vec<u64>) {
        into.extend(self.clocks.iter().map(|clock| {
            let time = clock.and_then(|clock| clock.now().ok());
            time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }));
    }
}

/// CPU time of a process so far in nanoseconds, ended threads included; `None` if it has ended.
#[must_use]
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    let clock = nix::time::clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    let time = clock.now().ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ProcessClocks::of(&[u32::MAX - 1, std::process::id()]).read(&mut clocks);
        assert!(clocks[0] == 0 && clocks[1] >= process, "{clocks:?}");
    }
}
