//! Redis during a measurement: the private server or the given ones, our keys in them, and the connections of
//! a trial.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, ServerInfo, Transport};
use samehost_services::Kind;
use samehost_system::interrupt;
use samehost_transport::Stream;

use super::super::requests::{apart, size_of, value};
use super::dialogue::{Dialogue, Identity, begin, is_ours, login, measured, view};
use super::session::{Exchange, RedisSession};
use super::{Command, Settings};
use crate::engine::Job;
use crate::engine::session::{Connector, Session};
use crate::error::BenchError;
use crate::private_servers::podman::{Inside, Place};
use crate::private_servers::{PrivateServer, REDIS, random_hex, redis};
use crate::workload::{Instance, Servers, StartOptions};
use crate::workloads::foreign::{foreign_pids, needs_private, own_addresses};

/// A running Redis.
pub(super) struct RunningRedis {
    /// The private server in each place, or the given ones as one.
    servers: Vec<Served>,
    /// The one of the last trial.
    current: usize,
    settings: Settings,
    identity: Identity,
    /// Whether the given servers are more than one process.
    differ: bool,
    /// Prefix of all our keys.
    prefix: String,
    /// Keys that we set, to be deleted in servers that are not ours.
    keys: BTreeSet<String>,
    /// Connections of the last trial.
    connector: Option<Arc<RedisConnector>>,
    /// Number of counters in use, one for each connection.
    counters: Arc<AtomicU32>,
    /// Highest number of counters so far.
    most_counters: u32,
    /// Connectors; gone when their connections are closed.
    open: Vec<Weak<RedisConnector>>,
}

impl RunningRedis {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let servers = if needs_private(start)? {
            // What is missing is said before anything is started.
            settings.place.values.iter().try_for_each(|place| place.check())?;
            let places = settings.place.values.iter();
            places.map(|place| Served::private(*place, start)).collect::<Result<_, _>>()?
        } else {
            vec![Served::given(start)]
        };
        let mut identities = Vec::new();
        for address in servers.iter().flat_map(|served| served.addresses.values()) {
            identities.push(begin(address)?.identity()?);
        }
        let differ = servers.iter().all(|served| served.private.is_none())
            && identities.iter().any(|identity| identity.run_id != identities[0].run_id);
        Ok(RunningRedis {
            servers,
            current: 0,
            differ,
            identity: identities.into_iter().next().unwrap_or_default(),
            settings: settings.clone(),
            prefix: format!("samehost:{}:", random_hex(8)?),
            keys: BTreeSet::new(),
            connector: None,
            counters: Arc::default(),
            most_counters: 0,
            open: Vec::new(),
        })
    }

    fn current(&self) -> &Served {
        &self.servers[self.current]
    }

    fn is_foreign(&self) -> bool {
        self.current().private.is_none()
    }

    /// Makes the request of a trial, and sets up its key in the arm's server.
    fn asked(&mut self, arm: &Arm, dialogue: &mut Dialogue) -> Result<Asked, BenchError> {
        let pipeline = self.settings.pipeline.at(&arm.point);
        let size = size_of(arm);
        let key = format!("{}{size}", self.prefix);
        Ok(Asked::Same(match self.settings.command {
            Command::Incr => {
                // Arms of a round have their connections open at the same time, so no counter is used twice.
                let (prefix, next) = (format!("{}counter:", self.prefix), Arc::clone(&self.counters));
                return Ok(Asked::Counters { prefix, pipeline, next });
            }
            Command::Ping => {
                dialogue.must("PING", &[b"PING"])?;
                Exchange::new(&[b"PING"], pipeline, (b"+PONG\r\n", b"", b""))
            }
            Command::Get | Command::Set => {
                let value = value(size);
                self.keys.insert(key.clone());
                dialogue.must("setting a key", &[b"SET", key.as_bytes(), &value])?;
                if self.settings.command == Command::Set {
                    Exchange::new(&[b"SET", key.as_bytes(), &value], pipeline, (b"+OK\r\n", b"", b""))
                } else {
                    let head = format!("${size}\r\n");
                    Exchange::new(&[b"GET", key.as_bytes()], pipeline, (head.as_bytes(), &value, b"\r\n"))
                }
            }
        }))
    }

    /// Frees counters whose connections are closed. Those of a round's arms are in use at the same time.
    fn free_counters(&mut self) {
        self.connector = None;
        self.open.retain(|connector| connector.strong_count() > 0);
        if self.open.is_empty() {
            self.most_counters = self.most_counters.max(self.counters.swap(0, Ordering::Relaxed));
        }
    }

    fn delete_keys(&self) -> Result<(), BenchError> {
        let most = self.most_counters.max(self.counters.load(Ordering::Relaxed));
        let counters = (0..most).map(|number| format!("{}counter:{number}", self.prefix));
        let keys: Vec<String> = self.keys.iter().cloned().chain(counters).collect();
        // A server has one set of keys, over whichever transport.
        let addresses = &self.current().addresses;
        let places = if self.differ { addresses.len() } else { 1 };
        for address in addresses.values().take(places).filter(|_| !keys.is_empty()) {
            let mut dialogue = begin(address)?;
            for some in keys.chunks(500) {
                let mut words: Vec<&[u8]> = vec![b"DEL"];
                words.extend(some.iter().map(String::as_bytes));
                dialogue.must("deleting our keys", &words)?;
            }
        }
        Ok(())
    }
}

