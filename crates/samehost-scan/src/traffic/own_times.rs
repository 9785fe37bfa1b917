//! How long the exchanges of chosen processes take over one transport, in blocks of time: the looks that a switch compares.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use samehost_bpf::{Counted, PairCounts, Wanted};
use samehost_model::Endpoint;
use samehost_model::scan::{ExchangeMode, Scan, Socket, Unmeasured};
use samehost_model::switch::{NoOwnTimes, NoTraffic, OwnTimes};

use crate::advice::services_at;
use crate::traffic::exchanges::{are_too_many_lost, is_stream, missing, mode_of, no_time, parts};

/// Length of a block of a look at the exchanges of connections that a switch moves.
/// Ten of them are compared by exact ranks, in logarithms, as two reports are. A block of a client that
/// sends 100 times a second has 30 exchanges. Successive blocks resemble each other, so the interval is
/// widened by √((1 + ρ) ÷ (1 − ρ)), and at least six blocks of each look need an exchange
/// (docs/method.md §14).
const BLOCK: Duration = Duration::from_millis(300);
/// Blocks after which a look ends where nothing was exchanged at all.
const BLOCKS_OF_SILENCE: usize = 3;
const MOST_OF_A_PAIR: usize = 128;
/// What is beyond has [`NoTraffic::BeyondTheMost`].
const MOST_PAIRS: usize = 32;
/// Fewer times have no 99th percentile that is compared: ten lie beyond it. One that is only shown needs a hundred.
const FEWEST_FOR_P99: u64 = 1000;

#[derive(Clone, Debug)]
pub struct OwnPair {
    pub pids: Vec<u32>,
    pub to: Endpoint,
}

/// What may be stamped to tell when a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// Nothing but the entry of the functions that send.
    Functions,
    /// System calls as well, each of which on the machine costs a little then.
    SystemCalls,
}

pub struct OwnLook<'a> {
    /// The time now: RFC 3339, UTC.
    pub at: String,
    pub stamps: Stamps,
    /// How long, in whole blocks of 300 ms; one at least.
    pub period: Duration,
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// Looks at the exchanges of these pairs, all at once, of each its times, or why there are none. Connections that
/// are open in the scan are looked at, 128 of a pair. Ends early when it is interrupted, and after 0.9 s where nothing is exchanged;
/// takes no time where no pair has a connection.
#[must_use]
pub fn look_at_own_times(
    scan: &Scan,
    pairs: &[OwnPair],
    how: &OwnLook<'_>,
) -> Vec<Result<OwnTimes, NoOwnTimes>> {
    let wanted = wanted(scan, pairs);
    let has_connections: BTreeSet<u32> = wanted.iter().map(|one| one.pair).collect();
    let looked = if wanted.is_empty() { None } else { Some(look(&wanted, pairs.len(), how)) };
    let mut all = Vec::new();
    for (number, pair) in pairs.iter().enumerate() {
        if number >= MOST_PAIRS {
            all.push(Err(NoOwnTimes::Traffic(NoTraffic::BeyondTheMost)));
            continue;
        }
        all.push(match &looked {
            Some(Ok(looked)) if has_connections.contains(&(number as u32)) => looked.times(number),
            Some(Err(why)) if has_connections.contains(&(number as u32)) => Err(*why),
            _ => Err(NoOwnTimes::Traffic(pair.without(scan))),
        });
    }
    all
}

struct Looked {
    at: String,
    mode: ExchangeMode,
    seconds: f64,
    /// What the kernel had counted as the look began, and at the end of each block.
    ends: Vec<Counted>,
}

fn wanted(scan: &Scan, pairs: &[OwnPair]) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (number, pair) in pairs.iter().take(MOST_PAIRS).enumerate() {
        let mut taken = 0;
        for (client, server) in connections(scan, &pair.to) {
            if taken < MOST_OF_A_PAIR && pair.is_its(client) {
                wanted.push(Wanted { client: client.cookie, server: server.cookie, pair: number as u32 });
                taken += 1;
            }
        }
    }
    wanted
}

fn connections<'a>(scan: &'a Scan, to: &Endpoint) -> Vec<(&'a Socket, &'a Socket)> {
    let services = services_at(scan, to);
    let is_unix = matches!(to, Endpoint::Unix(_));
    let mut found = Vec::new();
    for connection in &scan.connections {
        let (Some(service), Some((client, server))) = (connection.service, scan.ends(connection)) else {
            continue;
        };
        if services.contains(&service) && connection.kind.is_unix() == is_unix && is_stream(client, server) {
            found.push((client, server));
        }
    }
    found
}

