//! Datagrams that nobody acknowledges, as statsd, dogstatsd and syslog clients send them: UDP on loopback against a
//! Unix datagram socket. What counts is what arrives.
//!
//! A full queue is where the two differ. UDP says nothing: the kernel drops the datagram at the receiver's socket, and
//! `send` succeeds. A Unix datagram socket tells its sender: a blocking `send` waits for room, a nonblocking one is
//! refused with EAGAIN, and most clients then throw the metric away. So every metric has one of three fates: it
//! arrived (counted by the receiver), it was refused (counted by the sender), or it was lost (sent, and never counted
//! by the receiver). The shares are of the whole trial, its warm-up included, because the receiver knows no window.

mod receiver;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, send, sendto, socket_with,
};
use samehost_model::{Arm, Better, Endpoint, MetricInfo, Point, ServerInfo, Transport, Trial, metric};
use samehost_system::diag::Diag;
use samehost_system::namespaces::network_setting;
use samehost_transport::{ConnectOptions, Stream, connect};

use crate::engine::Job;
use crate::engine::session::{Bad, Caller, Seen};
use crate::error::BenchError;
use crate::parameters::{Axis, Parameter, Parameters, Values, Word, words};
use crate::workload::{
    Capabilities, Configured, Description, Instance, OpenOrClosed, StartOptions, Workload,
};
use crate::workloads::requests::{listening, prove};
use receiver::Receiver;

/// The most bytes of a UDP datagram over IPv4.
const MOST_SIZE: u64 = 65_507;
/// The fewest bytes of a metric: a name of one letter.
const LEAST_SIZE: u64 = 5;
const MOST_SENDERS: u32 = 1024;

pub struct Datagram;

