//! A trial on the program's own traffic: each new connection to a mapped port goes over TCP or over the Unix socket by a coin, and
//! the kernel times the exchanges of both (`samehost_bpf`). What it amounts to is for others to say.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use samehost_bpf::{Counted, Exchanges, Mode, OfConnection, PairCounts};
use samehost_model::scan::NoTime;
use samehost_scan::{are_too_many_lost, no_time};
use samehost_system::diag::Diag;

use super::coin::{Coin, Share, Way};
use super::doors::{Doors, Watched};
use super::maps::{Map, Maps};
use super::refused::{MOST_PORTS, TrialError, may_be_tried};
use super::thread::Thread;

/// Blocks of the report: each has every 24th block of the coin.
/// So many have an exact signed-rank interval, and each has room in the kernel for a histogram of both
/// arms (4 KiB for each processor). A block of the report for each block of the coin was rejected: it
/// would take a histogram for four connections each, and normal approximations in place of exact ranks.
/// Having 24 costs about 6 % of the interval's width (docs/decisions/0135).
pub const BLOCKS: u32 = 24;
/// Connections of a block of a trial that ends on a decision: those that came in a row.
/// So what was looked at after a block stays what it was. All blocks have as many connections, for the
/// test is of blocks that scatter alike; blocks that grow, so that 54 of them hold a trial and each has
/// its histogram, do not. Only the first [`BLOCKS`] carry what is counted in the kernel by blocks, and
/// what decides is counted by connections. Of simulated trials of equal arms 2 to 5 % were called
/// different (docs/method.md §17).
const IN_A_ROW: u32 = 20;
/// It is looked again when there are a twentieth more blocks: each look reads the record of each connection.
const MORE_BLOCKS: usize = 20;
/// Connections that a trial has at most: 8 MB of records in the kernel. Those after them go over TCP, and are counted.
const MOST: usize = 1 << 15;

struct Port {
    map: Map,
    doors: Watched,
    /// Ways of the open block of the coin that were not drawn yet, the next one at the end.
    left: Vec<Way>,
    /// The block of the report that the open block of the coin belongs to.
    block: u32,
    row: Row,
}

/// Blocks of the report that have connections in a row.
#[derive(Default)]
struct Row {
    block: u32,
    /// Connections that were drawn for it so far.
    drawn: u32,
    /// What was found of the blocks that were looked at, by way: it stays as it was then.
    looked: Vec<[Value; 2]>,
}

/// Exchanges with which a connection has its full weight; with fewer its weight is in proportion to them.
/// A connection that a pool opened and hardly used has the time of its first queries, which the server
/// prepares. Of 408 connections of a pool of Node the standard error of the ratio was 3.3 % with the same
/// weight for all, 1.2 % with this and 1.0 % with 100 (of connections' means, and not yet of logarithms).
/// More than this would weigh what a pool makes of the faster way (docs/method.md §17).
const FULL_WEIGHT: u64 = 20;

/// What decides, of one way in a block: the means of the logarithms of connections' exchanges, each with
/// its weight. Beside the sums of weights and of weighted means it has the connections with a time and
/// all their exchanges. The unit is the connection; a plain mean would be moved by one with a long query.
/// Until version 0.1 the value was the logarithm of a connection's mean, which scatters more: where times
/// have σ = 1 it has 1.7 times the variance, and 1,150 connections an arm found 5 % in 82 % of simulated
/// trials for 92 % now (docs/method.md §17).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Value {
    timed: u64,
    weights: f64,
    log_sum: f64,
    exchanges: u64,
    nanoseconds: u64,
}

impl Value {
    fn add(&mut self, found: &OfConnection) {
        if found.timed > 0 && found.nanoseconds > 0 {
            self.timed += 1;
            let weight = found.timed.min(FULL_WEIGHT) as f64 / FULL_WEIGHT as f64;
            self.weights += weight;
            self.log_sum += weight * found.log_sum / found.timed as f64;
            self.exchanges += found.timed;
            self.nanoseconds += found.nanoseconds;
        }
    }
}

impl Row {
    /// The block of the report that a block of the coin with so many connections belongs to; it is never divided.
    fn of_next(&mut self, size: u32) -> u32 {
        if self.drawn >= IN_A_ROW {
            (self.block, self.drawn) = (self.block + 1, 0);
        }
        self.drawn += size;
        self.block
    }

