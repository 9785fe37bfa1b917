//! Who receives, and how each kind of receiver says what came.

use std::io;
use std::path::Path;
use std::time::Instant;

use samehost_model::{Endpoint, ServerInfo, Transport};
use samehost_transport::Tuning;

use super::counting::{ANSWER, Asking, settled};
use super::{ServerName, Settings};
use crate::error::BenchError;
use crate::private_servers::rsyslog::{self, ASKED, BY_UDP, BY_UNIX, QUESTION};
use crate::private_servers::{BuiltIn, BuiltInSpec, PrivateServer, random_hex};
use crate::workload::StartOptions;

/// A running receiver.
pub(super) enum Receiver {
    BuiltIn(BuiltIn),
    Rsyslog(PrivateServer),
}

impl Receiver {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        match settings.server {
            ServerName::BuiltIn => {
                let work = settings.work.iter().flat_map(|work| ["--work".to_owned(), work.clone()]);
                let spec = BuiltInSpec {
                    program: start.program.clone(),
                    server: "datagrams",
                    arguments: work.collect(),
                    tuning: Tuning::default(),
                };
                Ok(Receiver::BuiltIn(BuiltIn::start(spec, &start.transports)?))
            }
            ServerName::Rsyslog => {
                let answers = |server: &PrivateServer| {
                    server.endpoints().try_for_each(|endpoint| {
                        let asked = Asking::of(endpoint)
                            .map(|asking| ask_rsyslog(server.directory(), endpoint, &asking));
                        asked?
                            .map(|_| ())
                            .map_err(|error| BenchError::io(format!("asking {endpoint}"), error))
                    })
                };
                Ok(Receiver::Rsyslog(rsyslog::start(&start.program, answers)?))
            }
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

    /// Number of datagrams that came to this endpoint since its start, when no more come.
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

/// Sends a question, and waits until it is in rsyslog's file of questions: the messages before it are in theirs then.
fn ask_rsyslog(directory: &Path, endpoint: &Endpoint, asking: &Asking) -> io::Result<u64> {
    let question = format!("<14>{QUESTION}: {}", random_hex(8).map_err(io::Error::other)?);
    asking.send(question.as_bytes())?;
    let begun = Instant::now();
    while !std::fs::read_to_string(directory.join(ASKED)).is_ok_and(|asked| asked.contains(&question)) {
        if begun.elapsed() > ANSWER {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(ANSWER / 50);
    }
    let file = if endpoint.transport() == Transport::Udp { BY_UDP } else { BY_UNIX };
    // Without a message there is no file yet.
    Ok(directory.join(file).metadata().map_or(0, |metadata| metadata.len()))
}
