//! Distributes the checkup's time. In the first lap each part is measured until its rows are decided, or for its
//! share. The remaining time goes to open rows, those that need the least first. Only schedules; does not measure.
//!
//! On a quiet machine the last open row is not worth as much time as all others together: where four fifths of the rows
//! are decided, there is less time. The tests are valid whenever they stop, so this changes no error rate.

use std::time::Duration;

use samehost_model::{Comparison, Report};

use super::parts::Part;

/// Minimum time of a part in the first lap: less is not enough for the blocks that a decision among this many rows
/// requires. Later turns get at least half of it.
const LEAST: Duration = Duration::from_millis(1700);
/// Maximum turns of a part. A part that needs more does not converge as estimated.
const MOST_TURNS: u32 = 6;
/// Start-up time of slow servers, for each turn: 1.3 s for five MariaDBs and 0.8 s for five PostgreSQLs on a quiet machine.
/// Beside other programs it is three times as long; there, what the first turn took longer than it should counts for the next.
/// With 4 s for everybody, a quiet checkup left 3 s of its first turns unused, and gave second turns to a proxy's time, whose
/// difference is near the margin, for 7 s, before a database's, which 1 s would have decided.
const SLOW_START: Duration = Duration::from_millis(1500);
/// Longest start-up time that is counted.
const SLOWEST_START: Duration = Duration::from_secs(6);
/// Maximum time of a turn before the other parts are considered again.
const LONGEST: Duration = Duration::from_secs(12);
/// Part of the rows whose decision is enough to end the checkup, as soon as each server has had its
/// share. The test is valid whenever one stops, so the rest is a matter of time alone. With seven kinds
/// of servers installed it takes 25 to 30 s on two quiet CPUs; what is left of the time goes to open rows
/// first where they need the least, since an estimate near the margin may need any number of blocks
/// (docs/method.md §3a).
const ENOUGH: f64 = 0.8;

/// The time that is left in all, and where enough rows are decided.
pub struct Left<'a> {
    pub in_all: &'a dyn Fn() -> Duration,
    pub with_enough: &'a dyn Fn() -> Duration,
}

impl Left<'_> {
    fn of(&self, legs: &[Leg]) -> Duration {
        let asked: usize = legs.iter().map(Leg::asked).sum();
        let open: u32 = legs.iter().map(Leg::open).sum();
        let is_enough = f64::from(open) <= (1.0 - ENOUGH) * asked as f64;
        if is_enough { (self.with_enough)() } else { (self.in_all)() }
    }
}

pub struct Leg {
    pub part: Part,
    pub report: Option<Report>,
    pub begun: u32,
    /// What the start of its servers took in its last turn, about.
    start: Duration,
    /// What its last turn was given without that.
    given: Duration,
}

impl Leg {
    pub fn new(part: Part) -> Self {
        let start = if part.starts_slowly { SLOW_START } else { Duration::ZERO };
        Leg { part, report: None, begun: 0, start, given: Duration::ZERO }
    }

    /// Rows measured so far, with their index among the report's comparisons.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Comparison)> {
        let mut rows = Vec::new();
        if let Some(report) = &self.report {
            for (index, found) in report.analysis.comparisons.iter().enumerate() {
                if report.head.plan.asked.iter().any(|row| row.is_about(&found.metric, &found.point)) {
                    rows.push((index, found));
                }
            }
        }
        rows.into_iter()
    }

    /// Number of rows that need a verdict and have none.
    pub fn open(&self) -> u32 {
        let decided = self.rows().filter(|(_, row)| row.verdict.is_decided()).count();
        self.asked().saturating_sub(decided) as u32
    }

    pub fn asked(&self) -> usize {
        self.part.lines.len()
    }

    /// Seconds that would decide the row that needs the least; `None` if no row is open or none can be
    /// decided in reasonable time.
    ///
    /// Five starts of a server say little of how starts differ, and so the interval is wide whatever the blocks say. A second turn
    /// doubles them: it is worth the time of the first.
    fn needs_s(&self) -> Option<f64> {
        let needs = least_s(self.rows().map(|(_, row)| row));
        let is_of_few_starts = self.part.starts_slowly && self.begun == 1 && self.open() > 0;
        if !is_of_few_starts {
            return needs;
        }
        let again = self.given.as_secs_f64();
        Some(needs.map_or(again, |needs| needs.min(again)))
    }

    /// Notes what a turn took that was to take `time` without the start; one that decided all rows may have ended early.
    fn took(&mut self, turn: Duration, time: Duration) {
        self.given = time;
        if self.part.starts_slowly && self.open() > 0 {
            self.start = turn.saturating_sub(time).clamp(SLOW_START, SLOWEST_START);
        }
    }

    /// Weight among the shares of the first lap; a part with two points takes longer.
    fn weight(&self) -> f64 {
        match self.asked() {
            0 => 0.4,
            1 => 1.0,
            _ => 1.5,
        }
    }
}