impl OwnPair {
    fn is_its(&self, client: &Socket) -> bool {
        client.pids.iter().any(|pid| self.pids.contains(pid))
    }

    fn without(&self, scan: &Scan) -> NoTraffic {
        if connections(scan, &self.to).is_empty() { NoTraffic::NoConnection } else { NoTraffic::OthersOnly }
    }
}

fn look(wanted: &[Wanted], pairs: usize, how: &OwnLook<'_>) -> Result<Looked, NoOwnTimes> {
    let room = pairs.min(MOST_PAIRS) as u32;
    let is_exact = how.stamps == Stamps::SystemCalls;
    let mut kernel = samehost_bpf::Exchanges::open(wanted.len() as u32, room, is_exact)
        .map_err(|why| NoOwnTimes::Unmeasured(missing(why).0))?;
    let mode = mode_of(&kernel);
    if mode == ExchangeMode::Arrivals {
        // The way there would be missing, which is what a switch changes most.
        return Err(NoOwnTimes::Traffic(NoTraffic::NoBeginning));
    }
    kernel.name(wanted).map_err(|_| NoOwnTimes::Unmeasured(Unmeasured::Refused))?;
    let begun = Instant::now();
    let mut ends = vec![kernel.so_far()];
    let blocks = (how.period.as_millis() / BLOCK.as_millis()).max(1) as usize;
    while ends.len() <= blocks && !(how.is_interrupted)() {
        std::thread::sleep(BLOCK);
        ends.push(kernel.so_far());
        if ends.len() > BLOCKS_OF_SILENCE && is_silent(&ends[ends.len() - 1]) {
            break;
        }
    }
    Ok(Looked { at: how.at.clone(), mode, seconds: begun.elapsed().as_secs_f64(), ends })
}

fn is_silent(counted: &Counted) -> bool {
    counted.pairs.iter().all(|pair| pair.all_exchanges() == 0)
}

impl Looked {
    fn times(&self, number: usize) -> Result<OwnTimes, NoOwnTimes> {
        let nothing = NoOwnTimes::Traffic(NoTraffic::NoExchange);
        let all = self.ends.last().ok_or(nothing)?;
        let counts = all.pairs.get(number).ok_or(nothing)?;
        let exchanges = counts.all_exchanges();
        if exchanges == 0 {
            return Err(nothing);
        }
        if let Some(why) = no_time(counts, self.seconds, are_too_many_lost(all)) {
            return Err(NoOwnTimes::NoTime(why));
        }
        let mean_us = counts.first.mean_us().ok_or(nothing)?;
        let p50_us = counts.first.quantile_us(0.5).ok_or(nothing)?;
        Ok(OwnTimes {
            at: self.at.clone(),
            seconds: self.seconds,
            mode: self.mode,
            connections: counts.connections,
            exchanges_per_s: exchanges as f64 / self.seconds,
            bytes_out: counts.bytes_out as f64 / exchanges as f64,
            bytes_back: counts.bytes_back as f64 / exchanges as f64,
            mean_us,
            p50_us,
            p99_us: p99_us(counts),
            hop_us: parts(counts).map(|parts| parts.hop_us()),
            blocks_us: self.blocks_us(number),
        })
    }

    /// In microseconds, of each block that had an exchange.
    fn blocks_us(&self, number: usize) -> Vec<f64> {
        let mut means = Vec::new();
        for two in self.ends.windows(2) {
            let block = two[1].since(&two[0]);
            let Some(counts) = block.pairs.get(number) else { continue };
            means.extend(counts.first.mean_us());
        }
        means
    }
}

/// The 99th percentile in microseconds of what is compared, where there are enough times.
#[must_use]
pub fn p99_us(counts: &PairCounts) -> Option<f64> {
    counts.first.quantile_us(0.99).filter(|_| counts.first.count >= FEWEST_FOR_P99)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_most_says_so() {
        let pair = OwnPair { pids: vec![1], to: "unix:/run/nobody.sock".parse().unwrap() };
        let how =
            OwnLook { at: String::new(), stamps: Stamps::Functions, period: BLOCK, is_interrupted: &|| true };
        let found = look_at_own_times(&Scan::default(), &vec![pair; MOST_PAIRS + 1], &how);
        assert_eq!(found[MOST_PAIRS - 1], Err(NoOwnTimes::Traffic(NoTraffic::NoConnection)));
        assert_eq!(found[MOST_PAIRS], Err(NoOwnTimes::Traffic(NoTraffic::BeyondTheMost)));
    }
}
