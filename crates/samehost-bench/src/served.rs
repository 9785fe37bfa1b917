//! The servers of a workload while it is measured: those that were given, or private ones. What is the same whatever they
//! speak is here; a workload adds what is started, and what its connections ask.
//!
//! A generic `Served<P: Protocol>` that implements [`Instance`] was rejected: WordPress, a proxy and PHP-FPM have several servers of
//! several kinds, and PostgreSQL has a pooler, so that each would override most of it. With a [`Served`] in the workload's own
//! struct the methods of `Instance` have a default for everybody, and whoever differs overrides one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};

use crate::engine::Job;
use crate::error::BenchError;
use crate::machine::{each_once, listener_pids};
use crate::network::OwnNetwork;
use crate::private_servers::PrivateServer;

#[derive(Clone, Debug)]
pub struct StartOptions {
    pub program: PathBuf,
    pub transports: Vec<Transport>,
    pub congestion: Vec<String>,
    pub socket_buffers: Vec<u64>,
    pub connections_of_an_arm: u32,
    /// Most connections open at once: those of all arms of a point if they take turns.
    pub most_connections: u32,
    pub servers: Servers,
    pub commands: Vec<(String, String)>,
    /// Network namespace for servers behind a Unix socket, if the workload asked for one.
    pub behind: Option<Arc<OwnNetwork>>,
    /// Whether routes set the congestion control, so that no socket needs to.
    pub routed: bool,
}

/// Servers that already run, by transport.
pub type Servers = BTreeMap<Transport, ServerAddress>;

impl StartOptions {
    /// Transports for which no server was given.
    pub(crate) fn missing(&self) -> Vec<Transport> {
        let mut missing = self.transports.clone();
        missing.retain(|transport| !self.servers.contains_key(transport));
        missing
    }

    /// Whether to start a private server: if no server is given at all.
    ///
    /// # Errors
    /// When only some of the transports have a server.
    pub(crate) fn needs_private(&self) -> Result<bool, BenchError> {
        let is_missing = !self.missing().is_empty();
        if is_missing && !self.servers.is_empty() {
            return BenchError::refuse(
                "a server that runs and a private one would not be the same server; give both --tcp and --unix, or one with --transports naming it",
            );
        }
        Ok(is_missing)
    }
}

/// What a server says of the first connection of a job, which is also the one that the kernel is asked about.
#[derive(Clone, Debug, Default)]
pub(crate) struct View(Arc<OnceLock<Option<String>>>);

impl View {
    /// Asks the server, unless an earlier connection has.
    pub(crate) fn of_first(
        &self,
        ask: impl FnOnce() -> Result<Option<String>, BenchError>,
    ) -> Result<(), BenchError> {
        if self.0.get().is_none() {
            // Another thread may have been faster.
            let _ = self.0.set(ask()?);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct Served {
    /// Servers that we started; they end when this is dropped.
    pub(crate) private: Vec<PrivateServer>,
    pub(crate) addresses: Servers,
    pub(crate) info: ServerInfo,
    /// Processes of a proxy between client and server, such as nginx.
    pub(crate) proxy_pids: Vec<u32>,
    view: View,
}

impl Served {
    /// One server for all transports: that which was given, or else a private one.
    ///
    /// # Errors
    /// When only some of the transports have a server, or the private one does not start.
    pub(crate) fn one(
        start: &StartOptions,
        private: impl FnOnce() -> Result<PrivateServer, BenchError>,
    ) -> Result<Self, BenchError> {
        let mut served = Served::given(start);
        if start.needs_private()? {
            served.add(private()?, &start.transports);
        }
        Ok(served)
    }

    /// The servers that were given, and their processes.
    pub(crate) fn given(start: &StartOptions) -> Self {
        let pids = foreign_pids(start.servers.values().map(|address| &address.endpoint));
        let info = ServerInfo { pids, ..ServerInfo::default() };
        Served { addresses: start.servers.clone(), info, ..Served::default() }
    }

    /// Adds a private server, for these transports.
    pub(crate) fn add(&mut self, server: PrivateServer, transports: &[Transport]) {
        for transport in transports {
            if let Some(address) = server.address(*transport) {
                self.addresses.insert(*transport, address);
            }
        }
        self.info.managed = true;
        self.info.pids.push(server.pid());
        self.private.push(server);
    }

    /// Names for the report what was given, or the built-in server that we started.
    pub(crate) fn called(mut self, given: &str, ours: &str) -> Self {
        if self.info.managed {
            self.info.kind = ours.into();
            self.info.version = env!("CARGO_PKG_VERSION").into();
        } else {
            self.info.kind = given.into();
        }
        self
    }

    /// Whether we started a server.
    pub(crate) fn is_private(&self) -> bool {
        !self.private.is_empty()
    }

    pub(crate) fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.addresses.get(&transport).map(|address| address.endpoint.clone())
    }

    /// Where the connections of a trial lead, and what is to be told of the first of them. `title` is the server's in messages.
    ///
    /// # Errors
    /// When no server listens on the arm's transport.
    pub(crate) fn begin(&mut self, arm: &Arm, title: &str) -> Result<(ServerAddress, View), BenchError> {
        let address = self.addresses.get(&arm.transport).cloned();
        self.view = View::default();
        Ok((listening(arm.transport, title, address)?, self.view.clone()))
    }
}

/// What was found for an arm's transport, or the error that no server, which messages call `what`, is there.
pub(crate) fn listening<T>(transport: Transport, what: &str, found: Option<T>) -> Result<T, BenchError> {
    match found {
        Some(found) => Ok(found),
        None => BenchError::refuse(format!("no {what} listens on {transport} for this trial")),
    }
}

pub(crate) fn foreign_pids<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Vec<u32> {
    each_once(endpoints.flat_map(listener_pids).collect())
}

/// The ends of what several servers wrote to stderr.
pub(crate) fn stderr_tails<'a>(servers: impl IntoIterator<Item = &'a PrivateServer>) -> String {
    let mut tails: Vec<String> = servers.into_iter().map(PrivateServer::stderr_tail).collect();
    tails.retain(|tail| !tail.is_empty());
    tails.join("\n")
}

/// A workload's running servers; they end when this is dropped.
pub trait Instance: Send {
    fn served(&self) -> &Served;

    /// # Errors
    /// When the server cannot be reached.
    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError>;

    fn server(&self) -> ServerInfo {
        self.served().info.clone()
    }

    fn proxy_pids(&self) -> Vec<u32> {
        self.served().proxy_pids.clone()
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.served().endpoint(transport)
    }

    fn stderr_tail(&self) -> String {
        stderr_tails(&self.served().private)
    }

    /// What the server reports about the connections of the last job, which are open, or were.
    fn server_view(&self) -> Option<String> {
        self.served().view.0.get().cloned().flatten()
    }

    /// Adds what is known about the connections of the last job, which are open, or were.
    fn add_observations(&mut self, trial: &mut Trial) {
        if let (Some(observed), Some(view)) = (&mut trial.transport_observed, self.server_view()) {
            observed.push_str("; ");
            observed.push_str(&view);
        }
    }

    /// Called when the connections of a trial, or of all arms of a round, are closed.
    fn finish_trial(&mut self, _trial: &mut Trial) {}
}
