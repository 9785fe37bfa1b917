//! nginx, Apache, HAProxy, Caddy or Envoy in front of application servers: one matrix of the transport between
//! them, the number of backends, and HTTP/1.0 against HTTP/1.1 with persistent connections. The transport in front is the
//! same for all, or a factor of its own. A condition of the matrix says what is in front and how it reaches its backends.

use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_model::{Arm, Endpoint, MetricInfo, Point, ServerInfo, Transport, Trial};

use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, Word, distinct};
use crate::private_servers::fronts::{self, ASKED, FrontSpec, Host, Passes, WHERE};
use crate::private_servers::{Account, BACKEND_NAMES, BackendKind, FrontKind, NGINX, PrivateServer};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, Description, Instance, MANY, OpenOrClosed,
    StartOptions, Starts, Workload, add_proxy_metric, request_metrics,
};
use crate::workloads::http::{Expected, Fetched, HttpConnector, RequestParts, Version, fetch, refusal};
use crate::workloads::requests::{MOST_SLICED, require_size};

/// Most backends of a condition: each is a process.
const MOST_BACKENDS: u32 = 16;
/// Largest reply.
const MOST_SIZE: u64 = 16 << 20;

/// The proxy workload.
pub struct Proxy;

impl Workload for Proxy {
    fn description(&self) -> Description {
        Description {
            name: "proxy",
            about: "Thin, Puma, gunicorn, uvicorn, Node, Tomcat or the built-in server behind a proxy",
            example: "proxy --backend built-in --connections 1,64",
            parameters: &[
                Parameter {
                    name: "backend",
                    help: "The application server behind",
                    default: "thin",
                    kind: ParameterKind::Choice(BACKEND_NAMES),
                },
                Parameter {
                    name: "backends",
                    help: "How many of them: a number, a list (1,4) or a doubling range (1..4)",
                    default: "1,4",
                    kind: ParameterKind::Counts,
                },
                Parameter {
                    name: "http",
                    help: "HTTP version to the backends: 1.0 with a connection for each request (1.1 and closed after it by HAProxy, Caddy and Envoy), 1.1 with connections that are kept, or both (1.0,1.1)",
                    default: "1.0,1.1",
                    kind: ParameterKind::Choices(VERSIONS),
                },
                Parameter {
                    name: "via",
                    help: "The server in front, or several as a factor of their own (nginx,apache)",
                    default: "nginx",
                    kind: ParameterKind::Choices(FrontKind::WORDS),
                },
                Parameter {
                    name: "front",
                    help: "Transport in front of that server: unix, tcp, or both as a factor of their own [default: unix; tcp with Apache, which listens on ports only]",
                    default: "",
                    kind: ParameterKind::Choices(FRONTS),
                },
                Parameter {
                    name: "workers",
                    help: "Workers of that server: processes of nginx and Apache, threads of HAProxy and Envoy, CPUs of Caddy",
                    default: "1",
                    kind: ParameterKind::Count,
                },
            ],
        }
    }

    fn propose(&self, parameters: &Parameters, _: &[u32]) -> Result<Parameters, BenchError> {
        completed(parameters)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Server {
            kind: &NGINX,
            parameters: &[("backend", "built-in"), ("backends", "1"), ("http", "1.1")],
            // The backend of a running nginx is not ours to change: only the hop in front of it can be measured.
            running: "http",
            trial: CHECKUP_TRIAL,
            many: MANY,
        })
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings::parse(parameters)?))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities { sizes: Some("4096"), foreign_servers: false, ..Capabilities::REQUESTS }
    }

    fn most_sliced(&self) -> u32 {
        MOST_SLICED
    }

    fn title(&self) -> String {
        let via: Vec<&str> = self.via.values.iter().map(|via| via.title()).collect();
        let front: Vec<&str> = self.front.values.iter().map(|front| front.name()).collect();
        let (via, front) = (via.join(" or "), front.join(" or "));
        format!("the hop from {via} to {}, {front} in front", self.backend.title)
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = request_metrics(open_loop);
        add_proxy_metric(&mut metrics);
        if open_loop == OpenOrClosed::Closed {
            // The published results are in requests per second.
            metrics.sort_by_key(|metric| !metric.is_rate_of_work());
        }
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        self.via.at(point).check_listens(self.front.at(point))?;
        let backends = self.backends.at(point);
        if backends > MOST_BACKENDS {
            return Err(BenchError::Usage(format!(
                "--backends {backends}: each is a process; at most {MOST_BACKENDS}"
            )));
        }
        require_size("--size", point.size_bytes.unwrap_or(0), "a page", MOST_SIZE)
    }

    /// Two processes of the same program differ by more than the transports do, so several are used. Half a
    /// dozen Ruby, Python or Java programs take seconds to start.
    fn starts(&self) -> Starts {
        if self.backend.is_built_in() { Starts::EachBlock } else { Starts::InTurn(4) }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningProxy::start(self, start)?))
    }
}

