//! Bytes without a protocol: ping-pong (a message there and back) and bulk (a stream to a receiver that acknowledges),
//! against the built-in servers or a running echo server. A message has a fixed size and starts with a running number,
//! by which the echo is known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use samehost_login::Link;
use samehost_model::{Arm, Endpoint, MetricInfo, Point, ServerInfo, Transport, metric, parse_fraction};
use samehost_transport::{ConnectOptions, Stream, TlsTrust, Tuning, connect};

use crate::builtin_servers::MARK;
use crate::engine::Job;
use crate::engine::bulk::Writer;
use crate::engine::session::{Bad, Connector, Progress, Session, Wait};
use crate::error::BenchError;
use crate::parameters::{Parameter, Parameters, Values, Word, words};
use crate::private_servers::{BuiltIn, BuiltInSpec};
use crate::served::{Instance, Served, StartOptions};
use crate::socket_options::{SOCKET_BUFFER, tuning, tunings, wait_for_server};
use crate::workload::{
    Capabilities, Configured, Description, OpenOrClosed, Workload, infos, request_metrics,
};
use crate::workloads::requests::{MAX_SLICED_CONNECTIONS, MAX_SMALL_BYTES, prove, value};

/// Shortest message whose last byte is not part of its number.
const MIN_MARKED_BYTES: u64 = 9;
/// Shortest slice of a stream: a transfer of its own, from the first byte to the acknowledgement of the
/// last. Some megabytes may be in flight when the last message is written, and until they are
/// acknowledged only the receiver works. With slices of 12 to 50 ms the ratio of Unix and TCP at 512 KiB
/// was the same (1.72 to 2.2 in eight runs of 12 rounds, CPUs kept awake). The memory of a virtual
/// machine is fast and slow by turns of half a second, which undivided trials of 40 ms caught: 31 blocks
/// of them gave 0.58 to 1.39 (docs/method.md §1a).
const MIN_BULK_SLICE: Duration = Duration::from_millis(12);
/// Largest message through a pipe, whose buffer is 64 KiB (pipe(7)).
const MAX_PIPE_BYTES: u64 = 64 * 1024;
/// Largest message in one packet with the default send buffer of 212,992 bytes, minus its overhead.
const MAX_PACKET_BYTES: u64 = 128 * 1024;

pub struct Raw;

struct Settings {
    bulk: bool,
    server: Server,
    waits: Wait,
    work: Option<String>,
    longer: Option<String>,
    has_socket_buffer: bool,
}

words! {
    enum Pattern { PingPong = "ping-pong", Bulk = "bulk" }

    enum Server { Auto = "auto", Threads = "threads", Blocking = "blocking", Epoll = "epoll", Rounds = "rounds" }

    enum SleepsIn { Poll = "poll", Read = "read" }
}

impl Settings {
    /// The model of the server: as chosen, or one thread for all by epoll where a ping-pong has several connections, and
    /// otherwise a thread for each.
    fn model(&self, connections_of_an_arm: u32) -> Server {
        match self.server {
            Server::Auto if connections_of_an_arm > 1 && !self.bulk => Server::Epoll,
            Server::Auto if self.waits == Wait::Read => Server::Blocking,
            Server::Auto => Server::Threads,
            model => model,
        }
    }

    fn echo_arguments(&self, model: Server) -> Vec<String> {
        let mut arguments = vec!["--model".to_owned(), model.word().to_owned()];
        for (name, value) in [("--work", &self.work), ("--longer", &self.longer)] {
            if let Some(value) = value {
                arguments.extend([name.to_owned(), value.clone()]);
            }
        }
        arguments
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Pattern>(
        "pattern",
        "A message there and back, or a stream to a receiver that acknowledges the last byte",
    ),
    Parameter::word::<Server>(
        "server",
        "A thread for each connection (blocking: asleep in read, not in poll), or one for all by epoll (rounds: replies after each round, as Redis sends them); auto: threads for 1 connection",
    ),
    Parameter::word::<SleepsIn>(
        "wait",
        "Where a thread with one connection sleeps until its reply is there: poll, as most clients do, or read, as a plain C loop does (then --server auto is blocking)",
    ),
    Parameter::duration(
        "work",
        "",
        "CPU time that the server spends on each message, to play one with work to do (20us)",
    ),
    Parameter::text(
        "longer",
        "A known difference, to see whether it is found: the second of two arms of one transport (--transports unix,unix) has so much more --work (3%)",
    ),
];

impl Workload for Raw {
    fn description(&self) -> Description {
        Description {
            name: "raw",
            about: "Bytes and nothing else: round trips (ping-pong) or a stream (bulk), by size",
            example: "raw --connections 1,64 --size 128",
            parameters: PARAMETERS,
        }
    }

