//! Cost of a new connection: connect, request, reply, close in a loop. Also the effect of a burst of connects
//! on a listener with a short backlog.
//!
//! The client closes first, as most clients do, so that TCP's TIME_WAIT stays on its side.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use samehost_login::ServerAddress;
use samehost_model::{Arm, Better, Endpoint, MetricInfo, Point, Transport, Trial};
use samehost_system::diag::Diag;
use samehost_transport::{ConnectOptions, TlsTrust, connect};

use crate::engine::Job;
use crate::engine::burst::BurstJob;
use crate::engine::session::{Bad, Caller, Seen};
use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Parameter, Parameters, Values, words};
use crate::private_servers::BuiltInSpec;
use crate::served::{Instance, Served, StartOptions};
use crate::workload::{Capabilities, Configured, Description, Look, OpenOrClosed, Workload, request_metrics};
use crate::workloads::foreign::crowding;
use crate::workloads::raw::EchoSession;
use crate::workloads::requests::{burst_metrics, connect_failure, prove, require_threads};

const REQUEST: &[u8] = b"samehost: one request on a new connection, and the same back....";

pub struct Connect;

struct Settings {
    burst: bool,
    backlog: u32,
    accept_delay: String,
}

/// How long a burst waits for its replies: a SYN that was dropped is sent again after one second and after three.
const PATIENCE: Duration = Duration::from_millis(3500);

words! {
    enum Pattern { Cycle = "cycle", Burst = "burst" }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Pattern>("pattern", "Connect–request–reply–close in a loop, or many connects at once"),
    Parameter::count(
        "backlog",
        "4096",
        "Connections that may wait to be accepted (the kernel allows net.core.somaxconn at most)",
    ),
    Parameter::duration("accept-delay", "1ms", "burst: the server's pause after each accept"),
];

impl Workload for Connect {
    fn description(&self) -> Description {
        Description {
            name: "connect",
            about: "A new connection for each request, or a burst of connects against a short backlog",
            example: "connect --pattern burst --connections 128 --backlog 16",
            parameters: PARAMETERS,
        }
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings {
            burst: parameters.word::<Pattern>("pattern")? == Pattern::Burst,
            backlog: parameters.count("backlog", u32::MAX)?,
            accept_delay: parameters.text("accept-delay"),
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        use Transport::{Abstract, Tcp, Tcp6, TcpTls, Unix};
        let burst = self.burst;
        Capabilities {
            transports: if burst {
                &[Tcp, Unix, Tcp6, Abstract]
            } else {
                &[Tcp, Unix, Tcp6, Abstract, TcpTls]
            },
            connections: Some(if burst { "128" } else { "1" }),
            rates: !burst,
            timed: !burst,
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        if self.burst {
            format!("burst of connects, backlog {}", self.backlog)
        } else {
            "connect, request, close".into()
        }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if self.burst {
            return burst_metrics();
        }
        let mut metrics = request_metrics(open_loop);
        metrics.push(MetricInfo::own("time_waits_left", "count", Better::Lower));
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        if self.burst { Ok(()) } else { require_threads("connect in a loop", point.connections) }
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        crowding(look, self.burst)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let mut arguments = vec!["--backlog".into(), self.backlog.to_string()];
        arguments.extend(if self.burst {
            ["--accept-delay".into(), self.accept_delay.clone()]
        } else {
            // A thread for each connection would cost more than the connection.
            ["--model".into(), "epoll".into()]
        });
        let spec = BuiltInSpec::new(&start.program, "echo", arguments);
        let (mut served, missing) = (Served::given(start), start.missing());
        if let Some(server) = spec.start(&missing)? {
            served.add(server, &missing);
        }
        Ok(Box::new(RunningConnect {
            served: served.called("a server that already runs", "samehost serve echo"),
            burst: self.burst,
            time_waits_before: 0,
            port: None,
        }))
    }
}

struct RunningConnect {
    served: Served,
    burst: bool,
    time_waits_before: u64,
    /// Server port of the current trial; `None` over transports without ports.
    port: Option<u16>,
}

impl Instance for RunningConnect {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (ServerAddress { endpoint, .. }, _) = self.served.begin(arm, "server")?;
        self.port = match &endpoint {
            Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. } => Some(*port),
            _ => None,
        };
        self.time_waits_before = self.port.map_or(0, time_waits);
        if self.burst {
            return Ok(Job::Burst(BurstJob {
                endpoint,
                connects: arm.point.connections,
                session: Box::new(|| Box::new(EchoSession::new(REQUEST.len()))),
                patience: PATIENCE,
            }));
        }
        let options = ConnectOptions { tls: TlsTrust::any_on_loopback(), ..ConnectOptions::default() };
        // Whether a server answers, and over which transport, is checked on one connection alone.
        let first = connect(&endpoint, &options)?;
        prove(&first, arm.transport)?;
        let seen = Seen::of_socket(&first);
        Job::callers(&endpoint, Some(seen), arm.point.connections, |_| {
            let (endpoint, options) = (endpoint.clone(), options.clone());
            Ok(Cycle { endpoint, options, reply: vec![0; REQUEST.len()] })
        })
    }

    fn finish_trial(&mut self, trial: &mut Trial) {
        let now = self.port.map_or(0, time_waits);
        let left = now.saturating_sub(self.time_waits_before);
        trial.measurements.insert("time_waits_left".into(), left as f64);
    }
}

/// Connections to or from this port in TIME_WAIT; 0 where the kernel cannot be asked.
fn time_waits(port: u16) -> u64 {
    let mut number = 0;
    let count = |local: SocketAddr, peer: SocketAddr, _| {
        number += u64::from(local.port() == port || peer.port() == port);
    };
    match Diag::open().and_then(|mut diag| diag.in_time_wait(count)) {
        Ok(()) => number,
        Err(_) => 0,
    }
}

/// Opens a new connection for each request. It is a caller with a thread of its own: in the engine's epoll loop a
/// session would have to do each handshake without I/O as well.
struct Cycle {
    endpoint: Endpoint,
    options: ConnectOptions,
    reply: Vec<u8>,
}

impl Caller for Cycle {
    fn call(&mut self) -> Result<(), Bad> {
        let mut stream = connect(&self.endpoint, &self.options)
            .map_err(|error| Bad::new(connect_failure(&error), error.to_string()))?;
        stream.write_all(REQUEST).map_err(|error| Bad::new("write failed", error.to_string()))?;
        stream.flush().map_err(|error| Bad::new("write failed", error.to_string()))?;
        stream.read_exact(&mut self.reply).map_err(|error| Bad::new("read failed", error.to_string()))?;
        if self.reply == REQUEST {
            Ok(())
        } else {
            Err(Bad::new("wrong echo", "the reply differs from the request"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn time_waits_are_counted_by_port() {
        // The kernel hands out ports that another test's server had a moment ago.
        let listener = std::iter::repeat_with(|| TcpListener::bind("127.0.0.1:0").unwrap())
            .take(1000)
            .find(|listener| time_waits(listener.local_addr().unwrap().port()) == 0)
            .expect("a port at which nobody waits");
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let server = listener.accept().unwrap().0;
        assert_eq!(time_waits(address.port()), 0);
        // The side that closes first waits.
        drop(client);
        drop(server);
        assert_eq!(time_waits(address.port()), 1);
    }
}
