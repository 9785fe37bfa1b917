//! Measures the capacity of each transport at each level in a closed loop, before rates are fixed. Percentages refer
//! to the baseline's capacity, and a rate out of reach is refused before minutes are spent on it.

use std::fmt::Write as _;

use samehost_model::{Arm, RateSpec, Transport};

use crate::error::BenchError;
use crate::matrix::{Capacity, Matrix, distinct};
use crate::measure::Observer;
use crate::runner::TrialRunner;

/// Highest rate that one program could offer over any local transport, in requests per second.
const HIGHEST_RATE: f64 = 5e6;
/// Highest rate as a multiple of the capacity; beyond it a trial measures only a queue.
const MOST_OF_CAPACITY: f64 = 2.0;
/// Trials per arm; their median is the capacity.
const TRIALS: usize = 3;

impl TrialRunner<'_> {
    /// Measures every transport at every level. At each level the transports alternate, so that a change of
    /// the machine affects them all.
    pub(crate) fn measure_capacities(
        &mut self,
        matrix: &Matrix,
        observer: &mut (impl Observer + ?Sized),
    ) -> Result<Vec<Capacity>, BenchError> {
        let asked: Vec<f64> = matrix.rates.iter().filter_map(absolute).collect();
        if let Some(rate) = asked.iter().find(|rate| **rate > HIGHEST_RATE) {
            return Err(BenchError::Usage(format!(
                "--rate {rate:.0}: no program reaches that over a local connection; the most that makes sense is {HIGHEST_RATE:.0} requests/s"
            )));
        }
        let closed =
            Matrix { transports: distinct(matrix.transports.clone()), rates: Vec::new(), ..matrix.clone() };
        let arms = closed.arms(&*self.configured)?;
        let mut capacities = Vec::with_capacity(arms.len());
        let levels = arms.len() / closed.transports.len().max(1);
        for (number, level) in arms.chunks(closed.transports.len().max(1)).enumerate() {
            observer.step(&step(number, levels));
            let mut found = vec![Vec::with_capacity(TRIALS); level.len()];
            for _ in 0..TRIALS {
                for (arm, found) in level.iter().zip(&mut found) {
                    found.push(self.once(arm)?);
                }
            }
            for (arm, found) in level.iter().zip(found) {
                let per_s = samehost_stats::median(&found).unwrap_or(0.0);
                refuse_out_of_reach(&asked, arm, per_s)?;
                capacities.push(Capacity { level: arm.point.clone(), transport: arm.transport, per_s });
            }
        }
        Ok(capacities)
    }

    /// Throughput of one trial. Without throughput no rate can be derived, so that is an error.
    fn once(&mut self, arm: &Arm) -> Result<f64, BenchError> {
        let trial = self.trial(arm, None)?;
        match trial.throughput_per_s {
            Some(per_s) if per_s > 0.0 => Ok(per_s),
            _ => {
                let mut errors = String::new();
                for (kind, count) in &trial.errors {
                    let _ = write!(errors, "; {kind}: {count}");
                }
                Err(BenchError::Usage(format!(
                    "no request of {} succeeded while its capacity was measured{errors}; try the same without --rate to see why",
                    arm.id
                )))
            }
        }
    }
}

fn absolute(rate: &RateSpec) -> Option<f64> {
    match rate {
        RateSpec::PerSecond(rate) => Some(*rate),
        RateSpec::OfCapacity(_) => None,
    }
}

fn step(number: usize, levels: usize) -> String {
    match levels {
        1 => "measuring the capacity".to_owned(),
        _ => format!("measuring the capacity, {} of {levels}", number + 1),
    }
}

fn refuse_out_of_reach(asked: &[f64], arm: &Arm, capacity: f64) -> Result<(), BenchError> {
    let Some(rate) = asked.iter().find(|rate| **rate > MOST_OF_CAPACITY * capacity) else { return Ok(()) };
    let (connections, transport): (u32, Transport) = (arm.point.connections, arm.transport);
    let plural = if connections == 1 { "" } else { "s" };
    let at = match arm.id.split_once('/') {
        Some((_, level)) => format!(" ({level})"),
        None => String::new(),
    };
    Err(BenchError::Usage(format!(
        "--rate {rate:.0} is out of reach: with {connections} connection{plural} over {transport}{at} this server does {capacity:.0} requests/s here; try --rate 80%"
    )))
}

#[cfg(test)]
mod tests {
    use samehost_model::Point;

    use super::*;

    #[test]
    fn a_rate_beyond_twice_the_capacity_is_refused_with_its_level() {
        let arm = Arm {
            id: "tcp/c8/128B".into(),
            name: "tcp".into(),
            transport: Transport::Tcp,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: Point { connections: 8, ..Point::default() },
        };
        assert!(refuse_out_of_reach(&[100.0, 2000.0], &arm, 1000.0).is_ok());
        let refused = refuse_out_of_reach(&[100.0, 2001.0], &arm, 1000.0).unwrap_err().to_string();
        assert!(refused.contains("8 connections over tcp (c8/128B)"), "{refused}");
        assert_eq!(step(0, 1), "measuring the capacity");
        assert_eq!(step(1, 6), "measuring the capacity, 2 of 6");
    }
}
