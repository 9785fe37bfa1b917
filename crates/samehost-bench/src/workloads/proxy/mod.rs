//! nginx, Apache or HAProxy in front of application servers: one matrix of the transport between them, the
//! number of backends, and HTTP/1.0 against HTTP/1.1 with persistent connections. The transport in front is the same for
//! all, or a factor of its own. A condition of the matrix says what is in front and how it reaches its backends.
//!
//! All conditions exist at the same time, each as a virtual host of the server in front, so that its arms take turns
//! without a reload. What serves a trial is asked of the server in front, before the trial.

use samehost_system::threads;
use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_model::{Arm, Endpoint, MetricInfo, Point, Transport, Trial};

use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, Word, distinct};
use crate::private_servers::fronts::{self, ASKED, FrontSpec, Host, Passes, WHERE};
use crate::private_servers::{Account, BACKEND_NAMES, BackendKind, FrontKind, NGINX, PrivateServer};
use crate::served::{Instance, Served, StartOptions, stderr_tails};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, CheckupRows, Configured, Description, OpenOrClosed, Starts,
    Workload, request_metrics, with_proxy,
};
use crate::workloads::http::{Expected, Fetched, HttpSession, RequestParts, Version, fetch, refusal};
use crate::workloads::requests::{MAX_SLICED_CONNECTIONS, require_size};

/// Most backends of a condition: each is a process.
const MAX_BACKENDS: u32 = 16;
const MAX_PAGE_BYTES: u64 = 16 << 20;

pub struct Proxy;

const PARAMETERS: &[Parameter] = &[
    Parameter::choice("backend", BACKEND_NAMES, "The application server behind"),
    Parameter::counts(
        "backends",
        "1,4",
        "How many of them: a number, a list (1,4) or a doubling range (1..4)",
    ),
    Parameter {
        name: "http",
        help: "HTTP version to the backends: 1.0 with a connection for each request (1.1 and closed after it by HAProxy), 1.1 with connections that are kept, or both (1.0,1.1)",
        default: "1.0,1.1",
        kind: ParameterKind::Choices(VERSIONS),
    },
    Parameter::choices(
        "via",
        FrontKind::WORDS,
        "The server in front, or several as a factor of their own (nginx,apache)",
    ),
    Parameter {
        name: "front",
        help: "Transport in front of that server: unix, tcp, or both as a factor of their own [default: unix; tcp with Apache, which listens on ports only]",
        default: "",
        kind: ParameterKind::Choices(FRONTS),
    },
];

impl Workload for Proxy {
    fn description(&self) -> Description {
        Description {
            name: "proxy",
            about: "Thin, Puma, gunicorn, uvicorn, Node, Tomcat or the built-in server behind a proxy",
            example: "proxy --backend built-in --connections 1,64",
            parameters: PARAMETERS,
        }
    }

