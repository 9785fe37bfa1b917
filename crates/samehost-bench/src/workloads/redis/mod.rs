//! Redis and servers that behave like it: GET, SET, INCR and PING, one at a time or in a pipeline, against a
//! private server or one that is already running. Keys have a prefix of our own, are set before the first
//! trial and deleted after the last. A private server runs on this machine or in a container.

mod dialogue;
mod running;
mod session;

use std::sync::{Arc, LazyLock};

use samehost_login::ServerAddress;
use samehost_model::{MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::Network;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, Word, words};
use crate::private_servers::REDIS;
use crate::private_servers::podman::Place;
use crate::tuned::{CONGESTION, SOCKET_BUFFER};
use crate::workload::{
    Capabilities, CheckupEntry, Configured, DATABASES, Description, Instance, Look, OpenOrClosed, Servers,
    StartOptions, Starts, Wanted, Workload, Written, add_proxy_metric, request_metrics,
};
use crate::workloads::foreign::{Forms, complete};
use crate::workloads::requests::{MOST_SLICED, require_size};
use running::RunningRedis;

/// Most commands in one request.
const MOST_PIPELINE: u32 = 64;
/// Largest value.
const MOST_SIZE: u64 = 64 * 1024 * 1024;
/// Most bytes of values in one request or its replies.
const MOST_AT_ONCE: u64 = 256 * 1024 * 1024;

/// Transports to a Redis of this machine; those in containers have the first two.
const WAYS: &[Transport] = &[Transport::Tcp, Transport::Unix, Transport::TcpRun];

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Redis,
    title: "Redis",
    examples: "redis://[USER:PASSWORD@]127.0.0.1:6379[/DB], redis+unix:///path[?db=DB] or a plain endpoint (tcp:127.0.0.1:6379, unix:/path)",
    hint: "",
};

/// The redis workload.
pub struct Redis;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Command>(
        "command",
        "What is asked. get, set and incr use keys `samehost:…`, set before the first trial and deleted after the last; ping writes nothing",
    ),
    Parameter {
        name: "pipeline",
        help: "Commands sent together, 1 to 64, a list (1,8,64) or a doubling range (1..64); each counts as an operation, and latency is that of them all",
        default: "1",
        kind: ParameterKind::Counts,
    },
    Parameter {
        name: "in",
        help: "Where the private server runs: on this machine, or in a podman container (root only) whose port is published by a bridge, by the proxy rootlesskit or by slirp4netns, or that has the machine's network; its socket is in a volume. Several (machine,podman-bridge) are points of their own",
        default: Place::WORDS[0],
        kind: ParameterKind::Choices(Place::WORDS),
    },
];

impl Workload for Redis {
    fn description(&self) -> Description {
        static ABOUT: LazyLock<String> = LazyLock::new(|| {
            let servers = samehost_services::Kind::Redis.relatives_in_words();
            format!("{servers}: GET, SET, INCR or PING, alone or in a pipeline; keys `samehost:…` only")
        });
        Description {
            name: "redis",
            about: &ABOUT,
            example: "redis --connections 1,64 --size 128",
            parameters: PARAMETERS,
        }
    }

    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        let mut url = FORMS.url(written)?;
        if let Some(url) = &mut url {
            // redis-py's name of it.
            if url.scheme == "unix" {
                url.scheme = "redis+unix".into();
            }
            let is_socket = url.scheme.ends_with("unix");
            if is_socket && url.options.iter().any(|(name, _)| name != "db") {
                return Err(FORMS.wrong("the only option after `?` is db"));
            }
        }
        let address = FORMS.address(written, url.as_ref())?;
        match &address.credentials.database {
            Some(name) if name.parse::<u32>().is_err() => {
                Err(FORMS.wrong(&format!("`{}` is not a database number", name.escape_debug())))
            }
            _ => Ok(address),
        }
    }

    fn complete(&self, servers: &Servers, wanted: &[Transport]) -> Result<Servers, BenchError> {
        complete(servers, wanted, dialogue::other_half)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&REDIS, self.name()))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let settings = Settings {
            command: parameters.word("command")?,
            pipeline: parameters.counts("pipeline", MOST_PIPELINE)?,
            place: parameters.list("in", Place::WORDS)?,
        };
        // A container's end of a connection has a network of its own, whose settings are not changed.
        let set = [CONGESTION, SOCKET_BUFFER].into_iter().find(|name| parameters.given(name).is_some());
        match set.filter(|_| settings.in_containers()) {
            Some(name) => {
                Err(BenchError::Usage(format!("--{name} cannot be set in a container; leave it out")))
            }
            None => Ok(Arc::new(settings)),
        }
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            transports: if self.in_containers() { &[Transport::Tcp, Transport::Unix] } else { WAYS },
            sizes: self.command.has_value().then_some("128"),
            foreign_servers: !self.in_containers(),
            ..Capabilities::REQUESTS
        }
    }

    fn most_sliced(&self) -> u32 {
        MOST_SLICED
    }

    fn title(&self) -> String {
        let command = self.command.word().to_ascii_uppercase();
        let asked = match self.pipeline.values.as_slice() {
            [1] => command,
            [many] => format!("{command}, {many} in a pipeline"),
            _ => format!("{command} in pipelines"),
        };
        match self.place.values.as_slice() {
            [Place::Machine] => asked,
            [one] => format!("{asked}, the server in {}", one.word()),
            _ => format!("{asked}, the server on this machine or in a container"),
        }
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        let pipeline = self.pipeline.at(point);
        let size = point.size_bytes.unwrap_or(0);
        require_size("--size", size, "redis", MOST_SIZE)?;
        if size * u64::from(pipeline) > MOST_AT_ONCE {
            return Err(BenchError::Usage(format!(
                "{pipeline} values of {size} bytes in one pipeline are more than {MOST_AT_ONCE} bytes; use a smaller --size or --pipeline"
            )));
        }
        Ok(())
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = request_metrics(open_loop);
        if self.place.values.iter().any(|place| place.has_proxy()) {
            add_proxy_metric(&mut metrics);
        }
        metrics
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        dialogue::look(self.command, look)
    }

    /// A container takes a second to start.
    fn starts(&self) -> Starts {
        if self.in_containers() { Starts::InTurn(DATABASES) } else { Starts::EachBlock }
    }

    fn network(&self, wanted: Wanted<'_>) -> Network {
        let starts_one = wanted.servers.is_empty() && self.in_containers();
        if starts_one { Network::OwnContainers } else { Network::Shared }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningRedis::start(self, start)?))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    command: Command,
    /// Commands in one request.
    pipeline: Axis<u32>,
    /// Where the private server runs.
    place: Axis<Place>,
}

