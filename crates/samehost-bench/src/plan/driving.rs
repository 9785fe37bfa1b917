//! How arms that are compared are driven: in slices of a round or in separate trials, and on which CPUs. Pure.

use std::time::Duration;

use samehost_model::{Arm, Driven, Placement, Point, Transport, Undivided};

use crate::error::BenchError;
use crate::machine::{CpuPlan, allowed_cpus};
use crate::order::groups;
use crate::request::Request;
use crate::workload::Capabilities;

/// The most connections that are open at once for all arms of a point.
const MAX_CONNECTIONS_AT_ONCE: u32 = 1024;

/// What decides, besides the arms, how arms are driven.
#[derive(Clone, Debug)]
pub(crate) struct Driving {
    /// Most connections of an arm with which the workload's requests can be cut into slices.
    pub(crate) most: u32,
    pub(crate) least: Duration,
    pub(crate) threads: u32,
    /// Arms that take turns at a point, twice each where there is a control.
    pub(crate) lanes: u32,
    pub(crate) allowed: Vec<usize>,
    pub(crate) places_server: bool,
}

/// Usual length of a slice: 0.25 ms for one connection, 8 ms for several, whose requests in flight the
/// other arm waits for. One connection had 1 ms. Beside a program at 60 % of each of two CPUs an arm's
/// two runs in a block differed by 4.1 and 4.2 % with it (MariaDB, two measurements, standard deviation
/// of ln), by 2.3 and 1.7 % with 0.4 ms, and by 0.6 and 0.5 % with 0.2 ms, where a block takes twice as
/// long. Redis' ratio scattered by 3.8 % with 1 ms and by 1.7 % with 0.25. On the quiet machine the
/// ratios stay, but for our own server's, which is 2 % smaller. Several connections scatter less with 2
/// ms too, and there the ratio moves: Redis' CPU time with 64 was 0.605 for 0.637. Separate trials of a
/// second were the first way, and do not average away where the scheduler puts two processes
/// (docs/method.md §1a).
fn usual(connections: u32) -> Duration {
    if connections == 1 { Duration::from_micros(250) } else { Duration::from_millis(8) }
}

impl Driving {
    pub(crate) fn new(capabilities: &Capabilities, request: &Request, transports: &[Transport]) -> Self {
        let all = transports.len() as u32;
        let run_twice = all > 1 && !request.stop.no_control;
        Driving {
            most: capabilities.most_sliced,
            least: capabilities.least_slice,
            threads: request.threads,
            lanes: if run_twice { 2 * all } else { all },
            allowed: allowed_cpus(),
            places_server: request.servers.is_empty(),
        }
    }

    /// Length of the slices of arms at this point, or the reason for separate trials.
    pub(crate) fn slice(&self, point: &Point) -> Result<Duration, Undivided> {
        if self.most == 0 {
            return Err(Undivided::Workload);
        }
        if point.rate_per_s.is_some() {
            return Err(Undivided::OpenLoop);
        }
        if self.threads > 1 {
            return Err(Undivided::Threads);
        }
        if point.connections > self.most || point.connections * self.lanes > MAX_CONNECTIONS_AT_ONCE {
            return Err(Undivided::Connections);
        }
        Ok(usual(point.connections).max(self.least))
    }

    /// The most connections that the server has open when arms with so many connections are measured.
    pub(crate) fn at_once(&self, connections: u32, is_open_loop: bool) -> u32 {
        let point = Point { connections, rate_per_s: is_open_loop.then_some(1.0), ..Point::default() };
        if self.slice(&point).is_ok() { connections * self.lanes } else { connections }
    }

    /// Default placement of one connection in a closed loop: a CPU for each end, where we place the
    /// server and have two. Where the scheduler places two processes that wake each other is the largest
    /// source of noise, and it says nothing about a transport: it makes an exchange 5 or 60 µs long, and
    /// what free placement answers varies by a factor of ten from minute to minute. That is real too and
    /// another question, which `--placement free` asks. A server that runs already is never pinned
    /// (docs/method.md §1a).
    pub(crate) fn alone(&self) -> Placement {
        let can = self.most > 0 && self.places_server && self.allowed.len() > 1;
        if can { Placement::CrossCore } else { Placement::Free }
    }

