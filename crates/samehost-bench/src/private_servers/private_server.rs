//! A running private server of any kind: its endpoints, its login, its process. It ends when dropped.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use samehost_login::{Credentials, ServerAddress};
use samehost_model::{Endpoint, Secret, Transport};
use samehost_system::interrupt;

use super::echo::Asker;
use super::{PrivateDirectory, SupervisedProcess, Supervision};
use crate::error::BenchError;

/// How long a server may take before it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two questions whether it answers.
const POLL_INTERVAL: Duration = Duration::from_millis(4);

pub struct PrivateServer {
    // Dropped in this order: the client of `tcp+run` before the server, what the server leaves behind after its end.
    asker: Option<Asker>,
    process: SupervisedProcess,
    _leftovers: Option<Box<dyn Any + Send>>,
    endpoints: BTreeMap<Transport, Endpoint>,
    /// How we log in; empty where it asks for nothing.
    login: Credentials,
    /// Sent before SIGTERM.
    end_signal: Option<Signal>,
}

impl fmt::Debug for PrivateServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateServer").field("pid", &self.pid()).field("endpoints", &self.endpoints).finish()
    }
}

impl PrivateServer {
    pub(crate) fn start(
        supervision: &Supervision,
        directory: PrivateDirectory,
        endpoints: impl IntoIterator<Item = Endpoint>,
    ) -> Result<Self, BenchError> {
        Ok(PrivateServer {
            asker: None,
            process: SupervisedProcess::start(supervision, directory)?,
            _leftovers: None,
            endpoints: endpoints.into_iter().map(|endpoint| (endpoint.transport(), endpoint)).collect(),
            login: Credentials::default(),
            end_signal: None,
        })
    }

    pub(crate) fn with_login(mut self, login: Credentials) -> Self {
        self.login = login;
        self
    }

    /// Sets a signal that ends the server at once although clients are connected.
    pub(crate) fn ended_by(mut self, signal: Signal) -> Self {
        self.end_signal = Some(signal);
        self
    }

    /// Waits until `answers` succeeds.
    ///
    /// # Errors
    /// When the server ends first or takes too long; with the end of its stderr. [`BenchError::Interrupted`] after a signal:
    /// a login does not begin any more then, so that without this it would be asked for all of [`READY_TIMEOUT`].
    pub(crate) fn ready(
        mut self,
        answers: impl Fn(&Self) -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        let begun = Instant::now();
        loop {
            let Err(error) = answers(&self) else { return Ok(self) };
            if interrupt::is_requested() {
                return Err(BenchError::Interrupted);
            }
            if self.has_ended() {
                return Err(self.process.failure("it ended at once"));
            }
            if begun.elapsed() > READY_TIMEOUT {
                let seconds = READY_TIMEOUT.as_secs();
                return Err(self.process.failure(format!("no answer in {seconds} s: {error}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts the client of `tcp+run` where that is among the transports.
    ///
    /// # Errors
    /// When `samehost run` does not work here.
    pub(crate) fn reached_by_run(
        mut self,
        program: &Path,
        transports: &[Transport],
    ) -> Result<Self, BenchError> {
        if transports.contains(&Transport::TcpRun)
            && let (Some(tcp), Some(unix)) = (self.endpoint(Transport::Tcp), self.endpoint(Transport::Unix))
        {
            let asker = Asker::start(program, tcp, unix)?;
            self.listens_on(asker.endpoint.clone());
            self.asker = Some(asker);
        }
        Ok(self)
    }

    /// Keeps something that is dropped after the server's end.
    pub(crate) fn leaving(mut self, leftovers: impl Any + Send) -> Self {
        self._leftovers = Some(Box::new(leftovers));
        self
    }

    pub(crate) fn listens_on(&mut self, endpoint: Endpoint) {
        self.endpoints.insert(endpoint.transport(), endpoint);
    }

    pub(crate) fn line(&mut self, timeout: Duration) -> Result<String, BenchError> {
        self.process.line(timeout)
    }

    pub(crate) fn failure(&self, reason: impl Into<String>) -> BenchError {
        self.process.failure(reason)
    }

    pub fn endpoint(&self, transport: Transport) -> Option<&Endpoint> {
        self.endpoints.get(&transport)
    }

    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values()
    }

    /// Endpoints without TLS; TLS is on the same port.
    pub fn plain_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints().filter(|endpoint| !endpoint.transport().is_tls())
    }

    /// The server over this transport, with the login.
    pub fn address(&self, transport: Transport) -> Option<ServerAddress> {
        Some(ServerAddress::new(self.endpoint(transport)?.clone(), self.login.clone()))
    }

    /// The server at each of [`plain_endpoints`](Self::plain_endpoints), with the login.
    pub fn plain_addresses(&self) -> impl Iterator<Item = ServerAddress> {
        self.plain_endpoints().map(|endpoint| ServerAddress::new(endpoint.clone(), self.login.clone()))
    }

    pub fn login(&self) -> &Credentials {
        &self.login
    }

    /// Empty where it asks for none.
    pub fn password(&self) -> &str {
        self.login.password.as_ref().map(Secret::reveal).unwrap_or_default()
    }

    /// The server's first process; others are its children.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn directory(&self) -> &Path {
        self.process.directory()
    }

    pub fn stderr_tail(&self) -> String {
        self.process.stderr_tail()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if let Some(signal) = self.end_signal
            && !self.has_ended()
            && let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }
}
