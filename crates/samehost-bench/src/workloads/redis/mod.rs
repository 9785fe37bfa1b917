//! Redis and servers that behave like it: GET, SET, INCR and PING, one at a time or in a pipeline, against a
//! private server or one that is already running. Keys have a prefix of our own, are set before the first
//! trial and deleted after the last.

mod address;
mod dialogue;
mod impact;
mod running;
mod session;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use samehost_model::{MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::private_servers::REDIS;
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Workload, word,
};
use crate::workloads::reached::complete;
use crate::workloads::requests::{self, MOST_SLICED, request_metrics};
use address::Address;
use running::RunningRedis;

/// Most commands in one request.
const MOST_PIPELINE: u32 = 64;
/// Largest value.
const MOST_SIZE: u64 = 64 * 1024 * 1024;
/// Most bytes of values in one request or its replies.
const MOST_AT_ONCE: u64 = 256 * 1024 * 1024;

/// The redis workload.
pub struct Redis;

impl Workload for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        static ABOUT: LazyLock<String> = LazyLock::new(|| {
            let servers = samehost_services::Kind::Redis.relatives_in_words();
            format!("{servers}: GET, SET, INCR or PING, alone or in a pipeline; keys `samehost:…` only")
        });
        &ABOUT
    }

    fn example(&self) -> &'static str {
        "redis --connections 1,64 --size 128"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "command",
                help: "What is asked. get, set and incr use keys `samehost:…`, set before the first trial and deleted after the last; ping writes nothing",
                default: "get",
                kind: ParameterKind::Choice(&["get", "set", "incr", "ping"]),
            },
            Parameter {
                name: "pipeline",
                help: "Commands sent together, 1 to 64, a list (1,8,64) or a doubling range (1..64); each counts as an operation, and latency is that of them all",
                default: "1",
                kind: ParameterKind::Counts,
            },
        ]
    }

    fn axes(&self, parameters: &Parameters) -> Capabilities {
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            connections: Some("1"),
            sizes: if Command::parse(parameters).is_ok_and(Command::has_value) { Some("128") } else { None },
            rates: true,
            timed: true,
            foreign_servers: true,
            commands: false,
        }
    }

    fn most_sliced(&self, _: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        MOST_SLICED
    }

    fn title(&self, parameters: &Parameters) -> String {
        let command = parameters["command"].to_ascii_uppercase();
        match parameters["pipeline"].as_str() {
            "1" => command,
            several if several.contains(',') => format!("{command} in pipelines"),
            many => format!("{command}, {many} in a pipeline"),
        }
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        let pipeline = pipeline(point, parameters)?;
        let size = point.size_bytes.unwrap_or(0);
        if size > MOST_SIZE {
            return Err(BenchError::Usage(format!(
                "--size {size} is too large for redis: at most {MOST_SIZE} bytes here"
            )));
        }
        if size * u64::from(pipeline) > MOST_AT_ONCE {
            return Err(BenchError::Usage(format!(
                "{pipeline} values of {size} bytes in one pipeline are more than {MOST_AT_ONCE} bytes; use a smaller --size or --pipeline"
            )));
        }
        Ok(())
    }

    fn complete(
        &self,
        servers: &BTreeMap<Transport, String>,
        wanted: &[Transport],
    ) -> Result<BTreeMap<Transport, String>, BenchError> {
        complete(servers, wanted, |known, text| Ok(dialogue::other_half(&given(known, text)?)?.to_url()))
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        impact::look(look)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&REDIS, self.name()))
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningRedis::start(start)?))
    }
}

/// Address on the command line; a missing password comes from the environment.
fn given(transport: Transport, text: &str) -> Result<Address, BenchError> {
    Address::given(transport, text, std::env::var("REDISCLI_AUTH").ok())
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Get,
    Set,
    Incr,
    Ping,
}

impl Command {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        let words =
            [("get", Command::Get), ("set", Command::Set), ("incr", Command::Incr), ("ping", Command::Ping)];
        word(parameters, "command", &words)
    }

    /// Whether it has a value of `--size` bytes.
    fn has_value(self) -> bool {
        matches!(self, Command::Get | Command::Set)
    }
}

/// Commands in one request.
fn pipeline(point: &Point, parameters: &Parameters) -> Result<u32, BenchError> {
    requests::pipeline(point, parameters, MOST_PIPELINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pipeline: &str) -> Parameters {
        [("command".into(), "get".into()), ("pipeline".into(), pipeline.into())].into()
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        let point = |size| Point { connections: 1, size_bytes: Some(size), ..Point::default() };
        let check = |size, pipeline| Redis.check(&point(size), Transport::Tcp, &parameters(pipeline));
        assert!(check(128, "64").is_ok());
        assert!(check(128, "65").is_err());
        assert!(check(MOST_SIZE, "1").is_ok());
        assert!(check(MOST_SIZE, "5").is_err());
        assert!(check(MOST_SIZE + 1, "1").is_err());
        let swept = Point { parameters: [("pipeline".into(), "32".into())].into(), ..point(1) };
        assert_eq!(pipeline(&swept, &parameters("1")).unwrap(), 32, "a point's own value goes first");
    }
}
