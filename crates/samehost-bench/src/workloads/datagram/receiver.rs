//! The receivers, and how each is asked how many datagrams came: through the socket that they came to, so that the
//! answer counts all that were sent before the question.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use samehost_model::{Endpoint, ServerInfo, Transport};

use super::{ServerName, Settings};
use crate::builtin_servers::datagrams::{count_in, question};
use crate::error::BenchError;
use crate::private_servers::rsyslog::{ASKED, BY_UDP, BY_UNIX, QUESTION};
use crate::private_servers::{BuiltIn, BuiltInSpec, PrivateServer, random_hex, rsyslog};
use crate::workload::StartOptions;

pub(super) enum Receiver {
    BuiltIn(BuiltIn),
    Rsyslog(PrivateServer),
}

impl Receiver {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        match settings.server {
            ServerName::BuiltIn => {
                let arguments = match &settings.work {
                    Some(work) => vec!["--work".to_owned(), work.clone()],
                    None => Vec::new(),
                };
                let spec = BuiltInSpec::new(&start.program, "datagrams", arguments);
                Ok(Receiver::BuiltIn(BuiltIn::start(spec, &start.transports)?))
            }
            ServerName::Rsyslog => Ok(Receiver::Rsyslog(rsyslog::start(&start.program, answers)?)),
        }
    }

    pub(super) fn info(&self) -> ServerInfo {
        let (kind, version, pids) = match self {
            Receiver::BuiltIn(server) => (
                "samehost serve datagrams, a thread for each socket",
                env!("CARGO_PKG_VERSION").to_owned(),
                server.pids(),
            ),
            Receiver::Rsyslog(server) => (
                "rsyslog with imudp and imuxsock, which counts what comes",
                String::new(),
                vec![server.pid()],
            ),
        };
        ServerInfo { kind: kind.into(), version, managed: true, pids }
    }

    pub(super) fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        match self {
            Receiver::BuiltIn(server) => server.endpoint(transport).cloned(),
            Receiver::Rsyslog(server) => server.endpoint(transport).cloned(),
        }
    }

    pub(super) fn stderr_tail(&self) -> String {
        match self {
            Receiver::BuiltIn(server) => server.stderr_tail(),
            Receiver::Rsyslog(server) => server.stderr_tail(),
        }
    }

    /// Number of datagrams that came to this endpoint since its start, once no more come.
    ///
    /// # Errors
    /// When the receiver does not answer.
    pub(super) fn count(&self, endpoint: &Endpoint) -> Result<u64, BenchError> {
        let asking = Asking::of(endpoint)?;
        match self {
            Receiver::BuiltIn(_) => settled(endpoint, |number| asking.ask(number)),
            Receiver::Rsyslog(server) => {
                settled(endpoint, |_| ask_rsyslog(server.directory(), endpoint, &asking))
            }
        }
    }
}

fn answers(server: &PrivateServer) -> Result<(), BenchError> {
    for endpoint in server.endpoints() {
        let asking = Asking::of(endpoint)?;
        ask_rsyslog(server.directory(), endpoint, &asking)
            .map_err(|error| BenchError::io(format!("asking {endpoint}"), error))?;
    }
    Ok(())
}

/// Sends a question, and waits until it is in rsyslog's file of questions: the messages before it are in theirs by then.
/// rsyslog writes one byte for each message, so the length of a file is the count; without a message there is no file
/// yet.
fn ask_rsyslog(directory: &Path, endpoint: &Endpoint, asking: &Asking) -> io::Result<u64> {
    let question = format!("<14>{QUESTION}: {}", random_hex(8).map_err(io::Error::other)?);
    asking.send(question.as_bytes())?;
    let begun = Instant::now();
    loop {
        let asked = std::fs::read_to_string(directory.join(ASKED)).unwrap_or_default();
        if asked.contains(&question) {
            break;
        }
        if begun.elapsed() > ANSWER {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(ANSWER / 50);
    }
    let file = if endpoint.transport() == Transport::Udp { BY_UDP } else { BY_UNIX };
    match directory.join(file).metadata() {
        Ok(metadata) => Ok(metadata.len()),
        Err(_) => Ok(0),
    }
}

/// How long to wait for an answer before the question is asked again: UDP may lose it.
const ANSWER: Duration = Duration::from_millis(100);
/// How long a receiver may take until it answers one of the questions.
const PATIENCE: Duration = Duration::from_secs(10);
/// Datagrams of other CPUs may be on their way to the socket for so long.
const SETTLES: Duration = Duration::from_millis(5);

struct Asking(OwnedFd);

impl Asking {
    fn of(endpoint: &Endpoint) -> Result<Self, BenchError> {
        let name = format!("samehost-asks-{}", random_hex(8)?);
        open(endpoint, &name)
            .map_err(|error: io::Error| BenchError::io(format!("a socket to ask {endpoint}"), error))
    }

    fn send(&self, question: &[u8]) -> io::Result<()> {
        send(&self.0, question, SendFlags::empty())?;
        Ok(())
    }

    fn ask(&self, number: u64) -> io::Result<u64> {
        self.send(&question(number))?;
        let mut buffer = [0; 64];
        loop {
            let (length, _) = recv(&self.0, &mut buffer, RecvFlags::empty())?;
            // An answer that came too late is an earlier question's.
            if let Some(count) = count_in(&buffer[..length], number) {
                return Ok(count);
            }
        }
    }
}

fn open(endpoint: &Endpoint, name: &str) -> io::Result<Asking> {
    match endpoint {
        Endpoint::Unixgram(path) => {
            // The answer is sent to a name.
            let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
            socket.connect(path)?;
            socket.set_read_timeout(Some(ANSWER))?;
            socket.set_write_timeout(Some(ANSWER))?;
            Ok(Asking(socket.into()))
        }
        Endpoint::Udp { host, port } => {
            let socket = UdpSocket::bind((host.as_str(), 0))?;
            socket.connect((host.as_str(), *port))?;
            socket.set_read_timeout(Some(ANSWER))?;
            Ok(Asking(socket.into()))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The count that two questions in a row are answered with: datagrams of other CPUs may still be on their way to the
/// socket when the first one is answered.
///
/// # Errors
/// When the receiver does not answer.
fn settled(endpoint: &Endpoint, ask: impl Fn(u64) -> io::Result<u64>) -> Result<u64, BenchError> {
    let begun = Instant::now();
    let (mut before, mut number) = (None, 0);
    loop {
        number += 1;
        match ask(number) {
            Ok(count) if before == Some(count) => return Ok(count),
            Ok(count) => {
                before = Some(count);
                std::thread::sleep(SETTLES);
            }
            Err(error) if is_late(&error) && begun.elapsed() < PATIENCE => {}
            Err(error) => {
                let reason = format!("it did not say how many datagrams came: {error}");
                return Err(BenchError::lost(endpoint, reason));
            }
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
