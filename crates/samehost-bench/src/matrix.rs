//! The matrix: its axes with every default filled in, its levels, points and arms. Pure.

use samehost_model::{Arm, Placement, Point, RateSpec, Transport, parse_count_list};

use crate::error::BenchError;
use crate::workload::{ParameterKind, Parameters, Workload};

/// The axes of the matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Transports, the baseline first; a transport named twice is compared with itself.
    pub transports: Vec<Transport>,
    /// Connections.
    pub connections: Vec<u32>,
    /// Rates; none for a closed loop.
    pub rates: Vec<RateSpec>,
    /// Sizes; one `None` for a workload without.
    pub sizes: Vec<Option<u64>>,
    /// Placements; empty for the usual one at each number of connections.
    pub placements: Vec<Placement>,
    /// The usual placement of one connection; more than one are free.
    pub alone: Placement,
    /// The workload's own parameters that have several values.
    pub swept: Vec<Swept>,
    /// What each transport can do at each level, once that was measured.
    pub capacities: Vec<Capacity>,
}

/// A workload's own parameter with several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Its name.
    pub name: String,
    /// Its values, in the order given.
    pub values: Vec<String>,
}

/// What a transport can do at a level of the matrix in a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The level: a point without a rate.
    pub level: Point,
    /// The transport.
    pub transport: Transport,
    /// Operations per second.
    pub per_s: f64,
}

/// What was measured in an earlier part of the same measurement.
pub(crate) fn capacities_of(arms: &[Arm]) -> Vec<Capacity> {
    let of = |arm: &Arm| {
        let level = Point { rate_per_s: None, ..arm.point.clone() };
        Some(Capacity { level, transport: arm.transport, per_s: arm.capacity_per_s? })
    };
    arms.iter().filter_map(of).collect()
}

impl Matrix {
    /// Every level, in the order in which tables list them. A level is a point without a rate.
    #[must_use]
    pub fn levels(&self) -> Vec<Point> {
        let mut levels = Vec::new();
        let asked: Vec<Option<Placement>> = match self.placements.as_slice() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        for placement in asked {
            for parameters in self.own_parameters() {
                for size_bytes in &self.sizes {
                    for connections in &self.connections {
                        levels.push(Point {
                            connections: *connections,
                            rate_per_s: None,
                            size_bytes: *size_bytes,
                            placement: placement.unwrap_or_else(|| self.usual(*connections)),
                            parameters: parameters.clone(),
                        });
                    }
                }
            }
        }
        levels
    }

    fn usual(&self, connections: u32) -> Placement {
        if connections == 1 { self.alone } else { Placement::Free }
    }

    /// Every combination of the workload's own parameters; one empty set where none is swept.
    fn own_parameters(&self) -> Vec<Parameters> {
        let mut sets = vec![Parameters::new()];
        for swept in &self.swept {
            let with = |set: &Parameters, value: &String| {
                let mut set = set.clone();
                set.insert(swept.name.clone(), value.clone());
                set
            };
            sets = sets.iter().flat_map(|set| swept.values.iter().map(|value| with(set, value))).collect();
        }
        sets
    }

    /// What a transport can do at a level, where that was measured.
    #[must_use]
    pub fn capacity(&self, level: &Point, transport: Transport) -> Option<f64> {
        let found = self.capacities.iter().find(|c| c.transport == transport && c.level == *level)?;
        Some(found.per_s)
    }

    /// The rate at a level in requests per second: a percentage is of the baseline's capacity at that level.
    fn rate(&self, level: &Point, rate: RateSpec) -> Option<f64> {
        match rate {
            RateSpec::PerSecond(rate) => Some(rate),
            RateSpec::OfCapacity(part) => {
                let capacity = self.capacity(level, *self.transports.first()?)?;
                Some((part * capacity).round().max(1.0))
            }
        }
    }

    /// What tells a level from the others in an arm's id: only what varies.
    #[must_use]
    pub fn level_suffix(&self, level: &Point) -> String {
        let mut suffix = String::new();
        if self.connections.len() > 1 {
            suffix += &format!("/c{}", level.connections);
        }
        if let (Some(size), true) = (level.size_bytes, self.sizes.len() > 1) {
            suffix += &format!("/{size}B");
        }
        for (name, value) in &level.parameters {
            suffix += &format!("/{name}={value}");
        }
        if self.placements.len() > 1 {
            suffix += &format!("/{}", level.placement);
        }
        suffix
    }

