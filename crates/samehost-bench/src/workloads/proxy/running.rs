//! nginx and its backends during a measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};

use super::Settings;
use super::condition::{ASKED, Condition, WHERE, front};
use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::private_servers::nginx::{self, NginxSpec};
use crate::private_servers::{Account, BackendKind, PrivateServer};
use crate::workload::{Instance, StartOptions};
use crate::workloads::http::{Expected, HttpConnector, RequestParts, fetch, fetch_field, refusal};

/// Requests to each fresh process before anything is measured: the first ones of Ruby are slow.
const WARM_UP: u32 = 40;
/// Bytes of a request, as in the published measurement.
const REQUEST: usize = 75;

/// nginx and its backends.
pub(super) struct RunningProxy {
    nginx: PrivateServer,
    front: Endpoint,
    /// Processes by the transport they serve; those that listen on both are under the first.
    backends: BTreeMap<Transport, Vec<PrivateServer>>,
    conditions: Vec<Condition>,
    settings: Settings,
    /// Condition of the current trial.
    current: Option<Condition>,
    /// PrivateServer that nginx reports.
    asked: String,
}

impl RunningProxy {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let conditions = Condition::all(&start.transports, settings);
        let most = conditions.iter().map(|condition| condition.backends).max().unwrap_or(1);
        // One account for all: nginx must reach their sockets.
        let account = Account::made()?;
        let backends = start_backends(settings.backend, account, start, most)?;
        let lines = |directory: &std::path::Path, port| {
            let (listen, _) = front(settings.front, directory, port);
            let lines = conditions.iter().enumerate().map(|(number, condition)| {
                condition.lines(
                    number,
                    if number == 0 { &listen } else { bare(&listen) },
                    &behind(&backends, condition),
                )
            });
            lines.collect::<String>()
        };
        let in_front = |directory: &std::path::Path, port| Some(front(settings.front, directory, port).1);
        let spec = NginxSpec {
            connections: start.most_connections,
            workers: settings.workers,
            account,
            http: &lines,
            front: &in_front,
        };
        let nginx = nginx::start(&start.program, &spec, |nginx| {
            let numbers = 0..conditions.len();
            nginx.endpoints().try_for_each(|front| {
                numbers.clone().try_for_each(|number| ask(front, &Condition::host(number)))
            })
        })?;
        let front = nginx.endpoints().next().cloned().ok_or_else(|| nginx.failure("it has no listener"))?;
        Ok(RunningProxy {
            nginx,
            front,
            backends,
            conditions,
            settings: settings.clone(),
            current: None,
            asked: String::new(),
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
                let start_one = || {
                    let serves = |endpoint: &Endpoint| ask(endpoint, "localhost");
                    let backend = kind.start(account, &start.program, set, |backend| {
                        backend.endpoints().try_for_each(serves)
                    })?;
                    let endpoints: Vec<&Endpoint> = backend.endpoints().collect();
                    endpoints.iter().cycle().take(WARM_UP as usize).try_for_each(|one| serves(one))?;
                    Ok(backend)
                };
                threads.push((set, scope.spawn(start_one)));
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
    let (head, body) = fetch(endpoint, &request("/bytes/64", host))?;
    match refusal(head.status) {
        None if body == http_body(64) => Ok(()),
        None => Err(BenchError::lost(endpoint, "another server answers there")),
        Some(kind) => Err(BenchError::lost(endpoint, kind)),
    }
}

fn request(target: &str, host: &str) -> Arc<[u8]> {
    let parts = RequestParts { length: REQUEST, ..RequestParts::get(target, host) };
    parts.bytes()
}

/// A `listen` may have options only at the first mention of its address.
fn bare(listen: &str) -> &str {
    listen.split(' ').next().unwrap_or_default()
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
        ServerInfo {
            kind: format!("nginx and {}: {how}", self.settings.backend.title),
            version: String::new(),
            managed: true,
            pids: self.backend_pids(),
        }
    }

    fn proxy_pids(&self) -> Vec<u32> {
        vec![self.nginx.pid()]
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let wanted = Condition::of(arm, &self.settings);
        let number = self.conditions.iter().position(|condition| *condition == wanted).ok_or_else(|| {
            BenchError::Usage(format!("nginx has no configuration for {} (a fault of samehost)", arm.id))
        })?;
        for backend in self.backends.values_mut().flatten() {
            if backend.has_ended() {
                return Err(BenchError::ServerLost {
                    endpoint: self.settings.backend.title.into(),
                    reason: format!("process {} behind nginx has ended", backend.pid()),
                    server_said: backend.stderr_tail(),
                });
            }
        }
        let asked = fetch_field(&self.front, &request(WHERE, &Condition::host(number)), ASKED)?;
        let Some(asked) = asked else {
            return Err(BenchError::ServerLost {
                endpoint: self.front.to_string(),
                reason: "nginx answers, and not with what stands behind it: a backend is gone".into(),
                server_said: self.stderr_tail(),
            });
        };
        self.asked = asked;
        let is_unix = self.asked.starts_with("unix:");
        if is_unix != (arm.transport == Transport::Unix) {
            return Err(BenchError::WrongTransport {
                asked: arm.transport,
                observed: format!("nginx says that it asked {}", self.asked),
            });
        }
        self.current = Some(wanted);
        let size = arm.point.size_bytes.unwrap_or(4096);
        let connector = Arc::new(HttpConnector {
            endpoint: self.front.clone(),
            request: request(&format!("/bytes/{size}"), &Condition::host(number)),
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
        let all: Vec<String> = std::iter::once(self.nginx.stderr_tail()).chain(backends).collect();
        all.into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn add_observations(&mut self, trial: &mut Trial) {
        let Some(condition) = &self.current else { return };
        trial.proxy_most_cpus = Some(f64::from(self.settings.workers));
        // Each backend works with one thread at a time.
        trial.server_most_cpus = Some(f64::from(condition.backends));
        // The kernel's evidence is about the connection in front, which is the same in every arm.
        trial.connection = None;
        if let Some(observed) = &mut trial.transport_observed {
            *observed = format!("in front {observed}; nginx says that it asks {}", self.asked);
        }
    }
}
