//! Any commands, compared with the same statistics: sysbench over TCP and over a socket, a build before and
//! after a change. Whole processes alternate.

use std::sync::Arc;

use regex_lite::Regex;
use samehost_model::{Arm, Better, MetricInfo, ServerInfo, Transport};

use crate::engine::{Job, process::ProcessJob};
use crate::error::BenchError;
use crate::parameters::{Parameter, Parameters, Values, words};
use crate::starts::Starts;
use crate::workload::{
    Capabilities, Configured, Description, Instance, OpenOrClosed, StartOptions, Workload,
};

/// Runs the commands given with `--arm`.
pub struct Command;

struct Commands {
    jobs: Vec<ProcessJob>,
}

struct Settings {
    value: Option<Regex>,
    better: Direction,
}

words! {
    enum Direction { Higher = "higher", Lower = "lower" }
}

fn pattern(text: &str) -> Result<Regex, BenchError> {
    Regex::new(text)
        .map_err(|error| BenchError::Usage(format!("--value is not a valid regular expression: {error}")))
}

const PARAMETERS: &[Parameter] = &[
    Parameter::text(
        "value",
        "Compare the number that this regular expression finds in the output: its first group that matches, or all of it",
    ),
    Parameter::word::<Direction>("better", "Which way the number of --value improves"),
];

impl Workload for Command {
    fn description(&self) -> Description {
        Description {
            name: "command",
            about: "Any two commands: wall time, CPU time, or a number from their output",
            example: "command --arm a='gzip -1 -kc FILE' --arm b='gzip -9 -kc FILE'",
            parameters: PARAMETERS,
        }
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings {
            value: parameters.given("value").map(|text| pattern(&text)).transpose()?,
            better: parameters.word("better")?,
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            transports: &[Transport::Command],
            connections: None,
            sizes: None,
            rates: false,
            timed: false,
            foreign_servers: false,
            commands: true,
        }
    }

    fn title(&self) -> String {
        "whole commands, one by one".into()
    }

    fn metrics(&self, _: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = ["wall_time", "cpu_time"].map(MetricInfo::built_in).to_vec();
        if self.value.is_some() {
            let better = match self.better {
                Direction::Higher => Better::Higher,
                Direction::Lower => Better::Lower,
            };
            metrics.insert(0, MetricInfo::own("value", "", better));
        }
        metrics
    }

    fn starts(&self) -> Starts {
        Starts::Once
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let jobs = start.commands.iter().map(|(arm, script)| ProcessJob {
            arm: arm.clone(),
            script: script.clone(),
            pattern: self.value.clone(),
        });
        Ok(Box::new(Commands { jobs: jobs.collect() }))
    }
}

impl Instance for Commands {
    fn server(&self) -> ServerInfo {
        ServerInfo { kind: "whatever your commands connect to".into(), ..ServerInfo::default() }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let job = self.jobs.iter().find(|job| job.arm == arm.name);
        job.cloned()
            .map(Job::Process)
            .ok_or_else(|| BenchError::Usage(format!("no command for arm `{}`", arm.name)))
    }
}