    fn rate_suffix(&self, rate: RateSpec) -> String {
        match rate {
            _ if self.rates.len() < 2 => String::new(),
            RateSpec::PerSecond(rate) => format!("/r{rate:.0}"),
            // Rounded, for 7 % is 7.000000000000001 after a division and a multiplication.
            RateSpec::OfCapacity(part) => format!("/{}%", (part * 1e6).round() / 1e4),
        }
    }

    /// The arms of all points.
    ///
    /// # Errors
    /// When the workload says that a point makes no sense.
    pub fn arms(&self, workload: &dyn Workload, parameters: &Parameters) -> Result<Vec<Arm>, BenchError> {
        let mut arms = Vec::new();
        for level in self.levels() {
            let suffix = self.level_suffix(&level);
            if self.rates.is_empty() {
                arms.extend(self.arms_at(&level, &suffix, workload, parameters)?);
            }
            for rate in &self.rates {
                let point = Point { rate_per_s: self.rate(&level, *rate), ..level.clone() };
                let suffix = suffix.clone() + &self.rate_suffix(*rate);
                arms.extend(self.arms_at(&point, &suffix, workload, parameters)?);
            }
        }
        Ok(arms)
    }

    fn arms_at(
        &self,
        point: &Point,
        suffix: &str,
        workload: &dyn Workload,
        parameters: &Parameters,
    ) -> Result<Vec<Arm>, BenchError> {
        let level = Point { rate_per_s: None, ..point.clone() };
        let arm = |(name, transport): (String, &Transport)| {
            workload.check(point, *transport, parameters)?;
            Ok(Arm {
                id: format!("{name}{suffix}"),
                name,
                transport: *transport,
                endpoint: None,
                tls: transport.is_tls(),
                capacity_per_s: self.capacity(&level, *transport),
                point: point.clone(),
            })
        };
        self.names().into_iter().zip(&self.transports).map(arm).collect()
    }

    /// What the arms of a point are called: by their transport, a second one of the same with its number.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = |(index, transport): (usize, &Transport)| {
            let twin = self.transports[..index].iter().filter(|earlier| *earlier == transport).count();
            if twin == 0 { transport.to_string() } else { format!("{transport}#{}", twin + 1) }
        };
        self.transports.iter().enumerate().map(name).collect()
    }
}

/// Takes the workload's own parameters apart: those with several values become axes, the others stay as they are.
/// Where a parameter is swept, its entry keeps the list, so that a title can name it.
///
/// # Errors
/// When a list of counts is none.
pub fn sweep(
    workload: &dyn Workload,
    parameters: &Parameters,
) -> Result<(Parameters, Vec<Swept>), BenchError> {
    let mut parameters = parameters.clone();
    let mut swept = Vec::new();
    for parameter in workload.parameters() {
        let Some(text) = parameters.get(parameter.name).filter(|text| !text.is_empty()) else { continue };
        let Some(values) = values(parameter.kind, text) else { continue };
        let values =
            distinct(values.map_err(|reason| BenchError::Usage(format!("--{}: {reason}", parameter.name)))?);
        parameters.insert(parameter.name.to_owned(), values.join(","));
        if values.len() > 1 {
            swept.push(Swept { name: parameter.name.to_owned(), values });
        }
    }
    Ok((parameters, swept))
}

/// The values of a parameter that may have several; none for a kind that has one.
///
/// # Errors
/// With what is wrong and what to write.
pub fn values(kind: ParameterKind, text: &str) -> Option<Result<Vec<String>, String>> {
    match kind {
        ParameterKind::Counts => {
            Some(parse_count_list(text).map(|counts| counts.iter().map(u32::to_string).collect()).map_err(
                |error| {
                    format!(
                        "`{}` is not a number; write 8, a list (1,8,64) or a doubling range (1..64)",
                        error.text
                    )
                },
            ))
        }
        ParameterKind::Choices(words) => {
            let known = |word: &str| {
                let word = word.trim();
                let unknown = || format!("`{word}` is none of {}", words.join(", "));
                words.contains(&word).then(|| word.to_owned()).ok_or_else(unknown)
            };
            Some(text.split(',').map(known).collect())
        }
        ParameterKind::Choice(_) | ParameterKind::Count | ParameterKind::Duration | ParameterKind::Text => {
            None
        }
    }
}

