//! nginx in front of application servers: one matrix of the transport between them, the number of backends, and
//! HTTP/1.0 against HTTP/1.1 with persistent connections. The connection in front of nginx is the same for all.

mod condition;
mod running;

use std::collections::BTreeMap;

use samehost_model::{MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::private_servers::{BACKEND_NAMES, BackendKind, NGINX, backend_kind};
use crate::starts::Starts;
use crate::workload::{
    Capabilities, CheckupEntry, Instance, OpenOrClosed, Parameter, ParameterKind, Parameters, StartOptions,
    Workload,
};
use crate::workloads::requests::{MOST_SLICED, request_metrics};
use condition::Condition;
use running::RunningProxy;

/// Most backends of a condition: each is a process.
const MOST_BACKENDS: u32 = 16;
/// Largest reply.
const MOST_SIZE: u64 = 16 << 20;

/// The proxy workload.
pub struct Proxy;

impl Workload for Proxy {
    fn name(&self) -> &'static str {
        "proxy"
    }

    fn about(&self) -> &'static str {
        "nginx in front of Thin, Puma, gunicorn or the built-in server, in eight conditions"
    }

    fn example(&self) -> &'static str {
        "proxy --backend built-in --connections 1,64"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
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
                kind: ParameterKind::Choices(&["1.0", "1.1"]),
            },
            Parameter {
                name: "front",
                help: "Transport in front of nginx, which is the same for all",
                default: "unix",
                kind: ParameterKind::Choice(&["unix", "tcp"]),
            },
            Parameter {
                name: "workers",
                help: "Worker processes of nginx",
                default: "1",
                kind: ParameterKind::Count,
            },
        ]
    }

    fn axes(&self, _: &Parameters) -> Capabilities {
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix],
            connections: Some("1"),
            sizes: Some("4096"),
            rates: true,
            timed: true,
            foreign_servers: false,
            commands: false,
        }
    }

    fn most_sliced(&self, _: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        MOST_SLICED
    }

    fn title(&self, parameters: &Parameters) -> String {
        let backend = kind(parameters).map_or("its backends", |kind| kind.title);
        format!("the hop from nginx to {backend}, {} in front", parameters["front"])
    }

    fn metrics(&self, _: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
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

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        let condition = Condition::of(point, parameters)?;
        if condition.backends > MOST_BACKENDS {
            return Err(BenchError::Usage(format!(
                "--backends {}: each is a process; at most {MOST_BACKENDS}",
                condition.backends
            )));
        }
        match point.size_bytes {
            Some(size) if size > MOST_SIZE => Err(BenchError::Usage(format!(
                "--size {size} is too large for a page: at most {MOST_SIZE} bytes here"
            ))),
            _ => Ok(()),
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

    /// Two processes of the same program differ by more than the transports do, so several are used. Half a
    /// dozen Ruby or Python programs take seconds to start.
    fn starts(&self, parameters: &Parameters) -> Starts {
        let in_a_moment = kind(parameters).is_some_and(BackendKind::is_built_in);
        if in_a_moment { Starts::EachBlock } else { Starts::InTurn(4) }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningProxy::start(start)?))
    }
}

fn kind(parameters: &Parameters) -> Option<&'static BackendKind> {
    backend_kind(&parameters["backend"])
}