    fn propose(&self, parameters: &Parameters, _: &[u32]) -> Result<Parameters, BenchError> {
        completed(parameters)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Server {
            kind: &NGINX,
            parameters: &[("backend", "built-in"), ("backends", "1")],
            // The backend of a running nginx is not ours to change: only the hop in front of it can be measured.
            running: "http",
            trial: CHECKUP_TRIAL,
            // nginx opens a connection for each request unless it is configured to keep them. A foreign load generator had 30 % less
            // there and 11 % with kept ones; these rows had 14 and 15 %, on the same kind of machine another day.
            rows: CheckupRows::OneOfEach("http", &[("1.0", "a connection each"), ("1.1", "kept")]),
        })
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings::parse(parameters)?))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            sizes: Some("4096"),
            foreign_servers: false,
            most_sliced: MAX_SLICED_CONNECTIONS,
            // Two processes of the same program differ by more than the transports do, so several are used. Half a dozen
            // Ruby, Python or Java programs take seconds to start, so their blocks take turns on a few starts.
            starts: if self.backend.is_built_in() { Starts::EachBlock } else { Starts::InTurn(4) },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        let via = self.titles().join(" or ");
        let front: Vec<&str> = self.front.values.iter().map(|front| front.name()).collect();
        let front = front.join(" or ");
        format!("the hop from {via} to {}, {front} in front", self.backend.title)
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = with_proxy(request_metrics(open_loop));
        if open_loop == OpenOrClosed::Closed {
            // The published results are in requests per second.
            metrics.sort_by_key(|metric| !metric.is_rate_of_work());
        }
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        self.via.at(point).check_listens(self.front.at(point))?;
        let backends = self.backends.at(point);
        if backends > MAX_BACKENDS {
            return BenchError::refuse(format!(
                "--backends {backends}: each is a process; at most {MAX_BACKENDS}"
            ));
        }
        require_size("--size", point.size_bytes.unwrap_or(0), "a page", MAX_PAGE_BYTES)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        // Missing programs are reported before anything is started.
        for via in &self.via.values {
            via.find()?;
        }
        let most = self.backends.values.iter().copied().max().unwrap_or(1);
        // One account for all: the servers in front must reach the backends' sockets.
        let account = Account::made()?;
        let backends = start_backends(self.backend, account, start, most)?;
        let mut fronts = Vec::new();
        for via in &self.via.values {
            let conditions = Condition::all(*via, &start.transports, self);
            let mut hosts: Vec<Host<'_>> = Vec::new();
            for (number, condition) in conditions.iter().enumerate() {
                let kept = if condition.http == Version::V11 { Some(KEPT_CONNECTIONS) } else { None };
                let servers = behind(&backends, condition);
                hosts.push(Host { name: Condition::host(number), servers, kept });
            }
            let spec = FrontSpec {
                listens: &self.front.values,
                connections: start.most_connections,
                workers: 1,
                account,
                passes: Passes::Http(&hosts),
            };
            let server = fronts::start(*via, &start.program, &spec, |server| {
                for front in server.endpoints() {
                    for host in &hosts {
                        ask(front, &host.name)?;
                    }
                }
                Ok(())
            })?;
            fronts.push(Front { server, conditions });
        }
        let how = if self.backend.listens_on_both {
            "the same processes for both transports"
        } else {
            "processes for each transport (one cannot listen on both), started afresh for every block"
        };
        let via = self.titles().join(", ");
        let mut served = Served::default();
        served.info.kind = format!("{via} and {}: {how}", self.backend.title);
        served.info.managed = true;
        served.info.pids = backends.values().flatten().map(PrivateServer::pid).collect();
        served.proxy_pids = fronts.iter().map(|front| front.server.pid()).collect();
        Ok(Box::new(RunningProxy {
            fronts,
            served,
            backends,
            settings: self.clone(),
            current_condition: None,
            asked: String::new(),
        }))
    }
}

#[derive(Clone)]
struct Settings {
    backend: &'static BackendKind,
    backends: Axis<u32>,
    http: Axis<Version>,
    via: Axis<FrontKind>,
    front: Axis<Transport>,
}

const VERSIONS: &[&str] = &["1.0", "1.1"];
const FRONTS: &[&str] = &["unix", "tcp"];

impl Settings {
    fn titles(&self) -> Vec<&'static str> {
        self.via.values.iter().map(|via| via.title()).collect()
    }

    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        let parameters = completed(parameters)?;
        Ok(Settings {
            backend: parameters.one_of("backend", BACKEND_NAMES)?,
            backends: parameters.counts("backends", u32::MAX)?,
            http: parameters.list("http", VERSIONS)?,
            via: parameters.list("via", FrontKind::WORDS)?,
            front: parameters.list("front", FRONTS)?,
        })
    }
}

/// Fills in the transport in front, if none is given, with one that every chosen server has: Apache listens on ports
/// only.
fn completed(parameters: &Parameters) -> Result<Parameters, BenchError> {
    let mut parameters = parameters.clone();
    if parameters.given("front").is_none() {
        let via = parameters.list("via", FrontKind::WORDS)?;
        let is_ports_only = via.values.iter().any(|via: &FrontKind| via.ports_only().is_some());
        let front = if is_ports_only { "tcp" } else { "unix" };
        parameters.insert("front".into(), front.into());
    }
    Ok(parameters)
}

/// Connections to the backends that the server in front keeps open, as in the published measurement.
const KEPT_CONNECTIONS: u32 = 48;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    via: FrontKind,
    transport: Transport,
    backends: u32,
    http: Version,
}

