//! Attributes CPU time to arms. Processes that serve several arms are read at the border of every slice, when
//! they are idle; processes that serve one arm only are read once a round. CPU time thus belongs to all
//! operations between two borders, those at the ends of a slice included, and is exact to a request.

use samehost_model::MachineUse;

use crate::engine::workers::Families;
use crate::machine::{
    MachineMeter, ProcessClocks, Schedstat, ServerMeter, ServerUse, SwitchCounter, ThreadMeter, ThreadUse,
    Threads, each_once,
};

/// Most threads of shared processes whose context switches are read at every border.
/// A process that serves several arms is read at each border of a slice, and its context switches are a
/// file for each thread. Up to twelve that is a small part of a slice; beyond it the reading would be in
/// the measurement, and the figure is left out (docs/method.md §1a).
const MAX_THREADS_WATCHED: usize = 12;
/// If an arm's own processes used at least this fraction of its CPU time, their context switches count for the whole.
const MIN_OWN_PART: f64 = 0.9;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// Processes that work for several arms, and for which.
    shared: Vec<Shared>,
    /// For each watched thread of a shared server process, the arms that it works for; empty if there are too
    /// many threads.
    threads: Vec<Vec<usize>>,
    private: Vec<Vec<u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shared {
    pid: u32,
    is_proxy: bool,
    arms: Vec<usize>,
}

impl Division {
    pub(super) fn by_workers(workers: &[Families]) -> Self {
        let private = vec![Vec::new(); workers.len()];
        let mut division = Division { shared: Vec::new(), threads: Vec::new(), private };
        for pid in all(workers, |w| &w.proxy) {
            division.shared.push(Shared { pid, is_proxy: true, arms: arms_of(workers, pid, |w| &w.proxy) });
        }
        for pid in all(workers, |w| &w.server) {
            match arms_of(workers, pid, |w| &w.server).as_slice() {
                [only] => division.private[*only].push(pid),
                arms => division.shared.push(Shared { pid, is_proxy: false, arms: arms.to_vec() }),
            }
        }
        division
    }

    /// Leaves shared server processes out: the threads of each arm's connections are read instead.
    pub(super) fn leave_servers_out(&mut self) {
        self.shared.retain(|shared| shared.is_proxy);
    }

    fn pids(&self) -> Vec<u32> {
        self.shared.iter().map(|shared| shared.pid).collect()
    }

    pub(super) fn shared_servers(&self) -> Vec<u32> {
        self.shared.iter().filter(|shared| !shared.is_proxy).map(|shared| shared.pid).collect()
    }

    fn arms_of(&self, pid: u32) -> Vec<usize> {
        let shared = self.shared.iter().find(|shared| shared.pid == pid && !shared.is_proxy);
        shared.map(|shared| shared.arms.clone()).unwrap_or_default()
    }
}

fn all(workers: &[Families], read: fn(&Families) -> &Vec<u32>) -> Vec<u32> {
    each_once(workers.iter().flat_map(read).copied().collect())
}

fn arms_of(workers: &[Families], pid: u32, read: fn(&Families) -> &Vec<u32>) -> Vec<usize> {
    (0..workers.len()).filter(|arm| read(&workers[*arm]).contains(&pid)).collect()
}

/// Source of clock readings; tests use scripted ones.
pub(super) trait Clocks {
    /// Appends the CPU time of each shared process so far, then how often each watched thread was given a CPU.
    fn processes(&mut self, into: &mut Vec<u64>);

    fn thread(&mut self) -> ThreadUse;
}

pub(super) struct Kernel {
    processes: ProcessClocks,
    switches: Vec<SwitchCounter>,
    thread: ThreadMeter,
}

impl Kernel {
    /// Opens the clocks, and watches those of the given threads of shared processes that have run since they were listed.
    pub(super) fn watch(division: &mut Division, threads: Threads) -> Self {
        let switches = threads.working(MAX_THREADS_WATCHED);
        division.threads = switches.iter().map(|thread| division.arms_of(thread.pid)).collect();
        Kernel { processes: ProcessClocks::open(&division.pids()), switches, thread: ThreadMeter::current() }
    }
}

