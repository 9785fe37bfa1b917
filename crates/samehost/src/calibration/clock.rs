//! The time that the measurements of a scan share. Nobody waits a minute for a prediction: however many pairs there
//! are, all runs together end in time, and each gets a part of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Least time of all runs of a scan together: with it `--observe 8s` ends within 30 s.
const LEAST_OF_ALL: Duration = Duration::from_secs(16);
/// Least time of a run: eight blocks of three trials of [`SHORT_TRIAL`], with what is around them.
pub const LEAST: Duration = Duration::from_millis(1500);
/// Length of a trial where a run has less than its full time.
pub const SHORT_TRIAL: Duration = Duration::from_millis(50);
/// Time around a run: starting and stopping its servers, and the analysis.
const AROUND: Duration = Duration::from_millis(250);
/// Part of its full time from which on a run is not called hurried.
const NEARLY_ALL: f64 = 0.75;
/// Interval at which the watch looks at the clock.
const NAP: Duration = Duration::from_millis(20);

/// Time for all runs of a scan that observed for so long: who observes longer gives the measurement more time as well.
pub fn time_for(observed: Duration) -> Duration {
    LEAST_OF_ALL.max(observed / 2)
}

/// Hands out the time of a scan's runs, in their order.
pub struct Clock {
    end: Option<Instant>,
    /// Full times of the runs to come.
    to_come: VecDeque<Duration>,
}

/// Time for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub time: Duration,
    /// Whether it is much less than the run's full time.
    pub is_short: bool,
}

impl Clock {
    /// Every run has its full time.
    #[cfg(any(feature = "tui", test))]
    pub fn unlimited() -> Self {
        Clock { end: None, to_come: VecDeque::new() }
    }

    /// All runs together have this time from now on.
    pub fn new(time: Duration) -> Self {
        Clock { end: Some(Instant::now() + time), to_come: VecDeque::new() }
    }

    /// When all runs end; `None` where each has its full time.
    pub fn end(&self) -> Option<Instant> {
        self.end
    }

    /// Announces a run with its full time.
    pub fn announce(&mut self, full: Duration) {
        self.to_come.push_back(full);
    }

    /// Announces runs before all others.
    pub fn put_first(&mut self, full: &[Duration]) {
        full.iter().rev().for_each(|time| self.to_come.push_front(*time));
    }

    /// Time for the next run that was announced.
    pub fn next(&mut self, full: Duration) -> Share {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let planned: Vec<Duration> = self.to_come.iter().copied().collect();
        self.skip();
        match left {
            Some(left) => share(left, full, &planned),
            None => Share { time: full, is_short: false },
        }
    }

    /// Leaves the next run out.
    pub fn skip(&mut self) {
        self.to_come.pop_front();
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Whether so much time is left.
    pub fn has(&self, time: Duration) -> bool {
        self.end.is_none_or(|end| end.saturating_duration_since(Instant::now()) >= time)
    }
}

/// Part of the time that is left for a run, which is the first of those planned. Where there is not enough for all of
/// them, each gets the least and a part of the rest by how much more it would take.
fn share(left: Duration, full: Duration, planned: &[Duration]) -> Share {
    let runs = planned.len().max(1) as u32;
    let wanted = planned.iter().sum::<Duration>().max(full);
    let left = left.saturating_sub(AROUND * runs);
    if wanted <= left {
        return Share { time: full, is_short: false };
    }
    let part = more(left, LEAST * runs) / more(wanted, LEAST * runs).max(f64::MIN_POSITIVE);
    let time = LEAST + full.saturating_sub(LEAST).mul_f64(part.min(1.0));
    Share { time, is_short: time < full.mul_f64(NEARLY_ALL) }
}

fn more(time: Duration, less: Duration) -> f64 {
    time.saturating_sub(less).as_secs_f64()
}

/// Runs `work` with a flag that is set when the user interrupts, or when the clock's time is over although every run kept
/// to its share: on a busy machine a run may take twice as long.
pub fn in_time<T>(
    clock: Clock,
    interrupted: &AtomicBool,
    work: impl FnOnce(Clock, &Arc<AtomicBool>) -> T,
) -> T {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let watched = Clock { end: clock.end, to_come: VecDeque::new() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if interrupted.load(Ordering::Relaxed) || watched.is_over() {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                std::thread::sleep(NAP);
            }
        });
        let result = work(clock, &stop);
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Shares of all runs, each taken after the one before has used its own.
    fn shares(mut left: Duration, runs: &[f64]) -> Vec<Share> {
        let runs: Vec<Duration> = runs.iter().copied().map(seconds).collect();
        let mut all = Vec::new();
        for at in 0..runs.len() {
            let one = share(left, runs[at], &runs[at..]);
            left = left.saturating_sub(one.time + AROUND);
            all.push(one);
        }
        all
    }

    #[test]
    fn few_runs_have_their_full_time_and_many_share_it() {
        let few = shares(LEAST_OF_ALL, &[6.0, 6.0]);
        assert!(few.iter().all(|one| one.time == seconds(6.0) && !one.is_short), "{few:?}");
        // Three busy pairs and short connections: 48 s of runs.
        let many = shares(LEAST_OF_ALL, &[6.0, 6.0, 6.0, 4.0, 6.0, 4.0, 6.0, 4.0, 6.0]);
        let total: Duration = many.iter().map(|one| one.time + AROUND).sum();
        assert!(total <= LEAST_OF_ALL + LEAST, "{total:?}");
        assert!(many.iter().all(|one| one.time >= LEAST && one.is_short), "{many:?}");
        // The longer an observation, the more time; all of it from 2 minutes on.
        let patient = shares(time_for(seconds(120.0)), &[6.0, 6.0, 6.0, 4.0, 6.0, 4.0, 6.0, 4.0, 6.0]);
        assert!(patient.iter().all(|one| !one.is_short), "{patient:?}");
    }

    #[test]
    fn the_clock_stops_what_takes_too_long_and_so_does_the_user() {
        let stopped = |clock: Clock, interrupted: bool| {
            in_time(clock, &AtomicBool::new(interrupted), |_, stop| {
                let begun = Instant::now();
                while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(NAP);
                }
                stop.load(Ordering::Relaxed)
            })
        };
        assert!(stopped(Clock::new(Duration::ZERO), false));
        assert!(stopped(Clock::unlimited(), true));
    }
}
