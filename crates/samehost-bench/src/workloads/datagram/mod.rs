//! Datagrams that nobody acknowledges, as statsd, dogstatsd and syslog clients send them: UDP on loopback against a
//! Unix datagram socket. What counts is what arrives.
//!
//! A full queue is where the two differ. UDP says nothing: the kernel drops the datagram at the receiver's socket, and
//! `send` succeeds. A Unix datagram socket tells its sender: a blocking `send` waits for room, a nonblocking one is
//! refused with EAGAIN, and most clients then throw the metric away. So every metric has one of three fates: it
//! arrived (counted by the receiver), it was refused (counted by the sender), or it was lost (sent, and never counted
//! by the receiver). The shares are of the whole trial, its warm-up included, because the receiver knows no window.

mod receiver;
mod running;

use std::sync::Arc;

use samehost_model::{Better, MetricInfo, Point, Transport, metric};

use crate::error::BenchError;
use crate::parameters::{Axis, Parameter, ParameterKind, Parameters, Values, Word, words};
use crate::workload::{
    Capabilities, Configured, Description, Instance, OpenOrClosed, StartOptions, Workload,
};
use running::RunningDatagrams;

/// The most bytes of a UDP datagram over IPv4.
const MOST_SIZE: u64 = 65_507;
/// The fewest bytes of a metric: a name of one letter.
const LEAST_SIZE: u64 = 5;
/// Each sender is a thread.
const MOST_SENDERS: u32 = 1024;

/// The datagram workload.
pub struct Datagram;

words! {
    /// What a sender does when the receiver's queue is full.
    enum Sending {
        /// It waits in `send`.
        Blocking = "blocking",
        /// It passes `MSG_DONTWAIT`, and goes on with the next metric if it is refused.
        Nonblocking = "nonblocking",
    }

    /// Who receives.
    enum ServerName {
        /// `samehost serve datagrams`, which counts and does nothing else.
        BuiltIn = "built-in",
        Rsyslog = "rsyslog",
    }

    /// How a sender names the receiver.
    enum Naming {
        /// Once, with `connect`.
        Connected = "connected",
        /// In each `sendto`.
        Unconnected = "unconnected",
    }
}

const SEND: &str = "send";
const SOCKET: &str = "socket";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: SEND,
        help: "What a sender does when the receiver's queue is full: wait, or be refused (EAGAIN) and go on",
        default: Sending::WORDS[0],
        kind: ParameterKind::Choices(Sending::WORDS),
    },
    Parameter {
        name: SOCKET,
        help: "Connect the sender's socket once, or name the receiver in each sendto, as many clients do",
        default: Naming::WORDS[0],
        kind: ParameterKind::Choices(Naming::WORDS),
    },
    Parameter::word::<ServerName>(
        "server",
        "Who receives: a built-in counter, or a private rsyslog that parses, queues and writes a byte a message",
    ),
    Parameter {
        name: "work",
        help: "CPU time that the receiver spends on each datagram, to play one that parses and counts (2us)",
        default: "",
        kind: ParameterKind::Duration,
    },
];

impl Workload for Datagram {
    fn description(&self) -> Description {
        Description {
            name: "datagram",
            about: "Metrics in datagrams (statsd, syslog): rate, loss, CPU time, the cost of a send",
            example: "datagram --connections 1,8 --send blocking,nonblocking",
            parameters: PARAMETERS,
        }
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        parameters.duration("work")?;
        let server = parameters.word("server")?;
        let work = parameters.given("work");
        if work.is_some() && server != ServerName::BuiltIn {
            return Err(BenchError::Usage(
                "--work is for --server built-in: a real one does its own work".into(),
            ));
        }
        Ok(Arc::new(Settings {
            server,
            sending: parameters.list(SEND, Sending::WORDS)?,
            naming: parameters.list(SOCKET, Naming::WORDS)?,
            work,
        }))
    }
}

