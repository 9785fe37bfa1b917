//! Finds the threads of a shared server that serve one arm's connections each, as MariaDB and MySQL have them.
//!
//! A server that works for others meanwhile has their CPU time in its process's clock, at random in one arm's slices or
//! another's. Beside a site that used 24 % of a CPU in the same MariaDB, the ratio of CPU time with one connection was known
//! to 0.72–1.25 after 30 s. The threads of our own connections have a clock each and rest while another arm has its turn, so
//! that they are read once a round and are exact. Asking the server which thread is whose was rejected: each protocol has
//! another way, or none. Which thread the kernel runs in whose slices of the warm-up says the same of any server. A thread that
//! serves several arms (Redis, memcached) belongs to none, and then the process counts, as it does for a private server, whose
//! background work is a part of what an operation costs.

use crate::machine::{Schedstat, ServerUse, SwitchCounter, Threads};

/// Most threads that are looked at: each takes a microsecond at every border of the warm-up.
const MOST_THREADS: usize = 256;
/// Fewest times that a thread ran in its arm's slices.
const FEWEST_RUNS: u64 = 3;
/// In the slices of other arms it ran at most once for so many runs in its own.
const OF_OTHERS: u64 = 10;

/// How often each thread of the server was given a CPU in each arm's slices of the warm-up.
pub(super) struct Census {
    threads: Vec<SwitchCounter>,
    last: Vec<u64>,
    /// By thread, then by arm.
    runs: Vec<Vec<u64>>,
}

impl Census {
    /// Of all threads of these processes; of none where they are too many.
    pub(super) fn of(server: &[u32], arms: usize) -> Self {
        let mut threads = Threads::of(server).all();
        if threads.len() > MOST_THREADS {
            threads.clear();
        }
        let runs = vec![vec![0; arms]; threads.len()];
        Census { last: vec![0; threads.len()], threads, runs }
    }

    /// Before a slice.
    pub(super) fn begin(&mut self) {
        for (last, thread) in self.last.iter_mut().zip(&self.threads) {
            *last = thread.read().runs;
        }
    }

    /// After a slice of this arm.
    pub(super) fn end(&mut self, arm: usize) {
        for ((runs, last), thread) in self.runs.iter_mut().zip(&self.last).zip(&self.threads) {
            runs[arm] += thread.read().runs.saturating_sub(*last);
        }
    }

    /// The threads of each arm, as many as it has connections; `None` where a thread serves several arms.
    pub(super) fn own(self, connections: usize) -> Option<OwnThreads> {
        let owners = owners(&self.runs, connections)?;
        let arms = self.runs.first().map_or(0, Vec::len);
        let mut own: Vec<Vec<SwitchCounter>> = (0..arms).map(|_| Vec::new()).collect();
        for (thread, owner) in self.threads.into_iter().zip(owners) {
            if let Some(arm) = owner {
                own[arm].push(thread);
            }
        }
        Some(OwnThreads::begin(own))
    }
}

/// Threads of a shared server that serve one arm's connections each, by arm, and their CPU time and runs at the beginning.
pub(super) struct OwnThreads {
    threads: Vec<Vec<SwitchCounter>>,
    before: Vec<Schedstat>,
}

impl OwnThreads {
    /// Reads them at the beginning, when they rest.
    fn begin(threads: Vec<Vec<SwitchCounter>>) -> Self {
        let before = threads.iter().map(|own| total(own)).collect();
        OwnThreads { threads, before }
    }

    /// What the threads of an arm used since.
    pub(super) fn used(&self, arm: usize) -> ServerUse {
        let (before, now) = (self.before[arm], total(&self.threads[arm]));
        ServerUse {
            cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            user_part: None,
            switches: Some(now.runs.saturating_sub(before.runs)),
            threads: u32::try_from(self.threads[arm].len()).ok(),
        }
    }
}

/// What the kernel counted of some threads together.
fn total(threads: &[SwitchCounter]) -> Schedstat {
    let mut sum = Schedstat::default();
    for thread in threads {
        let counted = thread.read();
        sum.cpu_ns += counted.cpu_ns;
        sum.waited_ns += counted.waited_ns;
        sum.runs += counted.runs;
    }
    sum
}

/// Whose each thread is, from how often it ran in whose slices. `None` unless each arm has as many of its own as it has
/// connections. Of more than that, those that ran most often are taken: another client's thread ran in one arm's slices by chance.
fn owners(runs: &[Vec<u64>], connections: usize) -> Option<Vec<Option<usize>>> {
    let mut owners = vec![None; runs.len()];
    let arms = runs.first()?.len();
    for arm in 0..arms {
        let mut candidates = Vec::new();
        for (thread, runs) in runs.iter().enumerate() {
            let others = runs.iter().sum::<u64>() - runs[arm];
            if runs[arm] >= FEWEST_RUNS && others * OF_OTHERS <= runs[arm] {
                candidates.push((runs[arm], thread));
            }
        }
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        if candidates.len() < connections {
            return None;
        }
        for (_, thread) in candidates.into_iter().take(connections) {
            owners[thread] = Some(arm);
        }
    }
    Some(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_for_each_connection_belongs_to_its_arm() {
        // A thread of ours for each of two arms, one of another client, one that runs now and then.
        let runs = [vec![30, 1], vec![0, 28], vec![9, 12], vec![4, 0]];
        assert_eq!(owners(&runs, 1), Some(vec![Some(0), Some(1), None, None]));
        assert_eq!(owners(&runs, 2), None, "the second arm has no second thread");
    }

    #[test]
    fn a_thread_that_serves_all_arms_belongs_to_none() {
        assert_eq!(owners(&[vec![40, 38]], 1), None);
        assert_eq!(owners(&[], 1), None);
    }
}
