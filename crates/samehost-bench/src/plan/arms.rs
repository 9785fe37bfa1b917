//! What is compared: axes with all defaults filled in, the levels, points and arms that follow from them, and the arms that are not
//! transports (commands and the floor). Pure.

use samehost_model::{Arm, Placement, Point, RateSpec, Redactor, Transport};

use crate::error::BenchError;
use crate::parameters::{Parameters, Swept, distinct, values};
use crate::workload::Workload;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Transports, the baseline first; a transport named twice is compared with itself.
    pub transports: Vec<Transport>,
    pub connections: Vec<u32>,
    /// Empty for a closed loop.
    pub rates: Vec<RateSpec>,
    /// Sizes in bytes; a single `None` for a workload without sizes.
    pub sizes: Vec<Option<u64>>,
    /// Empty for the usual placement at each number of connections.
    pub placements: Vec<Placement>,
    /// Usual placement of one connection; several connections are placed freely.
    pub alone: Placement,
    pub swept: Vec<Swept>,
    /// Empty before they are measured.
    pub capacities: Vec<Capacity>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    pub level: Point,
    pub transport: Transport,
    pub per_s: f64,
}

impl Matrix {
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

    /// Every combination of the workload's own parameters; a single empty one if none is swept.
    fn own_parameters(&self) -> Vec<Parameters> {
        let mut sets = vec![Parameters::new()];
        for swept in &self.swept {
            let mut longer = Vec::with_capacity(sets.len() * swept.values.len());
            for set in &sets {
                for value in &swept.values {
                    let mut set = set.clone();
                    set.insert(swept.name.clone(), value.clone());
                    longer.push(set);
                }
            }
            sets = longer;
        }
        sets
    }

    pub fn capacity(&self, level: &Point, transport: Transport) -> Option<f64> {
        let found = self.capacities.iter().find(|c| c.transport == transport && c.level == *level)?;
        Some(found.per_s)
    }

    /// Rate at a level in requests per second. A percentage refers to the baseline's capacity at that level.
    fn rate(&self, level: &Point, rate: RateSpec) -> Option<f64> {
        match rate {
            RateSpec::PerSecond(rate) => Some(rate),
            RateSpec::OfCapacity(part) => {
                let capacity = self.capacity(level, *self.transports.first()?)?;
                Some((part * capacity).round().max(1.0))
            }
        }
    }

    /// Suffix that distinguishes a level from the others in an arm's id: only the axes that vary.
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
            // Rounded, since 7 % is 7.000000000000001 after a division and a multiplication.
            RateSpec::OfCapacity(part) => format!("/{}%", (part * 1e6).round() / 1e4),
        }
    }

    /// The arms of every point. Those of an open loop have a rate where it does not depend on a capacity that is not measured yet.
    pub fn arms(&self) -> Vec<Arm> {
        let mut arms = Vec::new();
        for level in self.levels() {
            let suffix = self.level_suffix(&level);
            if self.rates.is_empty() {
                arms.extend(self.arms_at(&level, &level, &suffix));
            }
            for rate in &self.rates {
                let point = Point { rate_per_s: self.rate(&level, *rate), ..level.clone() };
                arms.extend(self.arms_at(&level, &point, &(suffix.clone() + &self.rate_suffix(*rate))));
            }
        }
        arms
    }

    fn arms_at(&self, level: &Point, point: &Point, suffix: &str) -> Vec<Arm> {
        let mut arms = Vec::with_capacity(self.transports.len());
        for (name, transport) in self.names().iter().zip(&self.transports) {
            let capacity_per_s = self.capacity(level, *transport);
            arms.push(Arm { capacity_per_s, ..arm(name, suffix, *transport, point) });
        }
        arms
    }

    /// Names of the arms of a point: the transport, with a number from the second of the same transport on.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.transports.len());
        for (index, transport) in self.transports.iter().enumerate() {
            let twins = self.transports[..index].iter().filter(|earlier| *earlier == transport).count();
            names.push(match twins {
                0 => transport.to_string(),
                _ => format!("{transport}#{}", twins + 1),
            });
        }
        names
    }
}

/// Separates the workload's own parameters: those with several values become axes, the others stay. The entry
/// of a swept parameter keeps the list, so that a title can name it.
///
/// # Errors
/// When a value or a list cannot be parsed.
pub fn sweep(
    workload: &dyn Workload,
    parameters: &Parameters,
) -> Result<(Parameters, Vec<Swept>), BenchError> {
    let mut parameters = parameters.clone();
    let mut swept = Vec::new();
    for parameter in workload.parameters() {
        let Some(text) = parameters.get(parameter.name) else { continue };
        if text.is_empty() {
            continue;
        }
        let Some(values) = values(parameter.kind, text) else { continue };
        let values = values.map_err(|reason| BenchError::Usage(format!("--{}: {reason}", parameter.name)))?;
        let values = distinct(values);
        parameters.insert(parameter.name.to_owned(), values.join(","));
        if values.len() > 1 {
            swept.push(Swept { name: parameter.name.to_owned(), values });
        }
    }
    Ok((parameters, swept))
}

