//! Any commands, compared with the same statistics: sysbench over TCP and over a socket, a build before and after a
//! change. Whole processes alternate.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex_lite::Regex;
use samehost_model::{Arm, Better, Metric, MetricInfo, Point, Transport, metric};
use samehost_system::interrupt;

use crate::engine::Job;
use crate::engine::process::{ProcessJob, drive};
use crate::error::BenchError;
use crate::parameters::{OWN_PARAMETER, distinct};
use crate::parameters::{Parameter, Parameters, Swept, Values, words};
use crate::served::{Instance, Served, StartOptions};
use crate::workload::{Capabilities, Configured, Description, OpenOrClosed, Starts, Workload};

const MAX_WARMUPS: u32 = 1000;

pub struct Command;

struct Commands {
    /// What the commands connect to, if anything, is not known.
    served: Served,
    jobs: Vec<ProcessJob>,
    prepare: Option<String>,
    warmup: u32,
    warmed_up_arms: BTreeSet<String>,
}

struct Settings {
    values: Vec<Value>,
    prepare: Option<String>,
    warmup: u32,
    swept: Vec<Swept>,
}

struct Value {
    metric: String,
    better: Better,
    pattern: Regex,
}

words! {
    enum Direction { Higher = "higher", Lower = "lower" }
}