    /// Blocks that may be looked at: their connections had the time of a block more for their requests.
    fn ready(&self) -> usize {
        self.block.saturating_sub(1) as usize
    }

    fn is_to_be_looked_at(&self) -> bool {
        self.ready() > self.looked.len() + self.looked.len() / MORE_BLOCKS
    }

    /// Whole blocks, at the end; one at least, if it is not whole.
    fn whole(&self) -> usize {
        (self.block + u32::from(self.drawn >= IN_A_ROW || self.block == 0)) as usize
    }
}

struct Drawn {
    /// Place in the trial's list.
    port: usize,
    way: Way,
    block: u32,
    /// Its place among those that the kernel times; `None` where it could not be named.
    number: Option<u32>,
    fell_back: bool,
}

pub enum Draw {
    /// The number of the connection in this trial, and its way.
    New(usize, Way),
    Again,
    /// Both ways are not to be had, or the trial is full: it goes over TCP, and is not compared.
    Not,
    /// It is not known that one server is behind both doors now; why.
    Apart(String),
}

/// What a trial needs, and how its coin is thrown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub share: Share,
    pub seed: u64,
    /// `None` if it ends with the program.
    pub length: Option<Duration>,
    /// Whether system calls may be stamped where the kernel allows nothing better.
    pub exact: bool,
    pub until_decided: bool,
}

pub struct Trial {
    exchanges: Exchanges,
    /// Tells who listens.
    diag: Diag,
    begun: Instant,
    terms: Terms,
    coin: Coin,
    ports: Vec<Port>,
    drawn: Vec<Drawn>,
    is_decided: bool,
    /// The cookie of each socket that was drawn.
    known: HashMap<u64, usize>,
    /// Connections that were not drawn because only the other family's address is served.
    unserved: u64,
    /// Connections that were not drawn because the trial was full.
    left_out: u64,
    /// Connections that were not drawn because no single server was known to be behind both doors.
    apart: u64,
}

impl Trial {
    /// Begins a trial on these maps, at most `MOST_PORTS`, and has the kernel time their connections.
    ///
    /// # Errors
    /// What is missing, and what to do. A kernel that stamps when bytes arrive, and not when a request begins, is refused:
    /// times over TCP would lack the way there. Doors of two servers are refused.
    pub fn begin(maps: &Maps, doors: Vec<Doors>, terms: Terms) -> Result<Self, TrialError> {
        if maps.0.is_empty() || maps.0.len() > MOST_PORTS {
            return Err(TrialError::Ports);
        }
        let pairs = maps.0.len() as u32 * Way::BOTH.len() as u32 * BLOCKS;
        let exchanges = Exchanges::open_for_new(MOST as u32, pairs, terms.exact)?;
        if exchanges.mode() == Mode::Arrivals {
            let refused = exchanges.refused().map(ToString::to_string).unwrap_or_default();
            return Err(TrialError::Inexact(refused));
        }
        may_be_tried(maps.0.iter().zip(&doors))?;
        let mut ports = Vec::new();
        for (map, doors) in maps.0.iter().zip(doors) {
            let doors = Watched::new(doors);
            ports.push(Port { map: map.clone(), doors, left: Vec::new(), block: 0, row: Row::default() });
        }
        Ok(Trial {
            exchanges,
            diag: Diag::open().map_err(|errno| TrialError::Listing(errno.into()))?,
            begun: Instant::now(),
            terms,
            coin: Coin::new(terms.share, terms.seed),
            ports,
            drawn: Vec::new(),
            is_decided: false,
            known: HashMap::new(),
            unserved: 0,
            left_out: 0,
            apart: 0,
        })
    }

    /// `None` where it goes on until the program ends.
    pub fn left(&self) -> Option<Duration> {
        self.terms.length.map(|length| length.saturating_sub(self.begun.elapsed()))
    }