impl Clocks for Kernel {
    fn processes(&mut self, into: &mut Vec<u64>) {
        self.processes.read(into);
        into.extend(self.switches.iter().map(|thread| thread.read().runs));
    }

    fn thread(&mut self) -> ThreadUse {
        self.thread.read()
    }
}

pub(super) struct Books<C> {
    clocks: C,
    division: Division,
    last: Vec<u64>,
    next: Vec<u64>,
    began: ThreadUse,
    used: Vec<Used>,
    private: Vec<ServerMeter>,
    own: Option<OwnThreads>,
    machine: MachineMeter,
    own_before: u64,
    /// CPU time of the shared processes for all arms, in nanoseconds.
    in_all: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub(super) client: ThreadUse,
    server_ns: u64,
    server_switches: u64,
    proxy_ns: u64,
}

pub(super) struct Closed {
    /// What client, server and proxy of each arm used, in the order of the arms.
    pub(super) arms: Vec<(ThreadUse, Option<ServerUse>, Option<ServerUse>)>,
    pub(super) machine: MachineUse,
}

impl<C: Clocks> Books<C> {
    /// Opens the accounts; all processes are idle. Where `own` threads serve each arm, they count in place of shared servers.
    pub(super) fn open(mut clocks: C, division: Division, own: Option<OwnThreads>, own_cpu_ns: u64) -> Self {
        let private = division.private.iter().map(|pids| ServerMeter::begin(pids, pids)).collect();
        let mut last = Vec::new();
        clocks.processes(&mut last);
        Books {
            clocks,
            used: vec![Used::default(); division.private.len()],
            division,
            next: Vec::with_capacity(last.len()),
            last,
            began: ThreadUse::default(),
            private,
            own,
            machine: MachineMeter::begin(),
            own_before: own_cpu_ns,
            in_all: 0,
        }
    }

    /// Begins a slice; no process has worked since the border before it.
    pub(super) fn begin(&mut self) {
        self.began = self.clocks.thread();
    }

    /// Ends a slice. CPU time during `settle`, in which the servers finish, counts for the servers and not
    /// for the client.
    pub(super) fn end(&mut self, arm: usize, settle: impl FnOnce()) {
        self.used[arm].client += self.clocks.thread() - self.began;
        settle();
        self.next.clear();
        self.clocks.processes(&mut self.next);
        let mut grown = self.last.iter().zip(&self.next).map(|(before, now)| now.saturating_sub(*before));
        for (shared, used) in self.division.shared.iter().zip(&mut grown) {
            self.in_all += used;
            if !shared.arms.contains(&arm) {
                continue;
            }
            if shared.is_proxy {
                self.used[arm].proxy_ns += used;
            } else {
                self.used[arm].server_ns += used;
            }
        }
        for (arms, switches) in self.division.threads.iter().zip(grown) {
            if arms.contains(&arm) {
                self.used[arm].server_switches += switches;
            }
        }
        std::mem::swap(&mut self.last, &mut self.next);
    }

    /// Closes the accounts. The growth of `own_cpu_ns` is the client's and does not count as foreign.
    pub(super) fn close(self, own_cpu_ns: u64, cpus: u32) -> Closed {
        let has_proxy = self.division.shared.iter().any(|shared| shared.is_proxy);
        let has_server = self.division.shared.iter().any(|shared| !shared.is_proxy);
        let has_threads = !self.division.threads.is_empty();
        let mut private: Vec<Option<ServerUse>> = self.private.iter().map(ServerMeter::end).collect();
        if let Some(own) = &self.own {
            private = (0..private.len()).map(|arm| Some(own.used(arm))).collect();
        }
        let private_ns: u64 = private.iter().flatten().map(|used| used.cpu_ns).sum();
        let own = own_cpu_ns.saturating_sub(self.own_before) + private_ns + self.in_all;
        let machine = self.machine.end(own, cpus);
        let mut arms = Vec::with_capacity(self.used.len());
        for (used, private) in self.used.iter().zip(private) {
            let switches = has_threads.then_some(used.server_switches);
            let shared = ServerUse { cpu_ns: used.server_ns, switches, ..ServerUse::default() };
            let server = (has_server || private.is_some()).then(|| together(shared, private));
            let proxy = has_proxy.then_some(ServerUse { cpu_ns: used.proxy_ns, ..ServerUse::default() });
            arms.push((used.client, server, proxy));
        }
        Closed { arms, machine }
    }
}

