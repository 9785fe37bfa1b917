//! CPU affinity of client and server.

use rand::Rng;
use rand::seq::IndexedRandom;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samehost_model::Placement;
use samehost_system::peer::family;

use crate::error::BenchError;

/// CPUs that this process may use, ascending.
#[must_use]
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

    /// Whether each end has one CPU of its own, so that they can change places.
    #[must_use]
    pub fn can_swap(&self) -> bool {
        self.client.len() == 1 && self.server.len() == 1 && self.client != self.server
    }

    #[must_use]
    pub fn swapped(self) -> Self {
        CpuPlan { client: self.server, server: self.client }
    }

    /// Whether client and server share a single CPU.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.client.len() == 1 && self.client == self.server
    }

    /// Pins the calling thread to the client's CPUs.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rustix::thread::sched_getcpu;

    use super::*;

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
}
