//! nginx in front of application servers: one matrix of the transport between them, the number of backends, and
//! HTTP/1.0 against HTTP/1.1 with persistent connections. The connection in front of nginx is the same for all.

mod condition;
mod running;

use std::sync::Arc;

use samehost_model::{MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values};
use crate::private_servers::{BACKEND_NAMES, BackendKind, NGINX};
use crate::starts::Starts;
use crate::workload::{
    Capabilities, CheckupEntry, Configured, Description, Instance, OpenOrClosed, StartOptions, Workload,
    request_metrics,
};
use crate::workloads::http::Version;
use crate::workloads::requests::MOST_SLICED;
use running::RunningProxy;

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
            about: "nginx in front of Thin, Puma, gunicorn or the built-in server, in eight conditions",
            example: "proxy --backend built-in --connections 1,64",
            parameters: &[
                Parameter {
                    name: "backend",
                    help: "The application server behind nginx",
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
                    help: "HTTP version between nginx and the backends: 1.0 with a connection for each request, 1.1 with `keepalive 48`, or both (1.0,1.1)",
                    default: "1.0,1.1",
                    kind: ParameterKind::Choices(VERSIONS),
                },
                Parameter {
                    name: "front",
                    help: "Transport in front of nginx, which is the same for all",
                    default: "unix",
                    kind: ParameterKind::Choice(FRONTS),
                },
                Parameter {
                    name: "workers",
                    help: "Worker processes of nginx",
                    default: "1",
                    kind: ParameterKind::Count,
                },
            ],
        }
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Server {
            kind: &NGINX,
            parameters: &[("backend", "built-in"), ("backends", "1"), ("http", "1.1")],
            // The backend of a running nginx is not ours to change: only the hop in front of it can be measured.
            running: "http",
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
        format!("the hop from nginx to {}, {} in front", self.backend.title, self.front)
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let mut metrics = request_metrics(open_loop);
        let at =
            metrics.iter().position(|metric| metric.name == "server_cpu_per_op").unwrap_or(metrics.len());
        metrics.insert(at, MetricInfo::built_in("proxy_cpu_per_op"));
        if open_loop == OpenOrClosed::Closed {
            // The published results are in requests per second.
            metrics.sort_by_key(|metric| !metric.is_rate_of_work());
        }
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        let backends = self.backends.at(point);
        if backends > MOST_BACKENDS {
            return Err(BenchError::Usage(format!(
                "--backends {backends}: each is a process; at most {MOST_BACKENDS}"
            )));
        }
        match point.size_bytes {
            Some(size) if size > MOST_SIZE => Err(BenchError::Usage(format!(
                "--size {size} is too large for a page: at most {MOST_SIZE} bytes here"
            ))),
            _ => Ok(()),
        }
    }

    /// Two processes of the same program differ by more than the transports do, so several are used. Half a
    /// dozen Ruby or Python programs take seconds to start.
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
    /// Transport in front of nginx.
    front: Transport,
    /// Worker processes of nginx.
    workers: u32,
}

const VERSIONS: &[&str] = &["1.0", "1.1"];
const FRONTS: &[&str] = &["unix", "tcp"];

impl Settings {
    fn parse(parameters: &Parameters) -> Result<Self, BenchError> {
        Ok(Settings {
            backend: parameters.one_of("backend", BACKEND_NAMES)?,
            backends: parameters.counts("backends", u32::MAX)?,
            http: parameters.list("http", VERSIONS)?,
            front: parameters.one_of("front", FRONTS)?,
            workers: parameters.count("workers", u32::MAX)?,
        })
    }
}