impl Value {
    /// `REGEX` is the metric `value` with the `usual` direction; `NAME:higher=REGEX` and `NAME:lower=REGEX` have a name and
    /// a direction of their own.
    fn parse(text: &str, usual: Direction) -> Result<Self, BenchError> {
        let (metric, direction, pattern) = match named(text) {
            Some(parts) => parts,
            None => ("value", usual, text),
        };
        if !is_word(metric) || Metric::named(metric).is_some() {
            return BenchError::refuse(format!(
                "--value: `{metric}` cannot be the name of a number; use letters, digits and _, and no name of samehost's own metrics"
            ));
        }
        let better = match direction {
            Direction::Higher => Better::Higher,
            Direction::Lower => Better::Lower,
        };
        match Regex::new(pattern) {
            Ok(pattern) => Ok(Value { metric: metric.to_owned(), better, pattern }),
            Err(error) => BenchError::refuse(format!("--value is not a valid regular expression: {error}")),
        }
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Name, direction and pattern of `NAME:lower=REGEX`. `None` for a pattern alone, which may have `=` and `:` in it too.
fn named(text: &str) -> Option<(&str, Direction, &str)> {
    let (head, pattern) = text.split_once('=')?;
    let (name, direction) = head.split_once(':')?;
    Some((name, direction.parse().ok()?, pattern))
}

/// Parses `NAME=1,16,256`; empty and repeated values are left out.
fn parameter(text: &str) -> Result<Swept, BenchError> {
    let (name, list) = text.split_once('=').unwrap_or_default();
    let mut values = Vec::new();
    for value in list.split(',') {
        let value = value.trim();
        if !value.is_empty() {
            values.push(value.to_owned());
        }
    }
    if name.is_empty() || values.is_empty() {
        return BenchError::refuse(format!(
            "--parameter `{text}`: write NAME=VALUES, such as connections=1,16,256, and {{connections}} in the commands"
        ));
    }
    Ok(Swept { name: name.to_owned(), values: distinct(values) })
}

const PARAMETERS: &[Parameter] = &[
    Parameter::texts(
        "value",
        "Compare the number that this regular expression finds in the output: its first group that matches, or all of it. Several, each with a name and the better direction: --value ops:higher='REGEX' --value p99:lower='REGEX'",
    ),
    Parameter::word::<Direction>("better", "Which way the number of a --value without a direction improves"),
    Parameter::texts(
        OWN_PARAMETER,
        "Run the commands with each of these values, NAME=VALUES: connections=1,16,256 replaces {connections}. Several times: every combination",
    ),
    Parameter::count("warmup", "", "Run each command that often before it counts"),
    Parameter::text("prepare", "A command to run before each run; its time does not count"),
];

impl Workload for Command {
    fn description(&self) -> Description {
        Description {
            name: "command",
            about: "Any two commands: wall time, CPU time, or numbers from their output",
            example: "command 'gzip -1 -kc FILE' 'gzip -9 -kc FILE'",
            parameters: PARAMETERS,
        }
    }

    /// Leaves `--better` out where every number has a direction of its own.
    fn propose(&self, parameters: &Parameters, _: &[u32]) -> Result<Parameters, BenchError> {
        let mut proposed = parameters.clone();
        let text = parameters.text("value");
        let has_plain = text.lines().any(|text| named(text).is_none());
        if !has_plain {
            proposed.insert("better".into(), String::new());
        }
        Ok(proposed)
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let better = parameters.word("better")?;
        // An option that is given several times is one text with a line for each.
        let mut values: Vec<Value> = Vec::new();
        for text in parameters.text("value").lines() {
            values.push(Value::parse(text, better)?);
        }
        for (place, value) in values.iter().enumerate() {
            if values[..place].iter().any(|other| other.metric == value.metric) {
                return BenchError::refuse(format!(
                    "two numbers are called `{}`; name them: --value NAME:higher='REGEX'",
                    value.metric
                ));
            }
        }
        let mut warmup = 0;
        if parameters.given("warmup").is_some() {
            warmup = parameters.count("warmup", MAX_WARMUPS)?;
        }
        let mut swept = Vec::new();
        for text in parameters.text(OWN_PARAMETER).lines() {
            swept.push(parameter(text)?);
        }
        Ok(Arc::new(Settings { values, prepare: parameters.given("prepare"), warmup, swept }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            transports: &[Transport::Command],
            connections: None,
            rates: false,
            timed: false,
            foreign_servers: false,
            commands: true,
            starts: Starts::Once,
            ..Capabilities::REQUESTS
        }
    }

    fn swept(&self) -> Vec<Swept> {
        self.swept.clone()
    }

    fn title(&self) -> String {
        "whole commands, one by one".into()
    }

    fn metrics(&self, _: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = Vec::new();
        for value in &self.values {
            metrics.push(MetricInfo::own(&value.metric, "", value.better));
        }
        metrics.extend([metric::WALL_TIME.info(), metric::CPU_TIME.info()]);
        metrics
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        for swept in &self.swept {
            let place = format!("{{{}}}", swept.name);
            if !start.commands.iter().any(|(_, script)| script.contains(&place)) {
                return BenchError::refuse(format!(
                    "--parameter {}: no command has {place} in it",
                    swept.name
                ));
            }
        }
        let values: Vec<_> =
            self.values.iter().map(|value| (value.metric.clone(), value.pattern.clone())).collect();
        let mut jobs = Vec::new();
        for (arm, script) in &start.commands {
            jobs.push(ProcessJob { arm: arm.clone(), script: script.clone(), values: values.clone() });
        }
        Ok(Box::new(Commands {
            served: Served::default(),
            jobs,
            prepare: self.prepare.clone(),
            warmup: self.warmup,
            warmed_up_arms: BTreeSet::new(),
        }))
    }
}

/// A script with the values of a point in place of their names. A value that has `{NAME}` in it is put in as it is.
fn at(point: &Point, script: &str) -> String {
    let mut filled = String::new();
    let mut rest = script;
    'next: while let Some(brace) = rest.find('{') {
        filled += &rest[..brace];
        rest = &rest[brace..];
        for (name, value) in &point.parameters {
            if let Some(after) = rest.strip_prefix(&format!("{{{name}}}")) {
                filled += value;
                rest = after;
                continue 'next;
            }
        }
        filled.push('{');
        rest = &rest[1..];
    }
    filled + rest
}

impl Commands {
    fn prepare(&self, arm: &Arm) -> Result<(), BenchError> {
        let Some(script) = &self.prepare else { return Ok(()) };
        let job = ProcessJob {
            arm: format!("{} (--prepare)", arm.name),
            script: at(&arm.point, script),
            values: Vec::new(),
        };
        drive(&job, &interrupt::flag()).map(drop)
    }
}

impl Instance for Commands {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let Some(job) = self.jobs.iter().find(|job| job.arm == arm.name) else {
            return BenchError::refuse(format!("no command for arm `{}`", arm.name));
        };
        let job = ProcessJob { script: at(&arm.point, &job.script), ..job.clone() };
        if self.warmed_up_arms.insert(arm.id.clone()) {
            for _ in 0..self.warmup {
                self.prepare(arm)?;
                drive(&job, &interrupt::flag())?;
            }
        }
        self.prepare(arm)?;
        Ok(Job::Process(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configure(given: &[(&str, &str)]) -> Result<Arc<dyn Configured>, BenchError> {
        let mut parameters = crate::workload::defaults(&Command);
        parameters.extend(given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Command.configure(&parameters)
    }

    #[test]
    fn numbers_have_names_and_directions() {
        let configured = configure(&[("value", "ops:higher=ops=(\\d+)\np99:lower=p99 (.*)")]).unwrap();
        let metrics = configured.metrics(OpenOrClosed::Closed);
        let names: Vec<_> = metrics.iter().map(|metric| (metric.name.as_str(), metric.better)).collect();
        assert_eq!(names[..2], [("ops", Better::Higher), ("p99", Better::Lower)]);
        // A pattern with `=` and without a direction is one pattern.
        let plain = configure(&[("value", "ops=(\\d+)"), ("better", "lower")]).unwrap();
        let first = plain.metrics(OpenOrClosed::Closed).remove(0);
        assert_eq!((first.name.as_str(), first.better), ("value", Better::Lower));
        for wrong in ["a\nb", "wall_time:lower=(.*)", "p 99:lower=(.*)", "("] {
            assert!(configure(&[("value", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameters_are_lists_with_a_name() {
        let swept = configure(&[("parameter", "c=1, 16,16\nd=x")]).unwrap().swept();
        let swept: Vec<_> = swept.iter().map(|swept| (swept.name.as_str(), swept.values.join(" "))).collect();
        assert_eq!(swept, [("c", "1 16".to_owned()), ("d", "x".to_owned())]);
        for wrong in ["c", "=1", "c=", "c=,"] {
            assert!(configure(&[("parameter", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_is_put_in_as_it_is() {
        let mut point = Point::default();
        for (name, value) in [("a", "{b}"), ("b", "1")] {
            point.parameters.insert(name.to_owned(), value.to_owned());
        }
        assert_eq!(at(&point, "x {a}{b} ${c} {{b} {"), "x {b}1 ${c} {1 {");
        assert_eq!(at(&Point::default(), "awk '{print}'"), "awk '{print}'");
    }
}
