//! CPU time, waiting and context switches of the calling thread.

use std::fs::File;
use std::ops::{AddAssign, Sub};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

use super::proc;

/// What a thread used, or the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadUse {
    /// Time on a CPU, in nanoseconds, exact (the scheduler's own count).
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub wait_ns: u64,
    /// User time in microseconds; on many kernels sampled by tick, so good over many trials only.
    pub user_us: u64,
    /// System time in microseconds, sampled likewise.
    pub system_us: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
}

fn micros(time: TimeVal) -> u64 {
    time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64
}

impl ThreadUse {
    /// The calling thread's use so far.
    #[must_use]
    pub fn current() -> Self {
        ThreadMeter::current().read()
    }

    /// What needs no file.
    fn without_waiting() -> Self {
        let mut usage = ThreadUse::default();
        if let Ok(rusage) = getrusage(UsageWho::RUSAGE_THREAD) {
            usage.user_us = micros(rusage.user_time());
            usage.system_us = micros(rusage.system_time());
            usage.switches =
                (rusage.voluntary_context_switches() + rusage.involuntary_context_switches()) as u64;
        }
        // Exact to the nanosecond.
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        usage.cpu_ns = clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64;
        usage
    }

    /// User space's part of the CPU time, 0 to 1; absent when no tick fell into it.
    #[must_use]
    pub fn user_part(&self) -> Option<f64> {
        let both = self.user_us + self.system_us;
        (both > 0).then(|| self.user_us as f64 / both as f64)
    }
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

/// Reads one thread's use again and again: its file stays open, so that a reading costs a microsecond.
#[derive(Debug)]
pub struct ThreadMeter {
    /// Where the kernel keeps how long the thread waited, if it does.
    schedstat: Option<File>,
}

impl ThreadMeter {
    /// A meter of the calling thread, to be read by it alone.
    #[must_use]
    pub fn current() -> Self {
        ThreadMeter { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// What the thread used so far.
    #[must_use]
    pub fn read(&self) -> ThreadUse {
        let mut usage = ThreadUse::without_waiting();
        let mut text = [0; 96];
        if let Some(file) = &self.schedstat
            && let Ok(length) = rustix::io::pread(file, &mut text, 0)
            && let Some((_, wait)) = std::str::from_utf8(&text[..length]).ok().and_then(proc::parse_schedstat)
        {
            usage.wait_ns = wait;
        }
        usage
    }
}

/// Clocks of whole processes, to be read often: at the borders of slices.
#[derive(Debug)]
pub struct ProcessClocks {
    /// None for a process that was gone already.
    clocks: Vec<Option<nix::time::ClockId>>,
}

impl ProcessClocks {
    /// The clocks of these processes.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let clock = |pid: &u32| nix::time::clock_getcpuclockid(Pid::from_raw(i32::try_from(*pid).ok()?)).ok();
        ProcessClocks { clocks: pids.iter().map(clock).collect() }
    }

    /// Appends each one's CPU time so far in nanoseconds, threads that ended included; 0 for one that is gone.
    pub fn read(&self, into: &mut Vec<u64>) {
        into.extend(self.clocks.iter().map(|clock| {
            let time = clock.and_then(|clock| clock.now().ok());
            time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }));
    }
}

/// CPU time of a whole process so far, threads that ended included, in nanoseconds; absent when it is gone.
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