words! {
    enum Sending {
        Blocking = "blocking",
        /// It passes `MSG_DONTWAIT`, and goes on with the next metric if it is refused.
        Nonblocking = "nonblocking",
    }

    enum ServerName {
        BuiltIn = "built-in",
        Rsyslog = "rsyslog",
    }

    enum Naming {
        Connected = "connected",
        Unconnected = "unconnected",
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::choices(
        "send",
        Sending::WORDS,
        "What a sender does when the receiver's queue is full: wait, or be refused (EAGAIN) and go on",
    ),
    Parameter::choices(
        "socket",
        Naming::WORDS,
        "Connect the sender's socket once, or name the receiver in each sendto, as many clients do",
    ),
    Parameter::word::<ServerName>(
        "server",
        "Who receives: a built-in counter, or a private rsyslog that parses, queues and writes a byte a message",
    ),
    Parameter::duration(
        "work",
        "",
        "CPU time that the receiver spends on each datagram, to play one that parses and counts (2us)",
    ),
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
            return BenchError::refuse("--work is for --server built-in: a real one does its own work");
        }
        Ok(Arc::new(Settings {
            server,
            sending: parameters.list("send", Sending::WORDS)?,
            naming: parameters.list("socket", Naming::WORDS)?,
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
            Some(size) if !(LEAST_SIZE..=MOST_SIZE).contains(&size) => BenchError::refuse(format!(
                "--size {size}: a metric has {LEAST_SIZE} to {MOST_SIZE} bytes, which is what fits into a UDP datagram"
            )),
            _ if point.connections > MOST_SENDERS => BenchError::refuse(format!(
                "--connections {}: each sender is a thread; at most {MOST_SENDERS} of them",
                point.connections
            )),
            _ => Ok(()),
        }
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let receiver = Receiver::start(self, start)?;
        Ok(Box::new(RunningDatagrams { settings: self.clone(), receiver, current: None }))
    }
}

/// A message of `size` bytes for a receiver: a counter in statsd's format, whose name fills it up, or a line of syslog.
fn message(server: ServerName, size: u64) -> Vec<u8> {
    let size = usize::try_from(size).unwrap_or(0);
    let (begins, ends) = match server {
        ServerName::BuiltIn => ("samehost.bench.", ":1|c"),
        ServerName::Rsyslog => ("<14>samehost: ", ""),
    };
    let padded = begins.bytes().chain(std::iter::repeat(b'x')).take(size.saturating_sub(ends.len()).max(1));
    padded.chain(ends.bytes()).collect()
}

struct RunningDatagrams {
    settings: Settings,
    receiver: Receiver,
    current: Option<Current>,
}

struct Current {
    endpoint: Endpoint,
    is_closed: bool,
    senders: Vec<Arc<Sent>>,
    /// Datagrams that the receiver had counted before the trial.
    before: u64,
    /// Datagrams that the kernel had dropped before; `None` where it does not count them.
    dropped_before: Option<u32>,
}

impl Instance for RunningDatagrams {
    fn server(&self) -> ServerInfo {
        self.receiver.info()
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint = listening(arm.transport, "receiver", self.endpoint(arm.transport))?;
        let metric: Arc<[u8]> = message(self.settings.server, arm.point.size_bytes.unwrap_or(0)).into();
        let (sending, naming) = (self.settings.sending.at(&arm.point), self.settings.naming.at(&arm.point));
        let mut senders: Vec<Arc<Sent>> = Vec::new();
        let job = Job::callers(&endpoint, None, arm.point.connections, |_| {
            let sent: Arc<Sent> = Arc::default();
            senders.push(Arc::clone(&sent));
            Sender::new(&endpoint, sending, naming, Arc::clone(&metric), sent)
        })?;
        self.current = Some(Current {
            is_closed: arm.point.rate_per_s.is_none(),
            senders,
            before: self.receiver.count(&endpoint)?,
            dropped_before: dropped(&endpoint),
            endpoint,
        });
        Ok(job)
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.receiver.endpoint(transport)
    }

    fn stderr_tail(&self) -> String {
        self.receiver.stderr_tail()
    }

    fn server_view(&mut self) -> Option<String> {
        if self.current.as_ref()?.endpoint.transport() == Transport::Udp {
            let bytes = network_setting("core/rmem_default")?;
            return Some(format!("its receive buffer: {bytes} bytes (net.core.rmem_default)"));
        }
        let datagrams = network_setting("unix/max_dgram_qlen")?;
        Some(format!("its queue: {datagrams} datagrams (net.unix.max_dgram_qlen)"))
    }

    fn finish_trial(&mut self, trial: &mut Trial) {
        let Some(current) = self.current.take() else { return };
        let mut fates = Fates::of(&current.senders);
        // Read before the receiver is asked: a question may find a full queue too.
        if let (Some(now), Some(before)) = (dropped(&current.endpoint), current.dropped_before) {
            fates.dropped = Some(u64::from(now.wrapping_sub(before)));
        }
        match self.receiver.count(&current.endpoint) {
            Ok(now) => {
                fates.arrived = now.saturating_sub(current.before);
                fates.fill(trial, current.is_closed);
            }
            Err(error) => trial.invalid = Some(error.to_string()),
        }
    }
}

/// Datagrams that the kernel has dropped at a UDP socket; `None` for a Unix socket, whose senders are refused instead.
fn dropped(endpoint: &Endpoint) -> Option<u32> {
    let Endpoint::Udp { host, port } = endpoint else { return None };
    let address = SocketAddr::new(host.parse().ok()?, *port);
    Diag::open().ok()?.udp_drops(address).ok()?
}

enum To {
    Peer,
    Udp(SocketAddr),
    Unix(SocketAddrUnix),
}

/// Sends one metric over and over from a socket and a thread of its own, as an application's client does.
struct Sender {
    socket: Stream,
    to: To,
    flags: SendFlags,
    metric: Arc<[u8]>,
    sent: Arc<Sent>,
}

impl Sender {
    fn new(
        endpoint: &Endpoint,
        sending: Sending,
        naming: Naming,
        metric: Arc<[u8]>,
        sent: Arc<Sent>,
    ) -> Result<Self, BenchError> {
        let flags = match sending {
            Sending::Blocking => SendFlags::empty(),
            Sending::Nonblocking => SendFlags::DONTWAIT,
        };
        let (socket, to) = match naming {
            Naming::Connected => (connect(endpoint, &ConnectOptions::default())?, To::Peer),
            Naming::Unconnected => unconnected(endpoint)?,
        };
        prove(&socket, endpoint.transport())?;
        Ok(Sender { socket, to, flags, metric, sent })
    }
}

fn unconnected(endpoint: &Endpoint) -> Result<(Stream, To), BenchError> {
    let opened = match endpoint {
        Endpoint::Unixgram(path) => unix_sender(path),
        Endpoint::Udp { host, port } => udp_sender(host, *port),
        _ => Err(Errno::AFNOSUPPORT),
    };
    opened.map_err(|errno| BenchError::io(format!("a socket for {endpoint}"), errno))
}

fn unix_sender(path: &Path) -> Result<(Stream, To), Errno> {
    let to = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok((Stream::from_fd(socket, Transport::Unixgram), To::Unix(to)))
}

fn udp_sender(host: &str, port: u16) -> Result<(Stream, To), Errno> {
    let Ok(ip) = host.parse() else { return Err(Errno::AFNOSUPPORT) };
    let to = SocketAddr::new(ip, port);
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok((Stream::from_fd(socket, Transport::Udp), To::Udp(to)))
}

impl Caller for Sender {
    fn call(&mut self) -> Result<(), Bad> {
        let (fd, metric, flags) = (self.socket.as_fd(), &self.metric[..], self.flags);
        let sent = retry_on_intr(|| match &self.to {
            To::Peer => send(fd, metric, flags),
            To::Udp(address) => sendto(fd, metric, flags, address),
            To::Unix(address) => sendto(fd, metric, flags, address),
        });
        match sent {
            Ok(_) => self.sent.taken.add_one(),
            // The metric is gone, as with a client that cannot wait: a fate to be counted, and no failed operation.
            Err(Errno::AGAIN) => self.sent.full.add_one(),
            Err(Errno::NOBUFS) => self.sent.no_memory.add_one(),
            Err(errno) => return Err(Bad::new(kind(errno), errno.to_string())),
        }
        Ok(())
    }

    fn seen(&self) -> Option<Seen> {
        Some(Seen::of_socket(&self.socket))
    }
}

fn kind(errno: Errno) -> &'static str {
    match errno {
        Errno::CONNREFUSED => "connection refused (no receiver)",
        Errno::MSGSIZE => "EMSGSIZE (too large for a datagram)",
        _ => "send failed",
    }
}

