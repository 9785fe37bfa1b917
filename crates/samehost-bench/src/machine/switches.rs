//! Counts how often a server's threads were given a CPU, at every border of slices. Only threads that work
//! are watched, and only if they are few: each reading takes a microsecond.

use std::fs::{self, File};

use super::proc::Schedstat;
use super::thread_use::schedstat;

/// Threads of some processes, and how often each was given a CPU when listed.
#[derive(Debug)]
pub struct Threads(Vec<(SwitchCounter, u64)>);

/// Counter of one thread: how often it was given a CPU, and how long it used one and waited for one.
#[derive(Debug)]
pub struct SwitchCounter {
    pub pid: u32,
    file: File,
}

impl Threads {
    /// Lists all threads of these processes.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|pid| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            tasks.filter_map(|task| {
                let file = File::open(task.path().join("schedstat")).ok()?;
                let runs = schedstat(&file)?.runs;
                Some((SwitchCounter { pid: *pid, file }, runs))
            })
        });
        Threads(threads.collect())
    }

    /// Threads that have run since they were listed; empty if there are more than `most`.
    #[must_use]
    pub fn working(self, most: usize) -> Vec<SwitchCounter> {
        let worked = self.0.into_iter().filter(|(thread, before)| thread.read().runs > *before);
        let working: Vec<SwitchCounter> = worked.map(|(thread, _)| thread).collect();
        if working.len() > most { Vec::new() } else { working }
    }

    /// All threads if there are at most `most`; else so many that have run most often since they were listed.
    #[must_use]
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

    /// All threads.
    #[must_use]
    pub fn all(self) -> Vec<SwitchCounter> {
        self.0.into_iter().map(|(thread, _)| thread).collect()
    }
}

impl SwitchCounter {
    /// What the kernel counted of the thread so far; its CPU time is exact while it rests. All 0 if it has ended.
    #[must_use]
    pub fn read(&self) -> Schedstat {
        schedstat(&self.file).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_given_a_cpu_again_and_again() {
        let own = std::process::id();
        let threads = Threads::of(&[own, u32::MAX]);
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
        assert!(Threads::of(&[own]).working(0).is_empty(), "too many");
        let threads = Threads::of(&[own]);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(threads.watched(1).len(), 1, "this thread ran, if no other did");
    }
}