impl Condition {
    fn for_arm(arm: &Arm, settings: &Settings) -> Self {
        Condition {
            via: settings.via.at(&arm.point),
            transport: arm.transport,
            backends: settings.backends.at(&arm.point),
            http: settings.http.at(&arm.point),
        }
    }

    fn all(via: FrontKind, transports: &[Transport], settings: &Settings) -> Vec<Self> {
        let mut all = Vec::new();
        for transport in transports {
            for backends in &settings.backends.values {
                for http in &settings.http.values {
                    all.push(Condition { via, transport: *transport, backends: *backends, http: *http });
                }
            }
        }
        distinct(all)
    }

    /// Name of the condition's virtual host; all have the same length, and so have the requests.
    fn host(number: usize) -> String {
        format!("condition{number:02}")
    }
}

/// Requests to each fresh process before anything is measured: the first ones of Ruby are slow.
const WARM_UP_REQUESTS: u32 = 40;
/// Bytes of a request, as in the published measurement.
const REQUEST_BYTES: usize = 75;

struct Front {
    server: PrivateServer,
    /// The conditions that it has a virtual host for: the first one's number is 0.
    conditions: Vec<Condition>,
}

/// Processes of a backend by the transport that they serve; those that listen on both are under the first.
type Backends = BTreeMap<Transport, Vec<PrivateServer>>;

struct RunningProxy {
    // Dropped first: they stand in front.
    fronts: Vec<Front>,
    backends: Backends,
    /// Before the first trial the processes of all, and then those of its condition.
    served: Served,
    settings: Settings,
    current_condition: Option<Condition>,
    /// The server in front's own word on which backend it asked, for the evidence.
    asked: String,
}

impl RunningProxy {
    fn front(&self, wanted: &Condition) -> Option<(&PrivateServer, String)> {
        for front in &self.fronts {
            if let Some(number) = front.conditions.iter().position(|condition| condition == wanted) {
                return Some((&front.server, Condition::host(number)));
            }
        }
        None
    }
}

/// Starts as many processes as the largest condition needs, for each transport or for both, all at the same time, as
/// each may take seconds.
fn start_backends(
    kind: &'static BackendKind,
    account: Option<Account>,
    start: &StartOptions,
    most: u32,
) -> Result<Backends, BenchError> {
    let mut transports = start.transports.clone();
    transports.sort_unstable();
    transports.dedup();
    let sets: Vec<&[Transport]> =
        if kind.listens_on_both { vec![&transports] } else { transports.chunks(1).collect() };
    let sets = &sets;
    let wanted = (0..most).flat_map(|_| sets.iter());
    let started = threads::all(wanted.map(|set| move || (set[0], start_backend(kind, account, start, set))));
    let mut backends = Backends::new();
    for (first, started) in started {
        backends.entry(first).or_default().push(started?);
    }
    Ok(backends)
}

fn start_backend(
    kind: &'static BackendKind,
    account: Option<Account>,
    start: &StartOptions,
    transports: &[Transport],
) -> Result<PrivateServer, BenchError> {
    let backend =
        kind.start(account, &start.program, transports, |backend| backend.endpoints().try_for_each(serves))?;
    let endpoints: Vec<&Endpoint> = backend.endpoints().collect();
    for endpoint in endpoints.iter().cycle().take(WARM_UP_REQUESTS as usize) {
        serves(endpoint)?;
    }
    Ok(backend)
}

fn ask(endpoint: &Endpoint, host: &str) -> Result<(), BenchError> {
    let Fetched { head, body, .. } = fetch(endpoint, &request("/bytes/64", host))?;
    match refusal(head.status) {
        None if body.begins == http_body(64) => Ok(()),
        None => Err(BenchError::lost(endpoint, "another server answers there")),
        Some(kind) => Err(BenchError::lost(endpoint, kind)),
    }
}

fn serves(endpoint: &Endpoint) -> Result<(), BenchError> {
    ask(endpoint, "localhost")
}

fn request(target: &str, host: &str) -> Arc<[u8]> {
    RequestParts { length: REQUEST_BYTES, ..RequestParts::get(target, host) }.bytes()
}

/// The processes that serve a condition: the first of those that listen on its transport.
fn processes<'a>(backends: &'a Backends, condition: &Condition) -> Vec<&'a PrivateServer> {
    let mut processes: Vec<&PrivateServer> = backends.values().flatten().collect();
    processes.retain(|backend| backend.endpoint(condition.transport).is_some());
    processes.truncate(condition.backends as usize);
    processes
}