#[derive(Clone)]
struct Settings {
    server: ServerName,
    sending: Axis<Sending>,
    naming: Axis<Naming>,
    work: Option<String>,
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities {
            transports: &Transport::DATAGRAM,
            sizes: Some("64"),
            foreign_servers: false,
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        match (self.sending.values.as_slice(), self.naming.values.as_slice()) {
            ([sending], [naming]) => format!("metrics, {} {} senders", sending.word(), naming.word()),
            ([sending], _) => format!("metrics, {} senders", sending.word()),
            (_, [naming]) => format!("metrics, {} senders", naming.word()),
            _ => "metrics".into(),
        }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        let own = MetricInfo::own;
        let arrived = own("arrived_percent", "percent", Better::Higher);
        let cpu = metric::TOTAL_CPU_PER_OP.info();
        let mut metrics = match open_loop {
            OpenOrClosed::Closed => vec![own("delivered_per_s", "per_s", Better::Higher), arrived, cpu],
            OpenOrClosed::Open => vec![cpu, arrived],
        };
        metrics.extend([metric::CLIENT_CPU_PER_OP.info(), metric::SERVER_CPU_PER_OP.info()]);
        metrics.extend(["send_mean_us", "send_p99_us"].map(|name| own(name, "us", Better::Lower)));
        metrics.extend(["lost_percent", "refused_percent"].map(|name| own(name, "percent", Better::Lower)));
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        match point.size_bytes {
            Some(size) if !(LEAST_SIZE..=MOST_SIZE).contains(&size) => Err(BenchError::Usage(format!(
                "--size {size}: a metric has {LEAST_SIZE} to {MOST_SIZE} bytes, which is what fits into a UDP datagram"
            ))),
            _ if point.connections > MOST_SENDERS => Err(BenchError::Usage(format!(
                "--connections {}: each sender is a thread; at most {MOST_SENDERS} of them",
                point.connections
            ))),
            _ => Ok(()),
        }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningDatagrams::start(self, start)?))
    }
}

/// A message of this size for a receiver: a counter in statsd's format, padded by its name, or a line of syslog.
fn message(server: ServerName, size: u64) -> Vec<u8> {
    let size = usize::try_from(size).unwrap_or(0);
    let (begins, ends) = match server {
        ServerName::BuiltIn => ("samehost.bench.", ":1|c"),
        ServerName::Rsyslog => ("<14>samehost: ", ""),
    };
    let padded = begins.bytes().chain(std::iter::repeat(b'x')).take(size.saturating_sub(ends.len()).max(1));
    padded.chain(ends.bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_size() {
        fn text(server: ServerName, size: u64) -> String {
            String::from_utf8(message(server, size)).unwrap()
        }
        assert_eq!(text(ServerName::BuiltIn, LEAST_SIZE), "s:1|c");
        assert_eq!(text(ServerName::BuiltIn, 21), "samehost.bench.xx:1|c");
        assert_eq!(text(ServerName::Rsyslog, 16), "<14>samehost: xx");
        assert_eq!(text(ServerName::BuiltIn, MOST_SIZE).len() as u64, MOST_SIZE);
    }

    #[test]
    fn what_fits_into_no_datagram_is_refused() {
        fn check(connections: u32, size: u64) -> Result<(), String> {
            let point = Point { connections, size_bytes: Some(size), ..Point::default() };
            let configured = Datagram.configure(&crate::workload::defaults(&Datagram)).unwrap();
            configured.check(&point, Transport::Udp).map_err(|error| error.to_string())
        }
        assert!(check(1, LEAST_SIZE).is_ok() && check(MOST_SENDERS, MOST_SIZE).is_ok());
        assert!(check(1, MOST_SIZE + 1).unwrap_err().contains("--size 65508"));
        assert!(check(MOST_SENDERS + 1, 64).unwrap_err().contains("at most 1024"));
    }
}