/// Counts of one sender. Nobody else writes them, and they share no cache line with another sender's: senders would
/// slow each other down at every metric. A metric was taken by the kernel, or refused with EAGAIN, as the receiver's
/// queue was full, or with ENOBUFS, as the kernel had no memory for it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Sent {
    taken: Count,
    full: Count,
    no_memory: Count,
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add_one(&self) {
        // The only writer needs no locked instruction.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What became of the metrics of a whole trial, its warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fates {
    taken: u64,
    full: u64,
    no_memory: u64,
    arrived: u64,
    /// Dropped at the receiver's socket, as the kernel counts it; `None` where it does not.
    dropped: Option<u64>,
}

impl Fates {
    fn of(senders: &[Arc<Sent>]) -> Self {
        let mut sum = Fates::default();
        for sent in senders {
            sum.taken += sent.taken.get();
            sum.full += sent.full.get();
            sum.no_memory += sent.no_memory.get();
        }
        sum
    }

    fn tried(&self) -> u64 {
        self.taken + self.full + self.no_memory
    }

    /// Fills in the figures of a trial so that they count metrics that arrived: its operations, and the CPU time for each
    /// of them. A transport that loses half of what it takes would otherwise look twice as cheap. In a closed loop the
    /// throughput is theirs too, because it is the capacity that rates refer to.
    fn fill(&self, trial: &mut Trial, is_closed: bool) {
        let tried = self.tried().max(1) as f64;
        let arrived = self.arrived.min(self.tried()) as f64 / tried;
        let lost = self.taken.saturating_sub(self.arrived);
        let mut shares = vec![
            ("arrived_percent", self.arrived.min(self.tried())),
            ("lost_percent", lost),
            ("refused_percent", self.full + self.no_memory),
        ];
        if self.no_memory > 0 {
            shares.push(("enobufs_percent", self.no_memory));
        }
        if let Some(dropped) = self.dropped {
            shares.push(("kernel_dropped_percent", dropped));
        }
        for (name, part) in shares {
            trial.measurements.insert(name.into(), 100.0 * (part as f64 / tried));
        }
        let delivered = trial.throughput_per_s.map(|per_s| per_s * arrived);
        if let Some(delivered) = delivered {
            trial.measurements.insert("delivered_per_s".into(), delivered);
        }
        if is_closed {
            trial.throughput_per_s = delivered;
        } else {
            // The time of a send is the sender's cost; how late the generator woke up for it is not.
            trial.latency_us = trial.service_us.take();
            trial.lateness_us = None;
        }
        let latency = trial.latency_us.clone().unwrap_or_default();
        for (name, value) in [("send_mean_us", latency.mean), ("send_p99_us", latency.p99)] {
            if let Some(value) = value {
                trial.measurements.insert(name.to_owned(), value);
            }
        }
        trial.operations = (trial.operations as f64 * arrived).round() as u64;
        for figure in trial.per_operation() {
            *figure = match *figure {
                Some(value) if arrived > 0.0 => Some(value / arrived),
                _ => None,
            };
        }
    }
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

    fn trial() -> Trial {
        Trial {
            seconds: 1.0,
            operations: 1000,
            throughput_per_s: Some(1000.0),
            client_cpu_us_per_op: Some(2.0),
            ..Trial::default()
        }
    }

    #[test]
    fn every_metric_has_one_fate_and_what_arrives_counts() {
        let fates = Fates { taken: 700, full: 290, no_memory: 10, arrived: 500, dropped: Some(200) };
        let mut received = trial();
        fates.fill(&mut received, true);
        assert_eq!(
            (received.measurements["arrived_percent"], received.measurements["lost_percent"]),
            (50.0, 20.0)
        );
        assert_eq!(
            (received.measurements["refused_percent"], received.measurements["enobufs_percent"]),
            (30.0, 1.0)
        );
        assert_eq!(received.measurements["kernel_dropped_percent"], 20.0);
        assert_eq!((received.operations, received.throughput_per_s), (500, Some(500.0)));
        assert_eq!(received.client_cpu_us_per_op, Some(4.0), "those that arrive bear the cost of all");
        let mut received = trial();
        fates.fill(&mut received, false);
        assert_eq!(
            (received.throughput_per_s, received.measurements["delivered_per_s"]),
            (Some(1000.0), 500.0)
        );
    }

    #[test]
    fn where_nothing_arrives_nothing_is_divided_by_it() {
        let mut received = trial();
        Fates { taken: 1000, ..Fates::default() }.fill(&mut received, true);
        assert_eq!((received.operations, received.client_cpu_us_per_op), (0, None));
        let mut received = trial();
        Fates::default().fill(&mut received, true);
        assert!(received.measurements.values().all(|value| *value == 0.0), "{:?}", received.measurements);
    }
}