    /// Draws the way of a connection from the socket with this cookie. It is drawn once, whatever becomes of it: a program that asks
    /// again on the same socket goes on as before.
    pub fn draw(&mut self, cookie: u64, map: &Map, to: SocketAddr) -> Draw {
        if self.known.contains_key(&cookie) {
            return Draw::Again;
        }
        let Some(port) = self.ports.iter().position(|port| port.map == *map) else { return Draw::Not };
        if self.drawn.len() >= MOST {
            self.left_out += 1;
            return Draw::Not;
        }
        if !self.is_served(to) {
            self.unserved += 1;
            return Draw::Not;
        }
        let open = &mut self.ports[port];
        if let Err(doors) = open.doors.are_one(&mut self.diag, to, map) {
            self.apart += 1;
            return Draw::Apart(doors.to_string());
        }
        if open.left.is_empty() {
            let (block, left) = self.coin.next_block();
            open.block =
                if self.terms.until_decided { open.row.of_next(left.len() as u32) } else { block % BLOCKS };
            open.left = left;
        }
        let way = open.left.pop().unwrap_or(Way::Tcp);
        self.known.insert(cookie, self.drawn.len());
        self.drawn.push(Drawn { port, way, block: open.block, number: None, fell_back: false });
        Draw::New(self.drawn.len() - 1, way)
    }

    /// Whether a connection there can be tried: its address is served, or that of the other family is not
    /// either. Clients of `localhost` ask at ::1 first, and at 127.0.0.1 when nobody listens there. Over
    /// the Unix socket the first would be answered and over TCP refused, and the second would be drawn
    /// anew. So it is left alone where the other address alone is served. Where none is, the server is
    /// away or has no port: that is an error of the TCP arm (docs/decisions/0135).
    fn is_served(&mut self, to: SocketAddr) -> bool {
        let other: IpAddr = match to.ip().to_canonical() {
            IpAddr::V4(_) => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST.into(),
        };
        let diag = &mut self.diag;
        let is_here = diag.listens(SocketAddr::new(to.ip().to_canonical(), to.port())).unwrap_or(true);
        is_here || !diag.listens(SocketAddr::new(other, to.port())).unwrap_or(false)
    }

    /// Has the kernel time the connection of a client's socket. One that the kernel cannot name has no time.
    pub fn watch(&mut self, drawn: usize, client: &impl AsFd, thread: &Thread) {
        let Some(one) = self.drawn.get_mut(drawn) else { return };
        let way = usize::from(one.way == Way::Unix);
        let pair = ((Way::BOTH.len() * one.port + way) as u32) * BLOCKS + one.block % BLOCKS;
        one.number = self.exchanges.name_client(client.as_fd(), thread.pidfd(), pair).ok().flatten();
    }

    /// Whether a connection that was drawn for the Unix socket led to the server that has the port too.
    pub fn led_to_the_server(&mut self, drawn: usize, connection: BorrowedFd<'_>) -> bool {
        let Some(port) = self.drawn.get(drawn).and_then(|one| self.ports.get_mut(one.port)) else {
            return false;
        };
        port.doors.led_to_it(connection, &port.map)
    }

    /// Why what was counted is worth nothing: doors that were one server's are two servers' now.
    #[must_use]
    pub fn void(&self) -> Option<String> {
        self.ports.iter().find_map(|port| Some(format!("{}: {}", port.map, port.doors.apart()?)))
    }

    /// Takes note that a connection that was drawn for the Unix socket goes over TCP.
    pub fn fell_back(&mut self, drawn: usize) {
        if let Some(one) = self.drawn.get_mut(drawn) {
            one.fell_back = true;
        }
    }

    /// What there is so far, in whole blocks, where it ends on a decision and there are more of them than the last time.
    pub fn look(&mut self) -> Option<Tried> {
        if !self.terms.until_decided || !self.ports.iter().any(|port| port.row.is_to_be_looked_at()) {
            return None;
        }
        let counted = self.exchanges.so_far();
        self.note(&counted, Row::ready);
        Some(self.tried(&counted))
    }

    /// Keeps what was found of so many blocks of each port; of those that were looked at before it is known.
    fn note(&mut self, counted: &Counted, blocks: fn(&Row) -> usize) {
        let mut values: Vec<Vec<[Value; 2]>> = Vec::new();
        for port in &self.ports {
            values.push(vec![Default::default(); blocks(&port.row).max(port.row.looked.len())]);
        }
        for drawn in &self.drawn {
            let Some(block) = values[drawn.port].get_mut(drawn.block as usize) else { continue };
            if let Some(found) = drawn.found(counted) {
                block[usize::from(drawn.way == Way::Unix)].add(found);
            }
        }
        for (port, values) in self.ports.iter_mut().zip(values) {
            let known = port.row.looked.len();
            port.row.looked.extend(values.into_iter().skip(known));
        }
    }