#[derive(Clone)]
struct Settings {
    backend: &'static BackendKind,
    backends: Axis<u32>,
    http: Axis<Version>,
    /// The server in front.
    via: Axis<FrontKind>,
    /// Transport in front of it.
    front: Axis<Transport>,
    workers: u32,
}

const VERSIONS: &[&str] = &["1.0", "1.1"];
const FRONTS: &[&str] = &["unix", "tcp"];

impl Settings {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        let parameters = completed(parameters)?;
        Ok(Settings {
            backend: parameters.one_of("backend", BACKEND_NAMES)?,
            backends: parameters.counts("backends", u32::MAX)?,
            http: parameters.list("http", VERSIONS)?,
            via: parameters.list("via", FrontKind::WORDS)?,
            front: parameters.list("front", FRONTS)?,
            workers: parameters.count("workers", u32::MAX)?,
        })
    }
}

/// The parameters with a transport that every server in front has.
fn completed(parameters: &Parameters) -> Result<Parameters, BenchError> {
    let mut parameters = parameters.clone();
    if parameters.given("front").is_none() {
        let via = parameters.list("via", FrontKind::WORDS)?;
        let is_ports_only = via.values.iter().any(|via: &FrontKind| via.ports_only().is_some());
        parameters.insert("front".into(), FRONTS[usize::from(is_ports_only)].into());
    }
    Ok(parameters)
}

/// Connections to the backends that the server in front keeps open, as in the published measurement.
const KEPT: u32 = 48;

/// How a server in front reaches its backends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    via: FrontKind,
    /// Transport behind the server in front.
    transport: Transport,
    backends: u32,
    http: Version,
}

impl Condition {
    /// The condition of a trial.
    fn of(arm: &Arm, settings: &Settings) -> Self {
        Condition {
            via: settings.via.at(&arm.point),
            transport: arm.transport,
            backends: settings.backends.at(&arm.point),
            http: settings.http.at(&arm.point),
        }
    }

    /// All conditions of a server in front, with these settings and transports.
    fn all(via: FrontKind, transports: &[Transport], settings: &Settings) -> Vec<Self> {
        let mut all = Vec::new();
        for transport in transports {
            for backends in &settings.backends.values {
                all.extend(settings.http.values.iter().map(|http| Condition {
                    via,
                    transport: *transport,
                    backends: *backends,
                    http: *http,
                }));
            }
        }
        distinct(all)
    }

    /// Name of the condition's host; all have the same length.
    fn host(number: usize) -> String {
        format!("condition{number:02}")
    }

    /// Its host in the configuration of the server in front.
    fn described<'a>(&self, number: usize, servers: Vec<&'a Endpoint>) -> Host<'a> {
        let kept = (self.http == Version::V11).then_some(KEPT);
        Host { name: Condition::host(number), servers, kept }
    }
}

// The servers in front and their backends during a measurement.

/// Requests to each fresh process before anything is measured: the first ones of Ruby are slow.
const WARM_UP: u32 = 40;
/// Bytes of a request, as in the published measurement.
const REQUEST: usize = 75;

/// A server in front, with a host for each of its conditions.
struct Front {
    server: PrivateServer,
    conditions: Vec<Condition>,
}

/// Servers in front, and their backends.
struct RunningProxy {
    // Dropped first: they stand in front.
    fronts: Vec<Front>,
    /// Processes by the transport they serve; those that listen on both are under the first.
    backends: BTreeMap<Transport, Vec<PrivateServer>>,
    settings: Settings,
    /// Condition of the current trial.
    current: Option<Condition>,
    /// What the server in front reports of the one that it asked.
    asked: String,
}