/// Runs the race. `left` has the remaining time, `measure` measures a part for about the given time, and
/// `after_each` is called after each measurement. Returns the installed servers for which no time was left.
pub fn race<E>(
    legs: &mut [Leg],
    left: &Left<'_>,
    measure: &mut dyn FnMut(&mut Leg, u32, Duration) -> Result<(), E>,
    after_each: &mut dyn FnMut(&mut [Leg]) -> Result<(), E>,
) -> Result<Vec<&'static str>, E> {
    let mut without_time = Vec::new();
    for place in 0..legs.len() {
        let weights: f64 = legs[place..].iter().map(Leg::weight).sum();
        let starts: Duration = legs[place + 1..].iter().map(|leg| leg.start).sum();
        // Shares of the shorter time, so that a quiet machine is done soon; a second turn has the rest.
        let short = (left.with_enough)().saturating_sub(legs[place].start);
        let fair = short.saturating_sub(starts).mul_f64(legs[place].weight() / weights);
        let rest = (left.in_all)().saturating_sub(legs[place].start);
        if legs[place].part.installed && rest < LEAST.mul_f64(legs[place].weight()) {
            without_time.push(legs[place].part.workload);
            continue;
        }
        one(legs, place, fair.max(LEAST), left, measure, after_each)?;
    }
    while let Some((place, time)) = next(legs, left.of(legs)) {
        one(legs, place, time, left, measure, after_each)?;
    }
    Ok(without_time)
}

/// The open part that needs the least time including its start, and the time that it gets. What a part needs counts once for each
/// turn that it had: one that was to be decided and was not has an estimate near the margin. Without this a proxy's time had six turns
/// and 69 blocks beside a site, and MariaDB nine blocks.
fn next(legs: &[Leg], left: Duration) -> Option<(usize, Duration)> {
    let mut next = None;
    let mut least = Duration::MAX;
    for (place, leg) in legs.iter().enumerate() {
        let Some(needs_s) = leg.needs_s() else { continue };
        let for_it = left.saturating_sub(leg.start);
        if leg.begun >= MOST_TURNS || for_it < LEAST / 2 {
            continue;
        }
        let time = Duration::from_secs_f64(needs_s).clamp(LEAST / 2, LONGEST / leg.begun) * leg.begun;
        if time + leg.start < least {
            least = time + leg.start;
            next = Some((place, time.min(for_it)));
        }
    }
    next
}

fn one<E>(
    legs: &mut [Leg],
    place: usize,
    time: Duration,
    left: &Left<'_>,
    measure: &mut dyn FnMut(&mut Leg, u32, Duration) -> Result<(), E>,
    after_each: &mut dyn FnMut(&mut [Leg]) -> Result<(), E>,
) -> Result<(), E> {
    let others = legs.iter().enumerate().filter(|(other, _)| *other != place);
    let others: u32 = others.map(|(_, leg)| leg.open()).sum();
    legs[place].begun += 1;
    let before = (left.in_all)();
    measure(&mut legs[place], others, time)?;
    let turn = before.saturating_sub((left.in_all)());
    legs[place].took(turn, time);
    after_each(legs)
}

/// Factor for connecting, warm-up, and starts of servers, on top of the counted time.
pub const AROUND: f64 = 1.5;
/// Safety factor for the needed time, which is computed as if the current estimate were the true value.
const UNSURE: f64 = 1.5;

