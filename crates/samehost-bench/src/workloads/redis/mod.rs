//! Redis and servers that behave like it: GET, SET, INCR and PING, one at a time or in a pipeline, against a private
//! server or one that is already running. Keys have a prefix of our own, are set before the first trial and deleted
//! after the last. A private server runs on this machine or in a container.
//!
//! To write a workload with a server, read this file: `Redis` names its parameters, `Settings` says what a point may be, and
//! `RunningRedis` makes the job of each trial, with what opens its connections.

mod dialogue;
mod session;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, MetricInfo, Point, Transport};
use samehost_services::Kind;
use samehost_system::interrupt;

use crate::engine::Job;
use crate::engine::session::Connector;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::Network;
use crate::parameters::{Axis, Parameter, Parameters, Values, Word, words};
use crate::private_servers::podman::{Inside, Place};
use crate::private_servers::{REDIS, random_hex, start_redis};
use crate::served::{Instance, Served, Servers, StartOptions};
use crate::socket_options::{CONGESTION, SOCKET_BUFFER};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, DATABASES, Description, Look, MANY, OpenOrClosed,
    Starts, Wanted, Workload, Written, request_metrics, with_proxy,
};
use crate::workloads::foreign::{Forms, complete};
use crate::workloads::requests::{MAX_SLICED_CONNECTIONS, apart, opener, require_size, size_of, value};
use dialogue::{Dialogue, begin, is_ours, measured};
use session::{Exchange, RedisSession};

const MAX_PIPELINE_COMMANDS: u32 = 64;
const MAX_VALUE_BYTES: u64 = 64 * 1024 * 1024;
/// Most bytes of all values in one request, or in its replies.
const MAX_BYTES_AT_ONCE: u64 = 256 * 1024 * 1024;

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Redis,
    title: "Redis",
    examples: "redis://[USER:PASSWORD@]127.0.0.1:6379[/DB], redis+unix:///path[?db=DB] or a plain endpoint (tcp:127.0.0.1:6379, unix:/path)",
    hint: "",
};

pub struct Redis;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Command>(
        "command",
        "What is asked. get, set and incr use keys `samehost:…`, set before the first trial and deleted after the last; ping writes nothing",
    ),
    Parameter::counts(
        "pipeline",
        "1",
        "Commands sent together, 1 to 64, a list (1,8,64) or a doubling range (1..64); each counts as an operation, and latency is that of them all",
    ),
    Parameter::choices(
        "in",
        Place::WORDS,
        "Where the private server runs: on this machine, or in a podman container (root only) whose port is published by a bridge, by the proxy rootlesskit or by slirp4netns, or that has the machine's network; its socket is in a volume. Several (machine,podman-bridge) are points of their own",
    ),
];

