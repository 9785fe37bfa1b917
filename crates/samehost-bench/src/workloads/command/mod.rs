//! Any commands, compared with the same statistics: sysbench over TCP and over a socket, a build before and
//! after a change. Whole processes alternate.

use regex::Regex;
use samehost_model::{Arm, Better, MetricInfo, ServerInfo, Transport};

use crate::engine::{Job, process::ProcessJob};
use crate::error::BenchError;
use crate::starts::Starts;
use crate::workload::{
    Capabilities, Instance, OpenOrClosed, Parameter, ParameterKind, Parameters, StartOptions, Workload,
};

/// Runs the commands given with `--arm`.
pub struct Command;

struct Commands {
    jobs: Vec<ProcessJob>,
}

fn pattern(parameters: &Parameters) -> Result<Option<Regex>, BenchError> {
    let text = &parameters["value"];
    if text.is_empty() {
        return Ok(None);
    }
    Regex::new(text)
        .map(Some)
        .map_err(|error| BenchError::Usage(format!("--value is not a valid regular expression: {error}")))
}

impl Workload for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn about(&self) -> &'static str {
        "Any two commands: wall time, CPU time, or a number from their output"
    }

    fn example(&self) -> &'static str {
        "command --arm a='gzip -1 -kc FILE' --arm b='gzip -9 -kc FILE'"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "value",
                help: "Compare the number that this regular expression finds in the output: its first group that matches, or all of it",
                default: "",
                kind: ParameterKind::Text,
            },
            Parameter {
                name: "better",
                help: "Which way the number of --value improves",
                default: "higher",
                kind: ParameterKind::Choice(&["higher", "lower"]),
            },
        ]
    }

    fn axes(&self, _: &Parameters) -> Capabilities {
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

    fn title(&self, _: &Parameters) -> String {
        "whole commands, one by one".into()
    }

    fn metrics(&self, parameters: &Parameters, _: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = ["wall_time", "cpu_time"].map(MetricInfo::built_in).to_vec();
        if !parameters["value"].is_empty() {
            let better = if parameters["better"] == "lower" { Better::Lower } else { Better::Higher };
            metrics.insert(0, MetricInfo::own("value", "", better));
        }
        metrics
    }

    fn starts(&self, _: &Parameters) -> Starts {
        Starts::Once
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let pattern = pattern(&start.parameters)?;
        let jobs = start.commands.iter().map(|(arm, script)| ProcessJob {
            arm: arm.clone(),
            script: script.clone(),
            pattern: pattern.clone(),
        });
        Ok(Box::new(Commands { jobs: jobs.collect() }))
    }
}

impl Instance for Commands {
    fn server(&self) -> ServerInfo {
        ServerInfo { kind: "the commands' own".into(), ..ServerInfo::default() }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let job = self.jobs.iter().find(|job| job.arm == arm.name);
        job.cloned()
            .map(Job::Process)
            .ok_or_else(|| BenchError::Usage(format!("no command for arm `{}`", arm.name)))
    }
}