    /// CPUs of client and server at a point.
    ///
    /// # Errors
    /// When there are too few for the placement.
    pub(crate) fn cpus(&self, point: &Point) -> Result<CpuPlan, BenchError> {
        let cpus = CpuPlan::new(point.placement, &self.allowed)?;
        Ok(if point.connections == 1 { cpus.one_each() } else { cpus })
    }

    /// Whether client and server change places at random from round to round. A program that stays on one CPU for some
    /// rounds and on the other for the next slows the client's end in some and the server's in others; with fixed
    /// places it would do so in the order of its own moves. All arms of a round are placed alike, so the ratio is
    /// about both places. Streams, which have a least slice, stay: their bandwidth differs from CPU to CPU (15 rounds of
    /// 512 KiB writes, three times: 1.10–1.69 in fixed places, 1.00–1.22 and wider in changing ones).
    pub(crate) fn swaps(&self, cpus: &CpuPlan) -> bool {
        self.places_server && self.least.is_zero() && cpus.can_swap()
    }

    /// How the arms of all points with a comparison are driven.
    ///
    /// # Errors
    /// When there are too few CPUs.
    pub(crate) fn driven(&self, arms: &[Arm]) -> Result<Vec<Driven>, BenchError> {
        let mut all: Vec<Driven> = Vec::new();
        for group in groups(arms) {
            let point = &arms[group[0]].point;
            let is_known =
                |known: &Driven| known.connections == point.connections && known.placement == point.placement;
            if group.len() < 2 || all.iter().any(is_known) {
                continue;
            }
            let slice = self.slice(point);
            let is_sliced = slice.is_ok();
            let cpus = self.cpus(point)?;
            let (client, server) = match point.placement {
                Placement::Free => (&[][..], &[][..]),
                _ if self.places_server => (&cpus.client[..], &cpus.server[..]),
                _ => (&cpus.client[..], &[][..]),
            };
            all.push(Driven {
                connections: point.connections,
                placement: point.placement,
                slice_s: slice.ok().map(|slice| slice.as_secs_f64()),
                undivided: slice.err(),
                client_cpus: numbers(client),
                server_cpus: numbers(server),
                swapped_at_random: is_sliced && point.placement == Placement::CrossCore && self.swaps(&cpus),
            });
        }
        Ok(all)
    }
}

fn numbers(cpus: &[usize]) -> Vec<u32> {
    cpus.iter().map(|cpu| *cpu as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driving() -> Driving {
        Driving {
            most: 256,
            least: Duration::ZERO,
            threads: 1,
            lanes: 4,
            allowed: vec![0, 1],
            places_server: true,
        }
    }

    fn point(connections: u32) -> Point {
        Point { connections, ..Point::default() }
    }

    #[test]
    fn slices_where_they_can_be_and_else_the_reason() {
        let driving = driving();
        let ms = Duration::from_millis;
        assert_eq!(driving.slice(&point(1)), Ok(Duration::from_micros(250)));
        assert_eq!(driving.slice(&point(64)), Ok(ms(8)));
        assert_eq!(driving.slice(&point(257)), Err(Undivided::Connections));
        let due = Point { rate_per_s: Some(5.0), ..point(1) };
        assert_eq!(driving.slice(&due), Err(Undivided::OpenLoop));
        let changed = |change: fn(&mut Driving)| {
            let mut changed = driving.clone();
            change(&mut changed);
            changed.slice(&point(1))
        };
        assert_eq!(changed(|d| d.most = 0), Err(Undivided::Workload));
        assert_eq!(changed(|d| d.threads = 2), Err(Undivided::Threads));
        assert_eq!(changed(|d| d.least = Duration::from_millis(7)), Ok(ms(7)));
        assert_eq!((driving.at_once(64, false), driving.at_once(64, true)), (256, 64));
    }

    #[test]
    fn one_connection_is_pinned_where_both_ends_are_ours() {
        assert_eq!(driving().alone(), Placement::CrossCore);
        assert_eq!(Driving { allowed: vec![3], ..driving() }.alone(), Placement::Free);
        assert_eq!(Driving { places_server: false, ..driving() }.alone(), Placement::Free);
        assert_eq!(Driving { most: 0, ..driving() }.alone(), Placement::Free);
        let pinned = Point { placement: Placement::CrossCore, ..point(1) };
        let cpus = driving().cpus(&pinned).unwrap();
        assert_eq!((cpus.client.len(), cpus.server.len()), (1, 1));
    }
}