    /// Takes note that what there is so far has decided: the report is of what was looked at, and of nothing after it.
    pub fn decided(&mut self) {
        self.is_decided = true;
    }

    #[must_use]
    pub fn finish(mut self) -> Tried {
        let counted = self.exchanges.end();
        if self.terms.until_decided && !self.is_decided {
            self.note(&counted, Row::whole);
        }
        let mut apart = None;
        for port in &mut self.ports {
            let found = port.doors.apart_at_the_end(&port.map);
            apart = apart.or(found.map(|found| format!("{}: {found}", port.map)));
        }
        Tried { void: apart, ..self.tried(&counted) }
    }

    /// Everything by ports, ways and blocks of the report.
    fn tried(&self, counted: &Counted) -> Tried {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut ports = Vec::new();
        for port in &self.ports {
            let blocks = if self.terms.until_decided { port.row.looked.len() } else { BLOCKS as usize };
            ports.push(TriedPort {
                map: port.map.clone(),
                arms: [TriedArm::of(blocks), TriedArm::of(blocks)],
            });
        }
        let mut after_the_last_block = 0;
        for drawn in &self.drawn {
            let arm = &mut ports[drawn.port].arms[usize::from(drawn.way == Way::Unix)];
            match arm.blocks.get_mut(drawn.block as usize) {
                Some(block) => block.add(drawn, counted),
                None => after_the_last_block += 1,
            }
        }
        for (port, found) in self.ports.iter().zip(&mut ports) {
            for (number, values) in port.row.looked.iter().enumerate() {
                for (arm, value) in found.arms.iter_mut().zip(values) {
                    arm.blocks[number].value = *value;
                }
            }
        }
        let is_lossy = are_too_many_lost(counted);
        let ways = ports.iter_mut().flat_map(|port| &mut port.arms);
        for (arm, counts) in ways.zip(counted.pairs.chunks(BLOCKS as usize)) {
            let mut all = PairCounts::default();
            for (number, counts) in counts.iter().enumerate() {
                all.merge(counts);
                if let Some(block) = arm.blocks.get_mut(number) {
                    block.counts = counts.clone();
                }
            }
            arm.no_time = no_time(&all, seconds, is_lossy);
            arm.counts = all;
        }
        Tried {
            mode: self.exchanges.mode(),
            seconds,
            ports,
            unserved: self.unserved,
            left_out: self.left_out,
            apart: self.apart,
            void: None,
            is_in_a_row: self.terms.until_decided,
            after_the_last_block,
        }
    }
}

#[derive(Debug)]
pub struct Tried {
    pub mode: Mode,
    pub seconds: f64,
    pub ports: Vec<TriedPort>,
    /// Connections that went over TCP and are not compared, because nobody listens at their address while somebody does at
    /// that of the other family.
    pub unserved: u64,
    /// Connections that went over TCP and are not compared, because the trial was full.
    pub left_out: u64,
    /// Connections that went over TCP and are not compared, because no single server was known to be behind both doors.
    pub apart: u64,
    /// Why nothing of it counts.
    pub void: Option<String>,
    /// Whether its blocks have connections in a row, and only the first ones what is counted by blocks in the kernel.
    pub is_in_a_row: bool,
    /// Connections after the last whole block, of a trial that ends on a decision.
    pub after_the_last_block: u64,
}

impl Tried {
    /// Whether the program made no connection that could have been drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let drawn = self.ports.iter().flat_map(|port| &port.arms).flat_map(|arm| &arm.blocks);
        let drawn: u64 = drawn.map(|block| block.connections).sum();
        drawn + self.unserved + self.left_out + self.apart + self.after_the_last_block == 0
    }

    /// Blocks of the report, of the port that has the most.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        let mut most = 1;
        for arm in self.ports.iter().flat_map(|port| &port.arms) {
            most = most.max(arm.blocks.len());
        }
        most as u32
    }
}

#[derive(Debug)]
pub struct TriedPort {
    pub map: Map,
    /// In the order of [`Way::BOTH`].
    pub arms: [TriedArm; 2],
}

