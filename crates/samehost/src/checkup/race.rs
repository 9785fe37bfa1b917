//! Who gets the checkup's time. In a first lap each part is measured until its rows are decided, or for its share; what is
//! left goes to the rows that are still open, to those first that need the least. It decides; measuring is the verb's.

use std::time::Duration;

use samehost_model::{Comparison, Report};

use super::parts::Part;
use crate::needed::least_s;

/// Less does not hold the blocks that a decision among this many rows needs.
const LEAST: Duration = Duration::from_millis(2500);
/// How often a part is gone on with: one that was often does not do what its estimates promise.
const MOST_TURNS: u32 = 6;
/// What the servers of a part take to start that start slowly, each time that it is begun.
const SLOW_START: Duration = Duration::from_secs(4);
/// Longest time for one part without looking at the others again.
const LONGEST: Duration = Duration::from_secs(12);

/// A part and what it gave so far.
pub struct Leg {
    /// What is measured.
    pub part: Part,
    /// What it gave.
    pub report: Option<Report>,
    /// How often it was begun.
    pub begun: u32,
}

impl Leg {
    /// A part that was not measured yet.
    pub fn new(part: Part) -> Self {
        Leg { part, report: None, begun: 0 }
    }

    /// Its rows that were measured, each with its place among the report's comparisons.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Comparison)> {
        self.report.iter().flat_map(|report| {
            let is_row = |found: &Comparison| {
                report.head.plan.asked.iter().any(|asked| asked.is_about(&found.metric, &found.point))
            };
            report.analysis.comparisons.iter().enumerate().filter(move |(_, found)| is_row(found))
        })
    }

    /// How many of its rows are open.
    pub fn open(&self) -> u32 {
        let decided = self.rows().filter(|(_, row)| row.verdict.is_decided()).count();
        self.asked().saturating_sub(decided) as u32
    }

    /// How many of its lines ask for a verdict.
    pub fn asked(&self) -> usize {
        self.part.lines.iter().filter(|line| line.is_asked()).count()
    }

    /// Seconds that would decide the row that needs least; none where nothing reasonable would, or nothing is open.
    fn needs_s(&self) -> Option<f64> {
        least_s(self.report.as_ref()?, self.rows().map(|(_, row)| row))
    }

    /// What goes by before anything is measured.
    fn start(&self) -> Duration {
        if self.part.starts_slowly { SLOW_START } else { Duration::ZERO }
    }

    /// Its weight among the shares of the first lap: a part with two points takes longer.
    fn weight(&self) -> f64 {
        match self.asked() {
            0 => 0.4,
            1 => 1.0,
            _ => 1.5,
        }
    }
}

/// Runs the race: `left` tells the time there is, `measure` spends about so much on a part, and `told` is told after each.
/// Returns the installed servers for which no time was left.
pub fn race<E>(
    legs: &mut [Leg],
    left: &dyn Fn() -> Duration,
    measure: &mut dyn FnMut(&mut Leg, u32, Duration) -> Result<(), E>,
    told: &mut dyn FnMut(&mut [Leg]) -> Result<(), E>,
) -> Result<Vec<&'static str>, E> {
    let mut without_time = Vec::new();
    for place in 0..legs.len() {
        let weights: f64 = legs[place..].iter().map(Leg::weight).sum();
        let starts: Duration = legs[place + 1..].iter().map(Leg::start).sum();
        let left = left().saturating_sub(legs[place].start());
        let fair = left.saturating_sub(starts).mul_f64(legs[place].weight() / weights);
        if legs[place].part.installed && left < LEAST.mul_f64(legs[place].weight()) {
            without_time.push(legs[place].part.workload);
            continue;
        }
        one(legs, place, fair.max(LEAST), measure, told)?;
    }
    while let Some((place, time)) = next(legs, left()) {
        one(legs, place, time, measure, told)?;
    }
    Ok(without_time)
}

/// The open part that needs the least, its start included, and the time that it gets of what is left.
fn next(legs: &[Leg], left: Duration) -> Option<(usize, Duration)> {
    let open = legs.iter().enumerate().filter(|(_, leg)| leg.begun < MOST_TURNS);
    let possible = open.filter_map(|(place, leg)| {
        let time = Duration::from_secs_f64(leg.needs_s()?).clamp(LEAST / 2, LONGEST);
        let for_it = left.checked_sub(leg.start()).filter(|there_is| *there_is >= LEAST / 2)?;
        Some((place, time.min(for_it), time + leg.start()))
    });
    possible.min_by_key(|(.., takes)| *takes).map(|(place, time, _)| (place, time))
}

fn one<E>(
    legs: &mut [Leg],
    place: usize,
    time: Duration,
    measure: &mut dyn FnMut(&mut Leg, u32, Duration) -> Result<(), E>,
    told: &mut dyn FnMut(&mut [Leg]) -> Result<(), E>,
) -> Result<(), E> {
    let others = legs.iter().enumerate().filter(|(other, _)| *other != place);
    let others: u32 = others.map(|(_, leg)| leg.open()).sum();
    legs[place].begun += 1;
    measure(&mut legs[place], others, time)?;
    told(legs)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;
    use crate::checkup::parts::built_in_and;

    /// A first lap in which each part takes this share of the time that it is given: what was measured, and what was not.
    fn lap(seconds: u64, uses: f64) -> (Vec<(&'static str, f64)>, Vec<&'static str>) {
        let mut legs: Vec<Leg> =
            built_in_and(&["mysql", "postgres", "redis", "memcached"]).into_iter().map(Leg::new).collect();
        let clock = Cell::new(Duration::ZERO);
        let left = || Duration::from_secs(seconds).saturating_sub(clock.get());
        let mut measured = Vec::new();
        let mut measure = |leg: &mut Leg, _: u32, time: Duration| -> Result<(), Infallible> {
            measured.push((leg.part.workload, time.as_secs_f64()));
            clock.set(clock.get() + leg.start() + time.mul_f64(uses));
            Ok(())
        };
        let Ok(without) = race(&mut legs, &left, &mut measure, &mut |_| Ok(()));
        (measured, without)
    }

    #[test]
    fn what_is_decided_early_leaves_its_time_to_the_others() {
        let (all, without) = lap(40, 1.0);
        assert_eq!((all.len(), without.len()), (9, 0), "{all:?}");
        let (early, _) = lap(40, 0.3);
        assert!(early[8].1 > 2.0 * all[8].1, "{early:?} {all:?}");
        assert!(all.iter().all(|(_, time)| *time >= LEAST.as_secs_f64()));
    }

    #[test]
    fn what_starts_in_a_moment_comes_first_and_slow_starts_are_counted() {
        let (measured, without) = lap(40, 1.0);
        let order: Vec<_> = measured[5..].iter().map(|(workload, _)| *workload).collect();
        assert_eq!((order, without), (vec!["redis", "memcached", "mysql", "postgres"], vec![]));
        let all: f64 = measured.iter().map(|(_, time)| time).sum();
        let starts = 2.0 * SLOW_START.as_secs_f64();
        assert!(all + starts <= 40.0 && all + starts > 39.0, "{all} s of measuring");
    }

    #[test]
    fn servers_without_time_are_named() {
        let (measured, without) = lap(12, 1.0);
        assert_eq!((measured.len(), without), (5, vec!["redis", "memcached", "mysql", "postgres"]));
    }
}