impl RunningProxy {
    fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        // Missing programs are reported before anything is started.
        settings.via.values.iter().try_for_each(|via| (via.descriptor().server.find)().map(drop))?;
        let most = settings.backends.values.iter().copied().max().unwrap_or(1);
        // One account for all: the servers in front must reach the backends' sockets.
        let account = Account::made()?;
        let backends = start_backends(settings.backend, account, start, most)?;
        let mut fronts = Vec::new();
        for via in &settings.via.values {
            let conditions = Condition::all(*via, &start.transports, settings);
            let hosts: Vec<Host<'_>> = conditions
                .iter()
                .enumerate()
                .map(|(number, condition)| condition.described(number, behind(&backends, condition)))
                .collect();
            let spec = FrontSpec {
                listens: &settings.front.values,
                connections: start.most_connections,
                workers: settings.workers,
                account,
                passes: Passes::Http(&hosts),
            };
            let server = fronts::start(*via, &start.program, &spec, |server| {
                server
                    .endpoints()
                    .try_for_each(|front| hosts.iter().try_for_each(|host| ask(front, &host.name)))
            })?;
            fronts.push(Front { server, conditions });
        }
        Ok(RunningProxy { fronts, backends, settings: settings.clone(), current: None, asked: String::new() })
    }

    /// The server in front in this condition, and the name of its host there.
    fn front(&self, wanted: &Condition) -> Option<(&PrivateServer, String)> {
        self.fronts.iter().find_map(|front| {
            let number = front.conditions.iter().position(|condition| condition == wanted)?;
            Some((&front.server, Condition::host(number)))
        })
    }

    /// Processes of the current condition, or all.
    fn backend_pids(&self) -> Vec<u32> {
        match &self.current {
            Some(condition) => {
                processes(&self.backends, condition).iter().map(|backend| backend.pid()).collect()
            }
            None => self.backends.values().flatten().map(PrivateServer::pid).collect(),
        }
    }
}

/// Starts as many processes as the largest condition needs, for each transport or for both, all at the same time.
fn start_backends(
    kind: &'static BackendKind,
    account: Option<Account>,
    start: &StartOptions,
    most: u32,
) -> Result<BTreeMap<Transport, Vec<PrivateServer>>, BenchError> {
    let mut transports = start.transports.clone();
    transports.sort_unstable();
    transports.dedup();
    let sets: Vec<Vec<Transport>> = if kind.listens_on_both {
        vec![transports]
    } else {
        transports.iter().map(|one| vec![*one]).collect()
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..most {
            for set in &sets {
                threads.push((
                    set,
                    scope.spawn(|| {
                        let backend = kind.start(account, &start.program, set, |backend| {
                            backend.endpoints().try_for_each(serves)
                        })?;
                        let endpoints: Vec<&Endpoint> = backend.endpoints().collect();
                        endpoints.iter().cycle().take(WARM_UP as usize).try_for_each(|one| serves(one))?;
                        Ok(backend)
                    }),
                ));
            }
        }
        let mut backends: BTreeMap<Transport, Vec<PrivateServer>> = BTreeMap::new();
        for (set, thread) in threads {
            let panicked =
                |_| Err(BenchError::io("starting a backend", std::io::Error::other("its thread panicked")));
            let backend = thread.join().unwrap_or_else(panicked)?;
            backends.entry(set[0]).or_default().push(backend);
        }
        Ok(backends)
    })
}

/// Checks that an endpoint serves the page.
fn ask(endpoint: &Endpoint, host: &str) -> Result<(), BenchError> {
    let Fetched { head, body, .. } = fetch(endpoint, &request("/bytes/64", host))?;
    match refusal(head.status) {
        None if body == http_body(64) => Ok(()),
        None => Err(BenchError::lost(endpoint, "another server answers there")),
        Some(kind) => Err(BenchError::lost(endpoint, kind)),
    }
}

fn serves(endpoint: &Endpoint) -> Result<(), BenchError> {
    ask(endpoint, "localhost")
}

fn request(target: &str, host: &str) -> Arc<[u8]> {
    let parts = RequestParts { length: REQUEST, ..RequestParts::get(target, host) };
    parts.bytes()
}