impl Drop for RunningRedis {
    fn drop(&mut self) {
        if self.is_foreign()
            && let Err(error) = interrupt::putting_right(|| self.delete_keys())
        {
            tracing::warn!(
                "keys {}* could not be deleted: {error}; `redis-cli --scan --pattern '{}*' | xargs redis-cli del` does it",
                self.prefix,
                self.prefix
            );
        }
    }
}

impl Instance for RunningRedis {
    fn server(&self) -> ServerInfo {
        let kind = self.identity.kind.unwrap_or(Kind::Redis).name();
        let containers: Vec<&str> = self
            .servers
            .iter()
            .map(|served| served.container.as_str())
            .filter(|text| !text.is_empty())
            .collect();
        ServerInfo {
            kind: if self.differ {
                format!("{kind}, {}", apart("process"))
            } else if containers.is_empty() {
                kind.into()
            } else {
                format!("{kind} in a container ({})", containers.join("; "))
            },
            version: self.identity.version.clone(),
            managed: !self.is_foreign(),
            pids: self.current().pids.clone(),
        }
    }

    fn proxy_pids(&self) -> Vec<u32> {
        self.current().proxies.clone()
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let place = self.settings.place.at(&arm.point);
        self.current = self.servers.iter().position(|served| served.place == place).unwrap_or(0);
        let address = self
            .current()
            .addresses
            .get(&arm.transport)
            .cloned()
            .ok_or_else(|| BenchError::nobody_on(arm.transport, "Redis"))?;
        let mut dialogue = begin(&address)?;
        self.free_counters();
        let asked = self.asked(arm, &mut dialogue)?;
        let connector = Arc::new(RedisConnector { address, asked, view: OnceLock::new() });
        self.open.push(Arc::downgrade(&connector));
        self.connector = Some(Arc::clone(&connector));
        Ok(Job::Sessions { connector, small: true })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        let [one] = self.servers.as_slice() else { return None };
        one.addresses.get(&transport).map(|address| address.endpoint.clone())
    }

    fn stderr_tail(&self) -> String {
        self.current().private.as_ref().map(PrivateServer::stderr_tail).unwrap_or_default()
    }

    fn server_view(&mut self) -> Option<String> {
        self.connector.as_ref()?.view.get().cloned().flatten()
    }
}

/// A server with its addresses and processes.
struct Served {
    place: Place,
    /// `None` where servers were given.
    private: Option<PrivateServer>,
    addresses: Servers,
    pids: Vec<u32>,
    /// Processes that pass on what goes to its port.
    proxies: Vec<u32>,
    /// What publishes its port; empty outside of containers.
    container: String,
}

impl Served {
    /// Starts a private server.
    fn private(place: Place, start: &StartOptions) -> Result<Self, BenchError> {
        let server =
            redis::start(place, &start.program, start.most_connections, |server| is_ours(server, place))?
                .reached_by_run(&start.program, &start.transports)?;
        let inside =
            if place.is_container() { Inside::of(server.pid(), &(REDIS.find)()?) } else { Inside::default() };
        if place.is_container() && inside.server.is_empty() {
            return Err(server.failure("its process is not among podman's"));
        }
        Ok(Served {
            place,
            addresses: own_addresses(&server, &start.transports, &login(&server)),
            pids: if place.is_container() { inside.server } else { vec![server.pid()] },
            proxies: inside.proxies,
            container: if place.is_container() { place.described()? } else { String::new() },
            private: Some(server),
        })
    }

    /// The servers that the command line gives.
    fn given(start: &StartOptions) -> Self {
        Served {
            place: Place::Machine,
            private: None,
            addresses: start.servers.clone(),
            pids: foreign_pids(start.servers.values().map(|address| &address.endpoint)),
            proxies: Vec::new(),
            container: String::new(),
        }
    }
}

/// What the connections of a trial request.
enum Asked {
    /// All the same.
    Same(Exchange),
    /// Each its own counter, so that every number is known beforehand.
    Counters { prefix: String, pipeline: u32, next: Arc<AtomicU32> },
}

struct RedisConnector {
    address: ServerAddress,
    asked: Asked,
    /// The server's view of the first connection, which is also the one that the kernel is asked about.
    view: OnceLock<Option<String>>,
}

impl Connector for RedisConnector {
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError> {
        let mut dialogue = measured(&self.address)?;
        if self.view.get().is_none() {
            let _ = self.view.set(view(&mut dialogue)?);
        }
        let exchange = match &self.asked {
            Asked::Same(exchange) => exchange.clone(),
            Asked::Counters { prefix, pipeline, next } => {
                let key = format!("{prefix}{}", next.fetch_add(1, Ordering::Relaxed));
                dialogue.must("setting a counter", &[b"SET", key.as_bytes(), b"0"])?;
                Exchange::counting(&[b"INCR", key.as_bytes()], *pipeline)
            }
        };
        Ok((dialogue.into_link().into_stream()?, Box::new(RedisSession::new(exchange))))
    }

    fn endpoint(&self) -> String {
        self.address.endpoint.to_string()
    }
}