/// Sums shared and private processes. If the shared ones have too many threads to read, context switches are reported only if the
/// private ones did nearly all the work.
fn together(shared: ServerUse, private: Option<ServerUse>) -> ServerUse {
    let own = private.unwrap_or_default();
    let cpu_ns = shared.cpu_ns + own.cpu_ns;
    let did_it = cpu_ns > 0 && own.cpu_ns as f64 >= MIN_OWN_PART * cpu_ns as f64;
    let switches = match (shared.switches, private) {
        (Some(shared), None) => Some(shared),
        (Some(shared), Some(private)) => private.switches.map(|own| own + shared),
        (None, _) => own.switches.filter(|_| did_it),
    };
    ServerUse { cpu_ns, switches, threads: own.threads }
}

// Finds the threads of a shared server that serve one arm's connections each, as MariaDB and MySQL have them.
//
// A server that works for others meanwhile has their CPU time in its process's clock, at random in one arm's slices or
// another's. Beside a site that used 24 % of a CPU in the same MariaDB, the ratio of CPU time with one connection was known
// to 0.72–1.25 after 30 s. The threads of our own connections have a clock each and rest while another arm has its turn, so
// that they are read once a round and are exact. Asking the server which thread is whose was rejected: each protocol has
// another way, or none. Which thread the kernel runs in whose slices of the warm-up says the same of any server. A thread that
// serves several arms (Redis, memcached) belongs to none, and then the process counts, as it does for a private server, whose
// background work is a part of what an operation costs.

/// Most threads that are looked at: each takes a microsecond at every border of the warm-up.
const MAX_CENSUS_THREADS: usize = 256;
/// A thread is an arm's if it ran at least so often in the arm's slices, and in those of other arms at most once for so many
/// runs. What is rarer may be another client's thread that ran in one arm's slices by chance.
const MIN_RUNS: u64 = 3;
const OF_OTHERS: u64 = 10;

/// How often each thread of the server was given a CPU in each arm's slices of the warm-up.
pub(super) struct Census {
    threads: Vec<SwitchCounter>,
    last: Vec<u64>,
    /// By thread, then by arm.
    runs: Vec<Vec<u64>>,
}

impl Census {
    /// Watches all threads of these processes; none where there are more than [`MAX_CENSUS_THREADS`].
    pub(super) fn watch(server: &[u32], arms: usize) -> Self {
        let mut threads = Threads::list(server).all();
        if threads.len() > MAX_CENSUS_THREADS {
            threads.clear();
        }
        let runs = vec![vec![0; arms]; threads.len()];
        Census { last: vec![0; threads.len()], threads, runs }
    }

    pub(super) fn begin(&mut self) {
        for (last, thread) in self.last.iter_mut().zip(&self.threads) {
            *last = thread.read().runs;
        }
    }

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
    fn begin(threads: Vec<Vec<SwitchCounter>>) -> Self {
        let before = threads.iter().map(|own| total(own)).collect();
        OwnThreads { threads, before }
    }