    fn owns_both_ends(&self) -> bool {
        true
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let longer = parameters.given("longer");
        if let Some(longer) = &longer {
            parse_fraction(longer)?;
        }
        Ok(Arc::new(Settings {
            bulk: parameters.word::<Pattern>("pattern")? == Pattern::Bulk,
            server: parameters.word("server")?,
            waits: match parameters.word("wait")? {
                SleepsIn::Poll => Wait::Poll,
                SleepsIn::Read => Wait::Read,
            },
            work: parameters.given("work"),
            longer,
            has_socket_buffer: parameters.contains_key(SOCKET_BUFFER),
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        use Transport::{Abstract, Pipe, Seqpacket, Socketpair, Tcp, Tcp6, TcpRun, TcpTls, Unix};
        Capabilities {
            transports: &[Tcp, Unix, Tcp6, Abstract, TcpTls, Seqpacket, Socketpair, Pipe, TcpRun],
            connections: if self.bulk { None } else { Some("1") },
            sizes: Some(if self.bulk { "512k" } else { "128" }),
            rates: !self.bulk,
            most_sliced: if self.bulk { 1 } else { MAX_SLICED_CONNECTIONS },
            least_slice: if self.bulk { MIN_BULK_SLICE } else { Duration::ZERO },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        if self.bulk { "bulk stream".into() } else { "ping-pong".into() }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if !self.bulk {
            return request_metrics(open_loop);
        }
        infos(&[
            metric::BANDWIDTH,
            metric::CLIENT_CPU_PER_OP,
            metric::SERVER_CPU_PER_OP,
            metric::TOTAL_CPU_PER_OP,
        ])
    }

    fn check(&self, point: &Point, transport: Transport) -> Result<(), BenchError> {
        let size = point.size_bytes.unwrap_or(1);
        let most = match transport {
            Transport::Seqpacket => MAX_PACKET_BYTES,
            Transport::Pipe if !self.bulk => MAX_PIPE_BYTES,
            _ => 1024 * 1024 * 1024,
        };
        if size > most {
            return BenchError::refuse(format!(
                "--size {size} is too large for {transport}: at most {most} bytes there"
            ));
        }
        let inherited = matches!(transport, Transport::Socketpair | Transport::Pipe);
        if transport == Transport::Pipe && self.has_socket_buffer {
            return BenchError::refuse("a pipe has no socket buffer; leave --socket-buffer out");
        }
        if transport == Transport::Pipe && (point.connections > 1 || point.rate_per_s.is_some()) {
            return BenchError::refuse(
                "pipe has one connection in a closed loop; leave --connections at 1 and --rate out",
            );
        }
        if self.longer.is_some() && (self.work.is_none() || size < MIN_MARKED_BYTES || inherited) {
            return BenchError::refuse(format!(
                "--longer is a part of --work, which it needs; messages have at least {MIN_MARKED_BYTES} bytes, over a transport with a listener"
            ));
        }
        if inherited && point.connections > 64 {
            return BenchError::refuse(format!(
                "{transport} needs a server process for each connection; at most 64 of them"
            ));
        }
        Ok(())
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let bulk = self.bulk;
        let (mut served, missing) = (Served::given(start), start.missing());
        if !bulk {
            for address in served.addresses.values() {
                require_echo(&address.endpoint)?;
            }
        }
        served.info.managed = !missing.is_empty();
        let model = self.model(start.connections_of_an_arm);
        let spec = if bulk {
            BuiltInSpec::new(&start.program, "sink", Vec::new())
        } else {
            BuiltInSpec::new(&start.program, "echo", self.echo_arguments(model))
        };
        let mut servers = Vec::new();
        for tuning in tunings(start) {
            let spec = BuiltInSpec { tuning: tuning.clone(), ..spec.clone() };
            servers.push((tuning, Arc::new(Mutex::new(BuiltIn::start(spec, &missing)?))));
        }
        let ours = if bulk { "samehost serve sink" } else { "samehost serve echo" };
        Ok(Box::new(RunningRaw {
            servers,
            start: start.clone(),
            served: served.called("a server that already runs", ours),
            bulk,
            waits: self.waits,
            marks_second_arm: self.longer.is_some(),
        }))
    }
}

/// Sent to a server that already runs, before anything is measured: one of another protocol would be measured for as
/// long as asked, and its every reply be wrong.
const PROBE: &[u8; 8] = b"\x01\0\0\0\0\0\0\0";
const PATIENCE: Duration = Duration::from_secs(2);

/// Refuses a server that does not send back what it is sent. One behind TLS is not asked.
fn require_echo(endpoint: &Endpoint) -> Result<(), BenchError> {
    if endpoint.transport().is_tls() {
        return Ok(());
    }
    let mut link = Link::connect(endpoint, PATIENCE)?;
    let echoed = link.ask(PROBE, |input| match input {
        _ if input.starts_with(PROBE) => Ok(Some(((), PROBE.len()))),
        _ if PROBE.starts_with(input) => Ok(None),
        _ => Err("it answered with other bytes".into()),
    });
    echoed.map_err(|error| {
        BenchError::Usage(format!(
            "{endpoint} does not send back what it is sent, as `bench raw` needs it ({error}). To measure your own server with your own client: samehost bench command 'CLIENT over TCP' 'CLIENT over the socket'; for a known protocol: samehost bench http URL, and redis, mysql, postgres, memcached, fastcgi alike"
        ))
    })
}

struct RunningRaw {
    servers: Vec<(Tuning, Arc<Mutex<BuiltIn>>)>,
    start: StartOptions,
    /// The servers that were given.
    served: Served,
    bulk: bool,
    waits: Wait,
    marks_second_arm: bool,
}

impl RunningRaw {
    fn with_each<T>(&self, mut work: impl FnMut(&mut BuiltIn) -> T) -> Vec<T> {
        let mut results = Vec::new();
        for (_, server) in &self.servers {
            results.push(work(&mut locked(server)));
        }
        results
    }
}

/// A server that connectors share, also after a thread of one panicked.
fn locked(server: &Mutex<BuiltIn>) -> MutexGuard<'_, BuiltIn> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Instance for RunningRaw {
    fn served(&self) -> &Served {
        &self.served
    }

    /// A connection that a server inherits has a process of its own, as long as it lasts.
    fn server(&self) -> ServerInfo {
        let mut info = self.served.info.clone();
        info.pids.extend(self.with_each(|server| server.pids()).concat());
        info
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let size = arm.point.size_bytes.unwrap_or(128);
        let tuning = tuning(&arm.point, &self.start);
        let Some((_, server)) = self.servers.iter().find(|(known, _)| *known == tuning) else {
            return BenchError::refuse("no server for this trial");
        };
        let given = self.served.endpoint(arm.transport);
        let endpoint = given.or_else(|| locked(server).endpoint(arm.transport).cloned());
        let connector = RawConnector {
            marked: self.marks_second_arm && arm.name.ends_with("#2"),
            transport: arm.transport,
            endpoint,
            server: Arc::clone(server),
            tuning: tuning.clone(),
            waits: self.waits,
            size: usize::try_from(size).unwrap_or(usize::MAX),
        };
        if self.bulk {
            let endpoint = Connector::endpoint(&connector);
            return Ok(Job::Bulk(Writer::new(connector.stream()?, endpoint, size)));
        }
        // If a message does not fit into the buffers, each side would wait for the other to read.
        let fits = match tuning.buffer_bytes {
            Some(bytes) => size <= bytes / 2,
            None => true,
        };
        let small = size <= MAX_SMALL_BYTES as u64 && fits || arm.transport == Transport::Pipe;
        Ok(Job::Sessions { connector: Arc::new(connector), small })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        let ours =
            || self.with_each(|server| server.endpoint(transport).cloned()).into_iter().flatten().next();
        self.served.endpoint(transport).or_else(ours)
    }

    fn stderr_tail(&self) -> String {
        self.with_each(|server| server.stderr_tail()).concat()
    }

    fn finish_trial(&mut self, _: &mut samehost_model::Trial) {
        self.with_each(BuiltIn::end_heirs);
    }
}

struct RawConnector {
    /// Whether messages are marked, so that the server does more work for them.
    marked: bool,
    transport: Transport,
    /// `None` over transports whose connections a server inherits: a socketpair, a pipe.
    endpoint: Option<Endpoint>,
    server: Arc<Mutex<BuiltIn>>,
    tuning: Tuning,
    waits: Wait,
    size: usize,
}

impl RawConnector {
    fn stream(&self) -> Result<Stream, BenchError> {
        let stream = match &self.endpoint {
            Some(endpoint) => {
                let options = ConnectOptions {
                    tls: TlsTrust::any_on_loopback(),
                    tuning: self.tuning.clone(),
                    ..ConnectOptions::default()
                };
                connect(endpoint, &options)?
            }
            None => locked(&self.server).inherit(self.transport)?,
        };
        prove(&stream, self.transport)?;
        wait_for_server(&stream, &self.tuning);
        Ok(stream)
    }
}

impl Connector for RawConnector {
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError> {
        let session = EchoSession::new(self.size);
        Ok((self.stream()?, Box::new(if self.marked { session.marked() } else { session })))
    }

    fn waits(&self) -> Wait {
        self.waits
    }

    fn server_pids(&self) -> Option<Vec<u32>> {
        let pids = locked(&self.server).pids();
        if pids.is_empty() { None } else { Some(pids) }
    }

    fn endpoint(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => endpoint.to_string(),
            None => format!("{}:", self.transport),
        }
    }
}

/// Sends messages that begin with a running number, so that the echo of an earlier one is noticed, and compares each
/// echo as it arrives.
#[derive(Debug)]
pub(in crate::workloads) struct EchoSession {
    message: Vec<u8>,
    number: u64,
    received: usize,
}

impl EchoSession {
    pub(in crate::workloads) fn new(message_bytes: usize) -> Self {
        EchoSession { message: value(message_bytes), number: 0, received: 0 }
    }

    pub(in crate::workloads) fn marked(mut self) -> Self {
        if let Some(last) = self.message.last_mut() {
            *last = MARK;
        }
        self
    }
}

impl Session for EchoSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        self.received = 0;
        let head = self.message.len().min(8);
        self.message[..head].copy_from_slice(&self.number.to_le_bytes()[..head]);
        out.extend_from_slice(&self.message);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let rest = &self.message[self.received..];
        let length = input.len().min(rest.len());
        if input[..length] != rest[..length] {
            return Err(Bad::new("wrong echo", format!("after {} right bytes", self.received)));
        }
        self.received += length;
        Ok(if self.received == self.message.len() {
            Progress::Complete { consumed: length }
        } else {
            Progress::More { consumed: length }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_may_come_in_pieces_and_must_be_right() {
        let mut session = EchoSession::new(20);
        let mut out = Vec::new();
        session.request(&mut out);
        assert_eq!(out.len(), 20);
        assert_eq!(session.response(&out[..7]), Ok(Progress::More { consumed: 7 }));
        assert_eq!(session.response(&out[7..]), Ok(Progress::Complete { consumed: 13 }));
        let earlier = out.clone();
        out.clear();
        session.request(&mut out);
        assert_eq!(session.response(&earlier).unwrap_err().kind, "wrong echo", "the number differs");
    }

    #[test]
    fn a_mark_stays_whatever_the_number() {
        let (mut plain, mut marked) = (EchoSession::new(20), EchoSession::new(20).marked());
        for _ in 0..300 {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            plain.request(&mut a);
            marked.request(&mut b);
            assert_eq!((a.last() == Some(&MARK), b.last() == Some(&MARK)), (false, true));
            assert_eq!(marked.response(&b), Ok(Progress::Complete { consumed: 20 }));
        }
    }

    #[test]
    fn more_than_was_asked_for_is_not_consumed() {
        let mut session = EchoSession::new(3);
        let mut out = Vec::new();
        session.request(&mut out);
        out.push(9);
        assert_eq!(session.response(&out), Ok(Progress::Complete { consumed: 3 }));
    }
}
