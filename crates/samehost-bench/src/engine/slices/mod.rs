//! A round: the connections of all arms of a point are open at once, and one thread drives them in turn in
//! short slices. What changes from one millisecond to the next affects all arms alike, so that their ratio is
//! known much sooner than from trials run one after the other. All slices of an arm in a round are one trial.
//!
//! Start reading at [`Lanes::drive`]. `lane` drives an arm, counts its operations and has the order of slices; `books`
//! attributes CPU time.

mod books;
mod lane;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::Trial;

use self::books::{Books, Closed, Division, Kernel};
use self::lane::{Borders, Lane, play};
use super::bulk::Writer;
use super::interruptions::{Interruptions, clock};
use super::session::{Connected, Connector, Seen, connect_all};
use super::trial::Metered;
use super::workers::{Families, WorkerPool, own_cpu_ns, precise_sleep};
use super::{Nanos, Surroundings, nanos, now, sleep_until};
use crate::error::BenchError;
use crate::machine::{CpuPlan, Threads, each_once, families};
use books::Census;

/// From the last reply until the server's clocks are read, in nanoseconds.
/// The kernel accounts a process's time when it leaves the CPU, and a server has work left after its last
/// reply. CPU time at a border belongs to all exchanges between two borders, including those that are not
/// counted for latency, so that numerator and denominator have them both (docs/method.md §1a).
const REST_NS: Nanos = 30_000;
/// Minimum length of a slice in requests, by the shortest request of the warm-up, so that reading clocks
/// and what is left out cost little. With one connection two exchanges are left out and none is waited
/// for; with several ([`MIN_REQUESTS_OF_SEVERAL`]) all of them are drained at the end. One connection had 40
/// requests before as well. The mean and the median of the warm-up were tried in place of the shortest:
/// beside other programs a warm-up has a handful of requests, one of them as long as a preemption, and
/// slices grew to 16 ms (docs/method.md §1a).
const MIN_REQUESTS_OF_ONE: Nanos = 10;
const MIN_REQUESTS_OF_SEVERAL: Nanos = 40;
/// Minimum number of slices of an arm in a round.
/// Where the scheduler puts two processes and how an idle CPU wakes changes from moment to moment and is
/// the noise of one request at a time. A round averages over such moments only if each arm has several of
/// them; with fewer slices it would be a short undivided trial with its noise (docs/method.md §1a).
const MIN_SLICES: u32 = 6;

/// Least length of a slice of the warm-up, and the slices that an arm of one connection has in it. What is learned from
/// it (whose threads serve whom, how long a request takes) needs more requests than the 0.25 ms of a slice of one
/// connection have; and beside other programs the only exchange of a single slice was a preemption.
const MIN_WARM_UP_NS: Nanos = 1_000_000;
const WARM_UP_PASSES: u32 = 3;

#[derive(Clone, Debug)]
pub struct Round {
    /// Length of a slice; slices are longer if requests take long.
    pub slice: Duration,
    /// Total length of the slices of an arm.
    pub length: Duration,
    pub cpus: CpuPlan,
    pub places_server: bool,
    /// Seed of the order of slices.
    pub seed: u64,
}

#[derive(Default)]
pub struct Lanes {
    opened: Vec<Opened>,
    /// Processes that the server started for connections of the arms opened so far.
    born: Vec<u32>,
}

struct Opened {
    client: Client,
    endpoint: String,
    connections: u32,
    roots: Vec<u32>,
    workers: Families,
}

enum Client {
    Sessions { connector: Arc<dyn Connector>, small: bool, streams: Connected },
    Stream(Writer),
}