impl Settings {
    fn in_containers(&self) -> bool {
        self.place.values.iter().any(|place| place.is_container())
    }
}

words! {
    /// What is asked.
    enum Command { Get = "get", Set = "set", Incr = "incr", Ping = "ping" }
}

impl Command {
    /// Whether it has a value of `--size` bytes.
    fn has_value(self) -> bool {
        matches!(self, Command::Get | Command::Set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    /// Endpoint, user, password and database number.
    fn given(transport: Transport, text: &str) -> Result<[String; 4], BenchError> {
        let address = Redis.address(&Written { transport, text, password: None })?;
        let login = address.credentials;
        let password = login.password.map(|password| password.reveal().to_owned());
        let parts = [login.user, password, login.database].map(Option::unwrap_or_default);
        let [user, password, database] = parts;
        Ok([address.endpoint.to_string(), user, password, database])
    }

    #[test]
    fn urls_are_read_as_clients_read_them() {
        let (tcp, unix) = ("tcp:127.0.0.1:6379", "unix:/run/redis.sock");
        for (transport, text, expected) in [
            (Transport::Tcp, "redis://127.0.0.1:6379", [tcp, "", "", ""]),
            (Transport::Tcp, "redis://127.0.0.1", [tcp, "", "", ""]),
            (Transport::Tcp, "redis://127.0.0.1:6379/3", [tcp, "", "", "3"]),
            (Transport::Tcp, "redis://bob:p%40ss:w%2Fd@127.0.0.1/2", [tcp, "bob", "p@ss:w/d", "2"]),
            (Transport::Tcp, "redis://:secret@[::1]:7000/", ["tcp:[::1]:7000", "", "secret", ""]),
            (Transport::Tcp, "redis://[::1]", ["tcp:[::1]:6379", "", "", ""]),
            (Transport::Unix, "redis+unix:///run/redis.sock?db=4", [unix, "", "", "4"]),
            (Transport::Unix, "unix://bob:x@/run/redis.sock?db=", [unix, "bob", "x", ""]),
            (Transport::Unix, unix, [unix, "", "", ""]),
            (Transport::Tcp, tcp, [tcp, "", "", ""]),
        ] {
            assert_eq!(given(transport, text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        assert_leads_everywhere(&["redis"], |text| {
            let read = given(Transport::Tcp, text).or_else(|_| given(Transport::Unix, text));
            read.map(|[endpoint, ..]| endpoint)
        });
    }

    #[test]
    fn wrong_ones_are_refused_without_their_secrets() {
        for (transport, text) in [
            (Transport::Tcp, "http://h"),
            (Transport::Tcp, "redis://:hunter2@127.0.0.1/x"),
            (Transport::Tcp, "rediss://:hunter2@h"),
            (Transport::Unix, "redis+unix://:hunter2@run/s"),
            (Transport::Unix, "redis+unix:///s?password=hunter2"),
            (Transport::Tcp, "redis://:hunter2%zz@h"),
            (Transport::Tcp, "hunter:6379"),
        ] {
            let error = given(transport, text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = given(Transport::Unix, "redis://:hunter2@127.0.0.1").unwrap_err().to_string();
        assert!(error.contains("--unix names") && !error.contains("hunter2"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(redis|redis\\+unix)://.{0,30}") {
            let _ = given(Transport::Tcp, &text);
        }
    }

    fn parameters(pipeline: &str) -> Parameters {
        let mut all = crate::workload::defaults(&Redis);
        all.insert("pipeline".into(), pipeline.into());
        all
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        fn check(size: u64, pipeline: &str) -> Result<(), BenchError> {
            let point = Point { connections: 1, size_bytes: Some(size), ..Point::default() };
            Redis.configure(&parameters(pipeline))?.check(&point, Transport::Tcp)
        }
        assert!(check(128, "64").is_ok());
        assert!(check(128, "65").is_err());
        assert!(check(MOST_SIZE, "1").is_ok());
        assert!(check(MOST_SIZE, "5").is_err());
        assert!(check(MOST_SIZE + 1, "1").is_err());
    }
}