pub const FLOOR: &str = "noop";

/// The arms of commands given by name, at each level of the matrix, of which they have the parameters alone.
///
/// # Errors
/// When two arms have the same name, or one has the floor's.
pub fn command_arms(commands: &[(String, String)], matrix: &Matrix) -> Result<Vec<Arm>, BenchError> {
    for (place, (name, script)) in commands.iter().enumerate() {
        if commands[..place].iter().any(|(other, _)| other == name) {
            return Err(BenchError::Usage(format!("two arms are called `{name}`")));
        }
        if name == FLOOR {
            return Err(BenchError::Usage(format!(
                "`{FLOOR}` is the name of the harness's own arm; choose another"
            )));
        }
        tracing::debug!(name, script = Redactor::default().command(script), "arm");
    }
    let mut arms = Vec::new();
    for level in matrix.levels() {
        let suffix = matrix.level_suffix(&level);
        let point = Point { parameters: level.parameters, ..Point::default() };
        for (name, _) in commands {
            arms.push(arm(name, &suffix, Transport::Command, &point));
        }
    }
    Ok(arms)
}

/// The arm of the no-op workload, which measures the cost of the harness. No other arm has its point, so
/// nothing is compared with it.
pub fn floor_arm() -> Arm {
    arm(FLOOR, "", Transport::None, &Point::default())
}

fn arm(name: &str, suffix: &str, transport: Transport, point: &Point) -> Arm {
    Arm {
        id: format!("{name}{suffix}"),
        name: name.to_owned(),
        transport,
        endpoint: None,
        tls: transport.is_tls(),
        capacity_per_s: None,
        point: point.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::defaults;
    use crate::workloads::workload;

    pub(crate) fn matrix() -> Matrix {
        Matrix {
            transports: vec![Transport::Tcp, Transport::Unix],
            connections: vec![1, 64],
            sizes: vec![Some(128)],
            placements: vec![Placement::Free],
            ..Matrix::default()
        }
    }

    fn parameters(name: &str) -> Parameters {
        defaults(workload(name).unwrap())
    }

    fn ids(matrix: &Matrix) -> Vec<String> {
        matrix.arms().into_iter().map(|arm| arm.id).collect()
    }

    #[test]
    fn ids_name_what_varies() {
        assert_eq!(ids(&matrix()), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
        let twins = Matrix { transports: vec![Transport::Unix; 2], connections: vec![1], ..matrix() };
        assert_eq!(ids(&twins), ["unix", "unix#2"]);
    }

    #[test]
    fn one_connection_has_a_usual_placement_of_its_own() {
        fn placements(matrix: &Matrix) -> Vec<Placement> {
            matrix.levels().iter().map(|level| level.placement).collect()
        }
        let usual = Matrix { placements: Vec::new(), alone: Placement::CrossCore, ..matrix() };
        assert_eq!(placements(&usual), [Placement::CrossCore, Placement::Free]);
        assert_eq!(ids(&usual), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
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
        let arms = matrix.arms();
        let ids: Vec<&str> = arms.iter().map(|arm| arm.id.as_str()).collect();
        assert_eq!(ids, ["tcp/pipeline=1", "tcp/pipeline=2", "tcp/pipeline=4", "tcp/pipeline=64"]);
        assert_eq!(arms[3].point.parameters["pipeline"], "64");
        asked.insert("pipeline".into(), "8".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert_eq!((kept["pipeline"].as_str(), swept), ("8", Vec::new()), "one value is not an axis");
        asked.insert("pipeline".into(), "1,x".into());
        assert!(sweep(redis, &asked).unwrap_err().to_string().contains("--pipeline: `x`"));
        asked.insert("pipeline".into(), "1,65".into());
        let (kept, _) = sweep(redis, &asked).unwrap();
        assert!(redis.configure(&kept).is_err(), "each value is checked");
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
        let arms = matrix.arms();
        let arm = |id: &str| arms.iter().find(|arm| arm.id == id).unwrap();
        assert_eq!(arm("tcp/c1/7%").point.rate_per_s, Some(70.0));
        assert_eq!(arm("unix/c1/7%").point, arm("tcp/c1/7%").point, "both have the same rate");
        assert_eq!(arm("unix/c64/7%").point.rate_per_s, Some(280.0));
        assert_eq!(arm("unix/c64/7%").capacity_per_s, Some(6000.0), "each arm has its own capacity");
        assert_eq!(arm("tcp/c64/r50").point.rate_per_s, Some(50.0));
    }
}
