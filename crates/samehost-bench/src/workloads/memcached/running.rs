//! memcached during a measurement: a private process for each transport or the given servers, our key in
//! them, and the connections of a trial.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use samehost_model::{Arm, Endpoint, ServerInfo, Transport};
use samehost_system::interrupt;
use samehost_transport::Stream;

use super::dialogue::{Exchange, MemcachedSession};
use super::{Command, Settings, dialogue};
use crate::engine::Job;
use crate::engine::session::{Connector, Session};
use crate::error::BenchError;
use crate::private_servers::{PrivateServer, memcached, random_hex};
use crate::workload::{Instance, StartOptions};
use crate::workloads::foreign::Given;
use crate::workloads::requests::{apart, link_to, size_of, value};

/// The running processes.
pub(super) struct RunningMemcached {
    settings: Settings,
    private: BTreeMap<Transport, PrivateServer>,
    given: BTreeMap<Transport, Endpoint>,
    version: String,
    foreign_pids: Vec<u32>,
    key: String,
    /// Given servers in which our key was set.
    touched: Vec<Endpoint>,
    /// Transport of the current trial: only its process counts as the server then.
    current: Option<Transport>,
    connector: Option<Arc<MemcachedConnector>>,
}

impl RunningMemcached {
    pub(super) fn start(settings: Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let given = Given::of(start);
        let mut running = RunningMemcached {
            settings,
            private: BTreeMap::new(),
            foreign_pids: given.pids,
            given: given.endpoints,
            version: String::new(),
            key: format!("samehost:{}", random_hex(8)?),
            touched: Vec::new(),
            current: None,
            connector: None,
        };
        for transport in given.missing {
            let most = start.most_connections;
            let server = memcached::start(&start.program, transport, most, dialogue::is_ours)?;
            running.private.insert(transport, server);
        }
        let private = running.private.values().flat_map(PrivateServer::endpoints);
        let first = running.given.values().chain(private).next().cloned();
        if let Some(first) = first {
            running.version = dialogue::version(&mut link_to(&first)?)?;
        }
        Ok(running)
    }

    fn delete_key(&self) -> Result<(), BenchError> {
        for endpoint in &self.touched {
            dialogue::delete(&mut link_to(endpoint)?, &self.key)?;
        }
        Ok(())
    }
}

impl Drop for RunningMemcached {
    fn drop(&mut self) {
        if let Err(error) = interrupt::putting_right(|| self.delete_key()) {
            tracing::warn!("the key {} could not be deleted: {error}", self.key);
        }
    }
}

impl Instance for RunningMemcached {
    fn server(&self) -> ServerInfo {
        let pids = match self.current {
            Some(current) => self.private.get(&current).map(|private| vec![private.pid()]),
            None if self.private.is_empty() => None,
            None => Some(self.private.values().map(PrivateServer::pid).collect()),
        };
        ServerInfo {
            kind: if self.given.is_empty() {
                "memcached, a process for each transport (it cannot listen on both), started afresh for every block".into()
            } else {
                format!("memcached, {}", apart("process"))
            },
            version: self.version.clone(),
            managed: self.given.is_empty(),
            pids: pids.unwrap_or_else(|| self.foreign_pids.clone()),
        }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint =
            self.endpoint(arm.transport).ok_or_else(|| BenchError::nobody_on(arm.transport, "memcached"))?;
        if self.given.contains_key(&arm.transport) && !self.touched.contains(&endpoint) {
            self.touched.push(endpoint.clone());
        }
        let size = size_of(arm);
        let (protocol, value) = (self.settings.protocol, value(size));
        let set = Exchange::set(protocol, &self.key, &value);
        dialogue::set(&mut link_to(&endpoint)?, &set)?;
        let exchange = match self.settings.command {
            Command::Set => set,
            Command::Get => Exchange::get(protocol, &self.key, &value),
        };
        let connector = Arc::new(MemcachedConnector { endpoint, exchange, view: OnceLock::new() });
        self.connector = Some(Arc::clone(&connector));
        self.current = Some(arm.transport);
        Ok(Job::Sessions { connector, small: true })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        let private = self.private.get(&transport).and_then(|server| server.endpoint(transport));
        self.given.get(&transport).or(private).cloned()
    }

    fn stderr_tail(&self) -> String {
        let current = self.current.and_then(|current| self.private.get(&current));
        current.map(PrivateServer::stderr_tail).unwrap_or_default()
    }

    fn server_view(&mut self) -> Option<String> {
        self.connector.as_ref()?.view.get().cloned().flatten()
    }
}

struct MemcachedConnector {
    endpoint: Endpoint,
    exchange: Exchange,
    /// The server's view of the first connection, which is also the one that the kernel is asked about.
    view: OnceLock<Option<String>>,
}

impl Connector for MemcachedConnector {
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError> {
        let mut link = link_to(&self.endpoint)?;
        if self.view.get().is_none() {
            let _ = self.view.set(dialogue::view(&mut link)?);
        }
        Ok((link.into_stream()?, Box::new(MemcachedSession::new(self.exchange.clone()))))
    }

    fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }
}