impl Lanes {
    /// Opens the connections of one more arm; `surroundings` names its server. Returns the evidence about its
    /// first connection.
    ///
    /// # Errors
    /// When the server cannot be reached, and after a signal.
    pub fn open(
        &mut self,
        connector: Arc<dyn Connector>,
        small: bool,
        connections: u32,
        surroundings: &Surroundings,
    ) -> Result<Trial, BenchError> {
        let find = || connector.server_pids().unwrap_or_else(|| surroundings.server_pids.clone());
        let before = families(&find());
        let streams = connect_all(connector.as_ref(), connections, &surroundings.interrupted)?;
        let roots = find();
        let mut server = families(&roots);
        server.retain(|pid| !self.born.contains(pid));
        self.born.extend(server.iter().copied().filter(|pid| !before.contains(pid)));
        let mut evidence = Trial::default();
        if let Some((stream, _)) = streams.first() {
            Seen::by_kernel(stream).tell(&mut evidence);
        }
        let workers = Families { server, proxy: families(&surroundings.proxy_pids) };
        let endpoint = connector.endpoint();
        let client = Client::Sessions { connector, small, streams };
        self.opened.push(Opened { client, endpoint, connections, roots, workers });
        Ok(evidence)
    }

    /// Adds an arm that writes a stream. Returns the evidence about its connection.
    pub fn stream(&mut self, writer: Writer, surroundings: &Surroundings) -> Trial {
        let mut evidence = Trial::default();
        Seen::by_kernel(&writer.stream).tell(&mut evidence);
        let (roots, workers) = (surroundings.server_pids.clone(), Families::list(surroundings));
        let endpoint = writer.endpoint.clone();
        self.opened.push(Opened { client: Client::Stream(writer), endpoint, connections: 1, roots, workers });
        evidence
    }

    /// Drives the arms for a round. Returns trials in the order in which the arms were opened; the caller
    /// fills in their identity.
    pub fn drive(self, round: Round, surroundings: &Surroundings) -> Result<Vec<Trial>, BenchError> {
        if round.places_server {
            for opened in &self.opened {
                round.cpus.place_server(&opened.roots);
            }
            round.cpus.place_server(&surroundings.proxy_pids);
        }
        let endpoints: Vec<String> = self.opened.iter().map(|opened| opened.endpoint.clone()).collect();
        let progress = Arc::new(Progress::default());
        let (around, told) = (surroundings.clone(), Arc::clone(&progress));
        let patience = surroundings.patience + round.slice * 4;
        let mut pool: WorkerPool<Vec<Trial>> = WorkerPool::spawn(vec![Box::new(move || {
            round.cpus.place_client();
            precise_sleep();
            in_turn(self, &round, &around, &told)
        })])?;
        let mut seen = u64::MAX;
        loop {
            // The server counts as hung only if no slice has ended since the last check.
            let turns = progress.turns.load(Ordering::Relaxed);
            if let Some(trials) = pool.done.pop() {
                return Ok(trials);
            }
            if turns == seen {
                let arm = progress.arm.load(Ordering::Relaxed) as usize;
                let endpoint = endpoints.get(arm).cloned().unwrap_or_default();
                return Err(BenchError::Hung { endpoint, seconds: patience.as_secs_f64() });
            }
            seen = turns;
            pool.wait(now() + nanos(patience), surroundings)?;
        }
    }
}

/// How far the driving thread is: the slices that have ended, and the arm whose slice it is.
#[derive(Debug, Default)]
struct Progress {
    turns: AtomicU64,
    arm: AtomicU64,
}

