//! The servers in front and their backends during a measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};

use super::{Condition, Settings};
use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::private_servers::fronts::{self, ASKED, FrontSpec, Host, Passes, WHERE};
use crate::private_servers::{Account, BackendKind, PrivateServer};
use crate::workload::{Instance, StartOptions};
use crate::workloads::http::{Expected, Fetched, HttpConnector, RequestParts, fetch, refusal};

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
pub(super) struct RunningProxy {
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
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
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