/// Each value once, in the order of first appearance: a point measured twice would be two arms of one id.
pub fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::workload;

    fn matrix() -> Matrix {
        Matrix {
            transports: vec![Transport::Tcp, Transport::Unix],
            connections: vec![1, 64],
            sizes: vec![Some(128)],
            placements: vec![Placement::Free],
            ..Matrix::default()
        }
    }

    fn parameters(name: &str) -> Parameters {
        crate::workload::defaults(workload(name).unwrap())
    }

    fn ids(matrix: &Matrix, name: &str) -> Vec<String> {
        let arms = matrix.arms(workload(name).unwrap(), &parameters(name)).unwrap();
        arms.into_iter().map(|arm| arm.id).collect()
    }

    #[test]
    fn ids_name_what_varies() {
        assert_eq!(ids(&matrix(), "raw"), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
        let twins = Matrix { transports: vec![Transport::Unix; 2], connections: vec![1], ..matrix() };
        assert_eq!(ids(&twins, "raw"), ["unix", "unix#2"]);
    }

    #[test]
    fn one_connection_has_a_usual_placement_of_its_own() {
        let usual = Matrix { placements: Vec::new(), alone: Placement::CrossCore, ..matrix() };
        let placements = |matrix: &Matrix| -> Vec<Placement> {
            matrix.levels().iter().map(|level| level.placement).collect()
        };
        assert_eq!(placements(&usual), [Placement::CrossCore, Placement::Free]);
        assert_eq!(ids(&usual, "raw"), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
        let asked = Matrix { placements: vec![Placement::SameCore], ..usual };
        assert_eq!(placements(&asked), [Placement::SameCore; 2], "what is asked for holds for all");
    }

    #[test]
    fn a_parameter_with_several_values_is_an_axis() {
        let redis = workload("redis").unwrap();
        let mut asked = parameters("redis");
        asked.insert("pipeline".into(), "1..4,4,64".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert_eq!(kept["pipeline"], "1,2,4,64");
        assert_eq!(kept["command"], "get");
        let matrix = Matrix { connections: vec![8], transports: vec![Transport::Tcp], swept, ..matrix() };
        let arms = matrix.arms(redis, &kept).unwrap();
        let ids: Vec<&str> = arms.iter().map(|arm| arm.id.as_str()).collect();
        assert_eq!(ids, ["tcp/pipeline=1", "tcp/pipeline=2", "tcp/pipeline=4", "tcp/pipeline=64"]);
        assert_eq!(arms[3].point.parameters["pipeline"], "64");
        asked.insert("pipeline".into(), "8".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert_eq!((kept["pipeline"].as_str(), swept), ("8", Vec::new()), "one value is no axis");
        asked.insert("pipeline".into(), "1,x".into());
        assert!(sweep(redis, &asked).unwrap_err().to_string().contains("--pipeline: `x`"));
        asked.insert("pipeline".into(), "1,65".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert!(Matrix { swept, ..matrix }.arms(redis, &kept).is_err(), "each value is checked");
    }

    #[test]
    fn a_percentage_is_of_the_baselines_capacity_at_its_level() {
        let mut matrix =
            Matrix { rates: vec![RateSpec::OfCapacity(0.07), RateSpec::PerSecond(50.0)], ..matrix() };
        for (level, factor) in matrix.levels().into_iter().zip([1.0, 4.0]) {
            for (transport, per_s) in [(Transport::Tcp, 1000.0), (Transport::Unix, 1500.0)] {
                matrix.capacities.push(Capacity { level: level.clone(), transport, per_s: factor * per_s });
            }
        }
        let arms = matrix.arms(workload("raw").unwrap(), &parameters("raw")).unwrap();
        let of = |id: &str| arms.iter().find(|arm| arm.id == id).unwrap();
        assert_eq!(of("tcp/c1/7%").point.rate_per_s, Some(70.0));
        assert_eq!(of("unix/c1/7%").point, of("tcp/c1/7%").point, "both have the same rate");
        assert_eq!(of("unix/c64/7%").point.rate_per_s, Some(280.0));
        assert_eq!(of("unix/c64/7%").capacity_per_s, Some(6000.0), "each arm has its own capacity");
        assert_eq!(of("tcp/c64/r50").point.rate_per_s, Some(50.0));
    }
}