impl Progress {
    fn begin(&self, arm: usize, interrupted: &AtomicBool) -> Result<(), BenchError> {
        self.arm.store(arm as u64, Ordering::Relaxed);
        if interrupted.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

fn in_turn(
    lanes: Lanes,
    round: &Round,
    surroundings: &Surroundings,
    progress: &Progress,
) -> Result<Vec<Trial>, BenchError> {
    let patience = nanos(surroundings.patience) * 4 / 5;
    let connections = lanes.opened.first().map_or(1, |opened| opened.connections as usize);
    let workers: Vec<Families> = lanes.opened.iter().map(|opened| opened.workers.clone()).collect();
    let mut arms = Vec::with_capacity(lanes.opened.len());
    for opened in lanes.opened {
        arms.push(match opened.client {
            Client::Sessions { connector, small, streams } => Lane::new(connector, small, streams, patience)?,
            Client::Stream(writer) => Lane::of_stream(writer, patience),
        });
    }
    let mut division = Division::by_workers(&workers);
    let threads = Threads::list(&division.shared_servers());
    let listed = Threads::list(&each_once(workers.iter().flat_map(Families::all).collect()));
    let interrupted = &surroundings.interrupted;
    // A private server has its background work in what an operation costs.
    let server = if round.places_server { Vec::new() } else { division.shared_servers() };
    let census = Census::watch(&server, arms.len());
    let mut warming = WarmUp { progress, interrupted, census };
    // A slice of a short round is shorter than usual, and so is its warm-up.
    let warm_up = nanos(round.slice).max(MIN_WARM_UP_NS).min(nanos(round.length) / u64::from(MIN_SLICES));
    let is_one = arms.iter().all(Lane::is_one_connection);
    play(&mut arms, (if is_one { WARM_UP_PASSES } else { 1 }, warm_up), round.seed, &mut warming)?;
    let own = warming.census.own(connections);
    if own.is_some() {
        division.leave_servers_out();
    }
    let shortest = arms.iter().filter_map(Lane::shortest).max().unwrap_or(0);
    let (passes, slice) = cut(round, least_length(shortest, is_one));
    let waits = clock(listed);
    for lane in &mut arms {
        let shortest = lane.shortest();
        lane.forget();
        if lane.is_one_connection() {
            lane.leave_out(Interruptions::new(Arc::clone(&waits), shortest));
        }
    }
    let sleeps = round.cpus.is_shared();
    rest_until(now() + REST_NS, sleeps);
    let clocks = Kernel::watch(&mut division, threads);
    let books = Books::open(clocks, division, own, own_cpu_ns());
    let seed = round.seed.rotate_left(32);
    let moves = Moves::for_round(&arms, round, seed);
    let mut meters = RoundMeters { books, progress, interrupted, sleeps, moves };
    play(&mut arms, (passes, slice), seed, &mut meters)?;
    let Closed { arms: used, machine } = meters.books.close(own_cpu_ns(), surroundings.cpus);
    let trials = arms.iter().zip(used).map(|(lane, (client, server, proxy))| {
        let metered = Metered { server, proxy, machine: machine.clone(), late_ms: None };
        lane.counter().trial(client, metered)
    });
    Ok(trials.collect())
}

/// The least length of a slice, in nanoseconds, by the shortest request of the warm-up, of the slowest arm. Beside other programs a
/// warm-up of a millisecond has a handful of requests, and their median was that of a preemption.
fn least_length(shortest: Nanos, is_one: bool) -> Nanos {
    shortest * if is_one { MIN_REQUESTS_OF_ONE } else { MIN_REQUESTS_OF_SEVERAL }
}

/// Number and length of an arm's slices that are at least so long.
fn cut(round: &Round, least: Nanos) -> (u32, Nanos) {
    let length = nanos(round.length);
    let longest = (length / u64::from(MIN_SLICES)).max(1);
    let slice = nanos(round.slice).max(least).min(longest);
    (length.div_ceil(slice) as u32, slice)
}

/// Waits while a server finishes its work; sleeps if the server needs this thread's CPU for that, else spins.
fn rest_until(moment: Nanos, sleeps: bool) {
    if sleeps {
        sleep_until(moment);
    }
    while now() < moment {
        std::hint::spin_loop();
    }
}

/// Between slices of the warm-up: only which thread of the server ran in whose slices is read.
struct WarmUp<'a> {
    progress: &'a Progress,
    interrupted: &'a AtomicBool,
    census: Census,
}

impl Borders for WarmUp<'_> {
    fn before(&mut self, arm: usize) -> Result<(), BenchError> {
        self.progress.begin(arm, self.interrupted)?;
        self.census.begin();
        Ok(())
    }