fn processes<'a>(
    backends: &'a BTreeMap<Transport, Vec<PrivateServer>>,
    condition: &Condition,
) -> Vec<&'a PrivateServer> {
    let set =
        backends.values().filter(|set| set.iter().any(|one| one.endpoint(condition.transport).is_some()));
    set.flatten().take(condition.backends as usize).collect()
}

/// Endpoints of a condition's backends.
fn behind<'a>(
    backends: &'a BTreeMap<Transport, Vec<PrivateServer>>,
    condition: &Condition,
) -> Vec<&'a Endpoint> {
    let processes = processes(backends, condition).into_iter();
    processes.filter_map(|backend| backend.endpoint(condition.transport)).collect()
}

impl Instance for RunningProxy {
    fn server(&self) -> ServerInfo {
        let how = if self.settings.backend.listens_on_both {
            "the same processes for both transports"
        } else {
            "processes for each transport (one cannot listen on both), started afresh for every block"
        };
        let via: Vec<&str> = self.settings.via.values.iter().map(|via| via.title()).collect();
        ServerInfo {
            kind: format!("{} and {}: {how}", via.join(", "), self.settings.backend.title),
            version: String::new(),
            managed: true,
            pids: self.backend_pids(),
        }
    }

    fn proxy_pids(&self) -> Vec<u32> {
        let current = self.current.as_ref().and_then(|current| self.front(current));
        match current {
            Some((server, _)) => vec![server.pid()],
            None => self.fronts.iter().map(|front| front.server.pid()).collect(),
        }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let wanted = Condition::of(arm, &self.settings);
        for backend in self.backends.values_mut().flatten() {
            if backend.has_ended() {
                return Err(BenchError::ServerLost {
                    endpoint: self.settings.backend.title.into(),
                    reason: format!("process {} behind {} has ended", backend.pid(), wanted.via.title()),
                    server_said: backend.stderr_tail(),
                });
            }
        }
        let (server, host) = self.front(&wanted).ok_or_else(|| {
            BenchError::Usage(format!(
                "{} has no configuration for {} (a fault of samehost)",
                wanted.via.title(),
                arm.id
            ))
        })?;
        let front = self.settings.front.at(&arm.point);
        let endpoint = server.endpoint(front).cloned().ok_or_else(|| server.failure("it has no listener"))?;
        let asked =
            fetch(&endpoint, &request(WHERE, &host))?.field(ASKED).ok_or_else(|| BenchError::ServerLost {
                endpoint: endpoint.to_string(),
                reason: format!(
                    "{} answers, and not with what stands behind it: a backend is gone",
                    wanted.via.title()
                ),
                server_said: self.stderr_tail(),
            })?;
        // Envoy gives the path alone.
        let is_unix = asked.starts_with("unix") || asked.starts_with('/');
        let asked = format!("{} says that it asks {asked}", wanted.via.title());
        if is_unix != (arm.transport == Transport::Unix) {
            return Err(BenchError::WrongTransport { asked: arm.transport, observed: asked });
        }
        self.asked = asked;
        self.current = Some(wanted);
        let size = arm.point.size_bytes.unwrap_or(4096);
        let connector = Arc::new(HttpConnector {
            endpoint,
            request: request(&format!("/bytes/{size}"), &host),
            pipeline: 1,
            expected: Expected::Bytes(http_body(usize::try_from(size).unwrap_or(usize::MAX)).into()),
        });
        Ok(Job::Sessions { connector, small: true })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.backends.values().flatten().find_map(|backend| backend.endpoint(transport)).cloned()
    }

    fn stderr_tail(&self) -> String {
        let backends = self.backends.values().flatten().map(PrivateServer::stderr_tail);
        let fronts = self.fronts.iter().map(|front| front.server.stderr_tail());
        let all: Vec<String> = fronts.chain(backends).collect();
        all.into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn add_observations(&mut self, trial: &mut Trial) {
        let Some(condition) = &self.current else { return };
        let front = condition.via.descriptor();
        trial.proxy_most_cpus = front.worker_is_one_cpu.then(|| f64::from(self.settings.workers));
        let each = self.settings.backend.most_cpus;
        trial.server_most_cpus = each.map(|each| f64::from(each * condition.backends));
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