impl Workload for Redis {
    fn description(&self) -> Description {
        static ABOUT: LazyLock<String> = LazyLock::new(|| {
            let servers = Kind::Redis.relatives_in_words();
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
        Some(CheckupEntry::server(&REDIS, self.name(), CHECKUP_TRIAL, MANY))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let settings = Settings {
            command: parameters.word("command")?,
            pipeline: parameters.counts("pipeline", MAX_PIPELINE_COMMANDS)?,
            place: parameters.list("in", Place::WORDS)?,
        };
        // A container's end of a connection has a network of its own, whose settings are not changed.
        for name in [CONGESTION, SOCKET_BUFFER] {
            if settings.in_containers() && parameters.given(name).is_some() {
                return BenchError::refuse(format!("--{name} cannot be set in a container; leave it out"));
            }
        }
        Ok(Arc::new(settings))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        use Transport::{Tcp, TcpRun, Unix};
        Capabilities {
            transports: if self.in_containers() { &[Tcp, Unix] } else { &[Tcp, Unix, TcpRun] },
            sizes: if matches!(self.command, Command::Get | Command::Set) { Some("128") } else { None },
            foreign_servers: !self.in_containers(),
            most_sliced: MAX_SLICED_CONNECTIONS,
            // A container takes a second to start.
            starts: if self.in_containers() { Starts::InTurn(DATABASES) } else { Starts::EachBlock },
            ..Capabilities::REQUESTS
        }
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
        require_size("--size", size, "redis", MAX_VALUE_BYTES)?;
        if size * u64::from(pipeline) > MAX_BYTES_AT_ONCE {
            return BenchError::refuse(format!(
                "{pipeline} values of {size} bytes in one pipeline are more than {MAX_BYTES_AT_ONCE} bytes; use a smaller --size or --pipeline"
            ));
        }
        Ok(())
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let metrics = request_metrics(open_loop);
        let has_proxy = self.place.values.iter().any(|place| place.has_proxy());
        if has_proxy { with_proxy(metrics) } else { metrics }
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        dialogue::look(self.command, look)
    }

    fn network(&self, wanted: Wanted<'_>) -> Network {
        let starts_one = wanted.servers.is_empty() && self.in_containers();
        if starts_one { Network::OwnContainers } else { Network::Shared }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let mut places = Vec::new();
        if start.needs_private()? {
            // A program that is missing is reported before anything is started.
            for place in &self.place.values {
                place.check()?;
            }
            for place in &self.place.values {
                places.push((*place, private(*place, start)?));
            }
        } else {
            places.push((Place::Machine, Served::given(start)));
        }
        let (mut identities, mut containers) = (Vec::new(), Vec::new());
        for (place, served) in &places {
            for address in served.addresses.values() {
                identities.push(begin(address)?.identity()?);
            }
            if place.is_container() {
                containers.push(place.described()?);
            }
        }
        let differ = !places[0].1.is_private()
            && identities.iter().any(|identity| identity.run_id != identities[0].run_id);
        let first = identities.into_iter().next().unwrap_or_default();
        let name = first.kind.unwrap_or(Kind::Redis).name();
        let kind = match containers.as_slice() {
            _ if differ => format!("{name}, {}", apart("process")),
            [] => name.to_owned(),
            some => format!("{name} in a container ({})", some.join("; ")),
        };
        for (_, served) in &mut places {
            served.info.kind.clone_from(&kind);
            served.info.version.clone_from(&first.version);
        }
        Ok(Box::new(RunningRedis {
            places,
            current: 0,
            differ,
            settings: self.clone(),
            prefix: format!("samehost:{}:", random_hex(8)?),
            keys: BTreeSet::new(),
            counters: Arc::default(),
            most_counters: 0,
            open: Vec::new(),
        }))
    }
}

/// Starts a private server in this place.
fn private(place: Place, start: &StartOptions) -> Result<Served, BenchError> {
    let server = start_redis(place, &start.program, start.most_connections, |server| is_ours(server, place))?
        .reached_by_run(&start.program, &start.transports)?;
    let mut served = Served::default();
    let inside = if place.is_container() {
        let inside = Inside::find(server.pid(), &REDIS.find()?);
        if inside.server.is_empty() {
            return Err(server.failure("its process is not among podman's"));
        }
        inside
    } else {
        Inside { server: vec![server.pid()], proxies: Vec::new() }
    };
    served.add(server, &start.transports);
    served.info.pids = inside.server;
    served.proxy_pids = inside.proxies;
    Ok(served)
}

#[derive(Clone, Debug)]
struct Settings {
    command: Command,
    pipeline: Axis<u32>,
    place: Axis<Place>,
}

impl Settings {
    fn in_containers(&self) -> bool {
        self.place.values.iter().any(|place| place.is_container())
    }
}

words! {
    enum Command { Get = "get", Set = "set", Incr = "incr", Ping = "ping" }
}

struct RunningRedis {
    /// The private server in each place, or the given ones as one.
    places: Vec<(Place, Served)>,
    current: usize,
    settings: Settings,
    differ: bool,
    /// Begins the names of all our keys; random, so that two measurements of one server do not meet.
    prefix: String,
    /// Keys that we set, besides the counters; they are deleted at the end in a server that is not ours.
    keys: BTreeSet<String>,
    counters: Arc<AtomicU32>,
    /// The most counters that were in use at once, which all have to be deleted.
    most_counters: u32,
    /// Connectors of earlier jobs; gone when their connections are closed.
    open: Vec<Weak<dyn Connector>>,
}

impl RunningRedis {
    /// Makes the request of a trial and its replies, and sets its key in the arm's server: the first request finds it, and
    /// the reply that all others are compared with is known without asking for it.
    fn asked(&mut self, arm: &Arm, dialogue: &mut Dialogue) -> Result<Asked, BenchError> {
        let pipeline = self.settings.pipeline.at(&arm.point);
        let size = size_of(arm);
        let key = format!("{}{size}", self.prefix);
        Ok(Asked::Same(match self.settings.command {
            Command::Incr => {
                // Arms of a round have their connections open at the same time, so each connection takes the next one.
                let (prefix, next) = (format!("{}counter:", self.prefix), Arc::clone(&self.counters));
                return Ok(Asked::Counters { prefix, pipeline, next });
            }
            Command::Ping => {
                dialogue.must("PING", &[b"PING"])?;
                Exchange::new(&[b"PING"], pipeline, (b"+PONG\r\n", b"", b""))
            }
            Command::Get | Command::Set => {
                let value = value(size);
                self.keys.insert(key.clone());
                dialogue.must("setting a key", &[b"SET", key.as_bytes(), &value])?;
                if self.settings.command == Command::Set {
                    Exchange::new(&[b"SET", key.as_bytes(), &value], pipeline, (b"+OK\r\n", b"", b""))
                } else {
                    let head = format!("${size}\r\n");
                    Exchange::new(&[b"GET", key.as_bytes()], pipeline, (head.as_bytes(), &value, b"\r\n"))
                }
            }
        }))
    }

    fn delete_keys(&self) -> Result<(), BenchError> {
        let mut keys: Vec<String> = self.keys.iter().cloned().collect();
        let most = self.most_counters.max(self.counters.load(Ordering::Relaxed));
        for number in 0..most {
            keys.push(format!("{}counter:{number}", self.prefix));
        }
        if keys.is_empty() {
            return Ok(());
        }
        // A server has one set of keys, over whichever transport.
        let addresses = &self.served().addresses;
        let places = if self.differ { addresses.len() } else { 1 };
        for address in addresses.values().take(places) {
            let mut dialogue = begin(address)?;
            for some in keys.chunks(500) {
                let mut words: Vec<&[u8]> = vec![b"DEL"];
                words.extend(some.iter().map(String::as_bytes));
                dialogue.must("deleting our keys", &words)?;
            }
        }
        Ok(())
    }
}

impl Drop for RunningRedis {
    fn drop(&mut self) {
        if !self.served().is_private()
            && let Err(error) = interrupt::putting_right(|| self.delete_keys())
        {
            tracing::warn!(
                "keys {}* could not be deleted: {error}; `redis-cli --scan --pattern '{}*' | xargs redis-cli del` does it",
                self.prefix,
                self.prefix
            );
        }
    }
}

impl Instance for RunningRedis {
    fn served(&self) -> &Served {
        &self.places[self.current].1
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let place = self.settings.place.at(&arm.point);
        self.current = self.places.iter().position(|(known, _)| *known == place).unwrap_or(0);
        let (address, view) = self.places[self.current].1.begin(arm, "Redis")?;
        let mut dialogue = begin(&address)?;
        // Counters whose connections are closed are free again. Those of a round's arms are in use at the same time.
        self.open.retain(|connector| connector.strong_count() > 0);
        if self.open.is_empty() {
            self.most_counters = self.most_counters.max(self.counters.swap(0, Ordering::Relaxed));
        }
        let asked = self.asked(arm, &mut dialogue)?;
        let connector = opener(&address.endpoint.clone(), move || {
            let mut dialogue = measured(&address)?;
            view.of_first(|| dialogue::view(&mut dialogue))?;
            let exchange = asked.exchange(&mut dialogue)?;
            Ok((dialogue.into_link().into_stream()?, Box::new(RedisSession::new(exchange))))
        });
        self.open.push(Arc::downgrade(&connector));
        Ok(Job::Sessions { connector, small: true })
    }

    /// None that all points have where the server is in several places.
    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        let [(_, one)] = self.places.as_slice() else { return None };
        one.endpoint(transport)
    }
}

enum Asked {
    Same(Exchange),
    /// Each connection counts up a key of its own, so that it knows every number beforehand.
    Counters {
        prefix: String,
        pipeline: u32,
        next: Arc<AtomicU32>,
    },
}

impl Asked {
    /// What a new connection exchanges, once its counter is set.
    fn exchange(&self, dialogue: &mut Dialogue) -> Result<Exchange, BenchError> {
        match self {
            Asked::Same(exchange) => Ok(exchange.clone()),
            Asked::Counters { prefix, pipeline, next } => {
                let key = format!("{prefix}{}", next.fetch_add(1, Ordering::Relaxed));
                dialogue.must("setting a counter", &[b"SET", key.as_bytes(), b"0"])?;
                Ok(Exchange::counting(&[b"INCR", key.as_bytes()], *pipeline))
            }
        }
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
        assert!(check(MAX_VALUE_BYTES, "1").is_ok());
        assert!(check(MAX_VALUE_BYTES, "5").is_err());
        assert!(check(MAX_VALUE_BYTES + 1, "1").is_err());
    }
}