    fn after(&mut self, arm: usize) {
        self.census.end(arm);
        self.progress.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Between counted slices: the client's thread may be moved, the server rests, and the clocks are read.
struct RoundMeters<'a> {
    books: Books<Kernel>,
    progress: &'a Progress,
    interrupted: &'a AtomicBool,
    sleeps: bool,
    moves: Option<Moves>,
}

/// Where a slice begins that the scheduler places: of one connection to a running server, and of several to any.
///
/// The thread of a connection stays on the client's CPU or on another one for as long as a round, and that is a factor of two to
/// three of the time: 30 µs or 90 of a query over TCP, 22 or 75 over the Unix socket, of a MariaDB that served a site meanwhile.
/// A round's ln ratio then scattered by 0.6 to 0.7 (standard deviation) and 58 rounds knew the ratio to ±17 %. The client's
/// thread is moved to a CPU drawn at random before each slice, and the scheduler goes on from there: each arm has both in each
/// round, and the scatter was 0.2, the interval ±5 %. Rejected: pinning the server's threads, which are another's; pinning the
/// client for a slice, which forbids what the scheduler would do; and more but shorter rounds alone, which gave the ±17 %.
///
/// With 64 connections an arm's CPU time per request had one of two values 1.4 apart for a whole round, at both ends and for each arm
/// by itself: who shares a CPU with whom stayed. Beside a program at 60 % of each of two CPUs a round's ln ratio scattered by 24, 13
/// and 23 % (memcached, 14 rounds each) and 19, 17 and 13 % (MariaDB); with the moves and slices of 8 ms by 9, 10 and 11 % and by 13,
/// 12 and 9 %. Shorter slices alone gave nothing (15 to 27 %), the moves with slices of 20 ms half (10 to 35 %). On the quiet machine
/// the ratios are the same (our own server 0.59 and 0.60, Redis 0.64 and 0.64, memcached 0.69 and 0.68, MariaDB 0.86 and 0.86,
/// PostgreSQL 0.87 and 0.88), and the scatter of MariaDB is 3 % where it was 5.
struct Moves {
    cpus: CpuPlan,
    random: Xoshiro256PlusPlus,
}

impl Moves {
    /// `None` for one connection to a private server, which has its CPUs, and for streams, whose bandwidth differs from CPU to CPU.
    fn for_round(arms: &[Lane], round: &Round, seed: u64) -> Option<Self> {
        let is_placed = round.places_server && arms.iter().all(Lane::is_one_connection);
        if is_placed || arms.iter().any(Lane::is_stream) {
            return None;
        }
        Some(Moves { cpus: round.cpus.clone(), random: Xoshiro256PlusPlus::seed_from_u64(seed) })
    }
}

impl Borders for RoundMeters<'_> {
    fn before(&mut self, arm: usize) -> Result<(), BenchError> {
        self.progress.begin(arm, self.interrupted)?;
        if let Some(moves) = &mut self.moves {
            moves.cpus.start_anew(&mut moves.random);
        }
        self.books.begin();
        Ok(())
    }

    fn after(&mut self, arm: usize) {
        let sleeps = self.sleeps;
        self.books.end(arm, || rest_until(now() + REST_NS, sleeps));
        self.progress.turns.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_as_long_as_slow_requests_need() {
        let ms = Duration::from_millis;
        let round = Round {
            slice: ms(3),
            length: ms(200),
            cpus: CpuPlan { client: vec![0], server: vec![1] },
            places_server: true,
            seed: 1,
        };
        assert_eq!(cut(&round, least_length(50_000, false)), (67, 3_000_000), "60 requests of 50 µs fit");
        assert_eq!(cut(&round, least_length(500_000, false)), (10, 20_000_000));
        assert_eq!(
            cut(&round, least_length(500_000, true)),
            (40, 5_000_000),
            "ten of one connection are enough"
        );
        let (passes, slice) = cut(&round, least_length(1_000_000_000, false));
        assert_eq!((passes, slice), (7, 33_333_333), "no longer than a sixth of the round");
    }
}