fn behind<'a>(backends: &'a Backends, condition: &Condition) -> Vec<&'a Endpoint> {
    let processes = processes(backends, condition);
    processes.iter().flat_map(|backend| backend.endpoint(condition.transport)).collect()
}

impl Instance for RunningProxy {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let wanted = Condition::for_arm(arm, &self.settings);
        for backend in self.backends.values_mut().flatten() {
            if backend.has_ended() {
                return Err(BenchError::ServerLost {
                    endpoint: self.settings.backend.title.into(),
                    reason: format!("process {} behind {} has ended", backend.pid(), wanted.via.title()),
                    server_said: backend.stderr_tail(),
                });
            }
        }
        let title = wanted.via.title();
        let Some((server, host)) = self.front(&wanted) else {
            return BenchError::refuse(format!(
                "{title} has no configuration for {} (a fault of samehost)",
                arm.id
            ));
        };
        let front_pid = server.pid();
        let front = self.settings.front.at(&arm.point);
        let Some(endpoint) = server.endpoint(front).cloned() else {
            return Err(server.failure("it has no listener"));
        };
        let Some(asked) = fetch(&endpoint, &request(WHERE, &host))?.field(ASKED) else {
            return Err(BenchError::ServerLost {
                endpoint: endpoint.to_string(),
                reason: format!("{title} answers, and not with what stands behind it: a backend is gone"),
                server_said: self.stderr_tail(),
            });
        };
        let is_unix = asked.starts_with("unix");
        let asked = format!("{title} says that it asks {asked}");
        if is_unix != (arm.transport == Transport::Unix) {
            return Err(BenchError::WrongTransport { asked: arm.transport, observed: asked });
        }
        self.asked = asked;
        self.served.info.pids =
            processes(&self.backends, &wanted).iter().map(|backend| backend.pid()).collect();
        self.served.proxy_pids = vec![front_pid];
        self.current_condition = Some(wanted);
        let size = arm.point.size_bytes.unwrap_or(4096);
        let expected = Expected::Bytes(http_body(usize::try_from(size).unwrap_or(usize::MAX)).into());
        Ok(HttpSession::job(endpoint, request(&format!("/bytes/{size}"), &host), 1, expected))
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.backends.values().flatten().find_map(|backend| backend.endpoint(transport)).cloned()
    }

    fn stderr_tail(&self) -> String {
        stderr_tails(self.fronts.iter().map(|front| &front.server).chain(self.backends.values().flatten()))
    }

    fn add_observations(&mut self, trial: &mut Trial) {
        let Some(condition) = &self.current_condition else { return };
        let front = condition.via.descriptor();
        if front.worker_is_one_cpu {
            trial.proxy_most_cpus = Some(1.0);
        }
        if let Some(each) = self.settings.backend.most_cpus {
            trial.server_most_cpus = Some(f64::from(each * condition.backends));
        }
        // The kernel's evidence is about the connection in front, which is the same in every arm.
        trial.connection = None;
        if let Some(observed) = &mut trial.transport_observed {
            *observed = format!("in front {observed}; {}", self.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchError;

    fn settings(backends: &str, http: &str) -> Result<Settings, BenchError> {
        let mut parameters = crate::workload::defaults(&Proxy);
        parameters.extend([("backends".into(), backends.into()), ("http".into(), http.into())]);
        Settings::parse(&parameters)
    }

    #[test]
    fn the_published_matrix_has_eight() {
        let both = [Transport::Tcp, Transport::Unix];
        let all = Condition::all(FrontKind::Nginx, &both, &settings("1,4", "1.0,1.1").unwrap());
        assert_eq!(all.len(), 8);
        let first =
            Condition { via: FrontKind::Nginx, transport: Transport::Tcp, backends: 1, http: Version::V10 };
        assert_eq!(all[0], first);
        assert!(settings("0", "1.0").is_err());
        let twice = [Transport::Unix, Transport::Unix];
        assert_eq!(Condition::all(FrontKind::Nginx, &twice, &settings("1", "1.1").unwrap()).len(), 1);
    }
}