/// The connections that were drawn for one way.
#[derive(Debug)]
pub struct TriedArm {
    /// Why they have no time; `None` where they have.
    pub no_time: Option<NoTime>,
    pub counts: PairCounts,
    pub blocks: Vec<TriedBlock>,
}

impl TriedArm {
    fn of(blocks: usize) -> Self {
        let blocks = (0..blocks).map(|_| TriedBlock::default()).collect();
        TriedArm { no_time: None, counts: PairCounts::default(), blocks }
    }
}

impl Default for TriedArm {
    fn default() -> Self {
        TriedArm::of(BLOCKS as usize)
    }
}

#[derive(Debug, Default)]
pub struct TriedBlock {
    pub connections: u64,
    /// Those that went over TCP although they were drawn for the Unix socket.
    pub fell_back: u64,
    /// Those that nobody took.
    pub refused: u64,
    /// Those that sent and never had a reply.
    pub unanswered: u64,
    value: Value,
    /// What is counted by blocks in the kernel; nothing of the later blocks of a trial that ends on a decision.
    pub counts: PairCounts,
}

impl Drawn {
    /// What was counted of it; `None` where the kernel does not time it.
    fn found<'a>(&self, counted: &'a Counted) -> Option<&'a OfConnection> {
        counted.connections.get(self.number? as usize)
    }
}

impl TriedBlock {
    fn add(&mut self, drawn: &Drawn, counted: &Counted) {
        self.connections += 1;
        self.fell_back += u64::from(drawn.fell_back);
        let Some(found) = drawn.found(counted) else { return };
        let is_tcp = drawn.way == Way::Tcp || drawn.fell_back;
        // `run` itself has connected a Unix socket; the kernel finds its other end with the first bytes.
        self.refused += u64::from(is_tcp && !found.has_both_ends);
        self.unanswered += u64::from(found.has_sent && !found.has_read);
        self.value.add(found);
    }

    #[must_use]
    pub fn timed(&self) -> u64 {
        self.value.timed
    }

    #[must_use]
    pub fn exchanges(&self) -> u64 {
        self.value.exchanges
    }

    /// The geometric mean of its exchanges, in which each connection has its weight, in microseconds; `None` without any.
    #[must_use]
    pub fn typical_us(&self) -> Option<f64> {
        (self.value.weights > 0.0).then(|| (self.value.log_sum / self.value.weights).exp() / 1000.0)
    }

    /// The mean of all its exchanges, in microseconds; `None` without any.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        let Value { exchanges, nanoseconds, .. } = self.value;
        (exchanges > 0).then(|| nanoseconds as f64 / exchanges as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_a_row_are_whole_before_they_are_looked_at() {
        let mut row = Row::default();
        let mut sizes = [0_u32; 4];
        for size in [4, 6, 6, 4, 6, 6, 6, 6, 4, 4, 4, 4, 4, 4] {
            sizes[row.of_next(size) as usize] += size;
        }
        assert_eq!(sizes, [20, 24, 20, 4]);
        assert_eq!((row.ready(), row.whole()), (2, 3));
        assert!(row.is_to_be_looked_at());
        row.looked = vec![Default::default(); 2];
        assert!(!row.is_to_be_looked_at());
    }

    #[test]
    fn a_trial_of_few_connections_has_one_block() {
        let mut row = Row::default();
        row.of_next(4);
        assert_eq!((row.ready(), row.whole()), (0, 1));
    }

    #[test]
    fn a_connection_that_was_hardly_used_weighs_little() {
        fn connection(timed: u64, microseconds: u64) -> OfConnection {
            OfConnection {
                timed,
                nanoseconds: timed * microseconds * 1000,
                log_sum: timed as f64 * (microseconds as f64 * 1000.0).ln(),
                ..Default::default()
            }
        }
        let mut block = TriedBlock::default();
        for found in [connection(1, 1000), connection(20, 10), connection(5000, 10)] {
            block.value.add(&found);
        }
        // (ln 1000 ÷ 20 + 2 ln 10) ÷ (1 ÷ 20 + 2)
        assert!((block.typical_us().unwrap() - 11.189).abs() < 0.001, "{:?}", block.typical_us());
        assert_eq!((block.timed(), block.exchanges()), (3, 5021));
    }
}