    pub(super) fn used(&self, arm: usize) -> ServerUse {
        let (before, now) = (self.before[arm], total(&self.threads[arm]));
        ServerUse {
            cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            switches: Some(now.runs.saturating_sub(before.runs)),
            threads: u32::try_from(self.threads[arm].len()).ok(),
        }
    }
}

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
            if runs[arm] >= MIN_RUNS && others * OF_OTHERS <= runs[arm] {
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
    use std::collections::VecDeque;

    use super::*;

    fn workers(server: &[u32], proxy: &[u32]) -> Families {
        Families { server: server.to_vec(), proxy: proxy.to_vec() }
    }

    #[test]
    fn processes_are_divided_by_whom_they_serve() {
        // A server that forks for each connection: 10 and 11 serve all arms; 20, 21 and 22 serve one arm each.
        let division = Division::by_workers(&[
            workers(&[10, 11, 20], &[5]),
            workers(&[10, 11, 21], &[5]),
            workers(&[10, 11, 22], &[5]),
        ]);
        assert_eq!(division.private, [[20], [21], [22]]);
        assert_eq!(division.pids(), [5, 10, 11]);
        assert_eq!(division.shared[0], Shared { pid: 5, is_proxy: true, arms: vec![0, 1, 2] });
        // A process for each transport: the baseline and its control share one.
        let division = Division::by_workers(&[workers(&[10], &[]), workers(&[30], &[]), workers(&[10], &[])]);
        assert_eq!(division.private, [vec![], vec![30], vec![]]);
        assert_eq!(division.shared, [Shared { pid: 10, is_proxy: false, arms: vec![0, 2] }]);
    }

    struct Scripted {
        processes: VecDeque<Vec<u64>>,
        thread: VecDeque<u64>,
    }

    impl Clocks for Scripted {
        fn processes(&mut self, into: &mut Vec<u64>) {
            into.extend(self.processes.pop_front().unwrap());
        }

        fn thread(&mut self) -> ThreadUse {
            ThreadUse { cpu_ns: self.thread.pop_front().unwrap(), ..ThreadUse::default() }
        }
    }

    #[test]
    fn every_nanosecond_is_booked_to_the_arm_whose_slice_it_was() {
        let division = Division::by_workers(&[workers(&[10], &[5]), workers(&[10], &[5])]);
        let clocks = Scripted {
            // The proxy and the server: at the start, after arm 1, after arm 0, after arm 1.
            processes: [vec![100, 1000], vec![103, 1030], vec![110, 1100], vec![111, 1111]].into(),
            // Between slices the client works too (7, then 9), for no arm.
            thread: [0, 50, 57, 60, 69, 100].into(),
        };
        let mut books = Books::open(clocks, division, None, 0);
        for arm in [1, 0, 1] {
            books.begin();
            books.end(arm, || {});
        }
        let closed = books.close(0, 2);
        for (arm, expected) in [(0, (3, 70, 7)), (1, (50 + 31, 30 + 11, 3 + 1))] {
            let (client, server, proxy) = closed.arms[arm];
            assert_eq!((client.cpu_ns, server.unwrap().cpu_ns, proxy.unwrap().cpu_ns), expected, "{arm}");
        }
    }

    #[test]
    fn a_process_that_does_not_serve_the_arm_costs_it_nothing() {
        let division = Division::by_workers(&[
            workers(&[10], &[]),
            workers(&[2_000_000_030, 2_000_000_031], &[]),
            workers(&[10], &[]),
        ]);
        let clocks =
            Scripted { processes: [vec![0], vec![40], vec![45]].into(), thread: [0, 0, 0, 0].into() };
        let mut books = Books::open(clocks, division, None, 0);
        books.begin();
        books.end(0, || {});
        // The first arm's process does work of its own in the second arm's slice.
        books.begin();
        books.end(1, || {});
        let closed = books.close(0, 2);
        assert_eq!(closed.arms[0].1.unwrap().cpu_ns, 40);
        assert_eq!(closed.arms[1].1.unwrap().cpu_ns, 0, "no such process, so none of its time");
    }

    #[test]
    fn switches_are_told_where_the_arms_own_processes_worked() {
        fn used(cpu_ns: u64, switches: Option<u64>) -> ServerUse {
            ServerUse { cpu_ns, switches, threads: None }
        }
        let private = Some(used(95, Some(7)));
        assert_eq!(together(used(5, None), private), used(100, Some(7)));
        assert_eq!(together(used(50, None), private), used(145, None));
        assert_eq!(together(used(50, Some(3)), private), used(145, Some(10)));
        assert_eq!(together(used(50, Some(3)), None), used(50, Some(3)));
    }

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
