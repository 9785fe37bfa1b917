//! nginx, Apache, HAProxy, Caddy or Envoy in front of application servers: one matrix of the transport between
//! them, the number of backends, and HTTP/1.0 against HTTP/1.1 with persistent connections. The transport in front is the
//! same for all, or a factor of its own. A condition of the matrix says what is in front and how it reaches its backends.

use std::sync::Arc;

use samehost_model::{Arm, Endpoint, MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::parameters::distinct;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, Word};
use crate::private_servers::fronts::Host;
use crate::private_servers::{BACKEND_NAMES, BackendKind, FrontKind, NGINX};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, Description, Instance, MANY, OpenOrClosed,
    StartOptions, Starts, Workload, add_proxy_metric, request_metrics,
};
use crate::workloads::http::Version;
use crate::workloads::requests::{MOST_SLICED, require_size};
use running::RunningProxy;

mod running;

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