/// Seconds that would decide the comparison that needs the least; `None` if none is open, or none can be
/// decided in reasonable time.
pub fn least_s<'a>(rows: impl Iterator<Item = &'a Comparison>) -> Option<f64> {
    let seconds = rows.filter_map(Comparison::seconds_to_decide);
    seconds.map(|seconds| UNSURE * AROUND * seconds).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use samehost_model::{Needed, Question, Reason, Why};

    use super::*;
    use crate::checkup::parts::built_in_and;

    /// Runs a first lap in which each part uses this fraction of its time. Returns what was measured, and
    /// what was not.
    fn lap(seconds: u64, uses: f64) -> (Vec<(&'static str, f64)>, Vec<&'static str>) {
        let mut legs: Vec<Leg> =
            built_in_and(&["mysql", "postgres", "redis", "memcached"]).into_iter().map(Leg::new).collect();
        let clock = Cell::new(Duration::ZERO);
        let in_all = || Duration::from_secs(seconds).saturating_sub(clock.get());
        let left = Left { in_all: &in_all, with_enough: &in_all };
        let mut measured = Vec::new();
        let mut measure = |leg: &mut Leg, _: u32, time: Duration| -> Result<(), Infallible> {
            measured.push((leg.part.workload, time.as_secs_f64()));
            clock.set(clock.get() + leg.start + time.mul_f64(uses));
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
    fn a_start_that_was_slower_counts_for_the_next_turn() {
        let mut legs: Vec<Leg> = built_in_and(&["mysql"]).into_iter().map(Leg::new).collect();
        let mysql = legs.last_mut().unwrap();
        assert_eq!(mysql.start, SLOW_START);
        mysql.took(Duration::from_secs(6), Duration::from_secs(2));
        assert_eq!(mysql.start, Duration::from_secs(4));
        mysql.took(Duration::from_secs(60), Duration::from_secs(2));
        assert_eq!(mysql.start, SLOWEST_START);
        legs[0].took(Duration::from_secs(6), Duration::from_secs(2));
        assert_eq!(legs[0].start, Duration::ZERO, "a server of our own starts at once");
    }

    /// A report of a row that is open, and needs this many seconds as it seems.
    fn open(leg: &Leg, seconds: Option<f64>) -> Report {
        let row = &leg.part.lines[0];
        let more = seconds.map(|seconds| Needed { blocks: 20, seconds: Some(seconds) });
        let reason = Reason { why: Why::MaybeSmaller { limit: 0.02 }, message: String::new(), more };
        let mut report = Report::default();
        report.head.plan.asked = vec![Question { metric: row.metric.to_owned(), connections: None }];
        report.analysis.comparisons =
            vec![Comparison { metric: row.metric.to_owned(), reason: Some(reason), ..Comparison::default() }];
        report
    }

    #[test]
    fn a_row_near_the_margin_gives_way_to_a_databases_second_turn() {
        let mut legs: Vec<Leg> = built_in_and(&["redis", "mysql"]).into_iter().map(Leg::new).collect();
        let clock = Cell::new(Duration::ZERO);
        let in_all = || Duration::from_secs(60).saturating_sub(clock.get());
        let with_enough = || Duration::from_secs(25).saturating_sub(clock.get());
        let left = Left { in_all: &in_all, with_enough: &with_enough };
        let mut turns = Vec::new();
        let mut measure = |leg: &mut Leg, _: u32, time: Duration| -> Result<(), Infallible> {
            turns.push(leg.part.workload);
            clock.set(clock.get() + leg.start + time);
            // Redis seems to need a second more, however long it is measured; of MariaDB nothing is foreseen.
            let needs = (leg.part.workload == "redis").then_some(1.0);
            leg.report = leg.part.installed.then(|| open(leg, needs));
            Ok(())
        };
        let Ok(_) = race(&mut legs, &left, &mut measure, &mut |_| Ok(()));
        let second = turns.iter().enumerate().filter(|(_, name)| **name == "mysql").nth(1);
        let (second, _) = second.expect("MariaDB has a second turn");
        let before = turns[..second].iter().filter(|name| **name == "redis").count();
        assert!(before <= 3, "{turns:?}");
        assert!(turns.iter().filter(|name| **name == "redis").count() > 3, "it comes back to it: {turns:?}");
    }

    #[test]
    fn servers_without_time_are_named() {
        let (measured, without) = lap(10, 1.0);
        assert_eq!((measured.len(), without), (5, vec!["redis", "memcached", "mysql", "postgres"]));
    }
}
