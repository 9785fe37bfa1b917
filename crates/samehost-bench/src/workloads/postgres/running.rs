//! PostgreSQL during a measurement: the private server or the given ones, our table in them, the connections of a
//! trial, and a pooler between the client and the private server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};
use samehost_system::interrupt;
use samehost_system::proc::status::{self, Stat};

use super::Settings;
use super::dialogue::{
    Dialogue, Identity, begin, description, exchange_once, identity, is_ours, leads_to, login, measured,
    prepare, wait_for_leavers,
};
use super::session::{CopySession, QueryCaller, RowSession};
use super::statement::{Exchange, Protocol, Statement, make_table};
use crate::engine::Job;
use crate::engine::session::{Connector, Seen, Session};
use crate::error::BenchError;
use crate::parameters::{Axis, Word, words};
use crate::private_servers::poolers::{self, PoolerKind, PoolerSpec, database};
use crate::private_servers::{PrivateServer, postgres, random_hex};
use crate::workload::{Instance, Servers, StartOptions};
use crate::workloads::foreign::{foreign_pids, needs_private, own_addresses};
use crate::workloads::requests::{View, apart, listening, opener, says};

/// Requests of each connection before it is measured, and statements on each connection that a pooler opens to the
/// server. A backend fills its caches with the first request, which takes milliseconds, and plans a prepared statement
/// five more times before it keeps a plan. With a thousand connections that would take longer than the warm-up.
const BEFOREHAND: u32 = 6;

pub(super) struct RunningPostgres {
    /// The pooler in front of the private server; ends first.
    pooler: Option<Pooler>,
    private: Option<PrivateServer>,
    addresses: Servers,
    settings: Settings,
    read_only: bool,
    identities: Vec<(Transport, Identity)>,
    pids: Vec<u32>,
    table: String,
    /// One address of each database that has our table.
    tables: Vec<ServerAddress>,
    view: View,
    /// Connectors of earlier jobs; gone when their connections are closed.
    open: Vec<Weak<dyn Connector>>,
}

impl RunningPostgres {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let server = if needs_private(start)? { Some(private_server(settings, start)?) } else { None };
        let addresses = match &server {
            Some(server) => own_addresses(server, &start.transports, &login(server, "postgres")),
            None => start.servers.clone(),
        };
        let read_only = server.is_none() && settings.read_only;
        let pooler = match (&settings.pooled, &server) {
            (Some(pooled), Some(server)) => Some(Pooler::start(pooled, start, server)?),
            _ => None,
        };
        let mut running = RunningPostgres {
            pooler,
            private: server,
            addresses,
            settings: settings.clone(),
            read_only,
            identities: Vec::new(),
            pids: Vec::new(),
            table: format!("samehost_{}", random_hex(8)?),
            tables: Vec::new(),
            view: View::default(),
            open: Vec::new(),
        };
        running.look_around()?;
        if settings.statement.has_table() {
            running.make_tables()?;
        }
        if let Some(pooler) = &running.pooler {
            pooler.fill(start.connections_of_an_arm, settings.statement, &running.table)?;
        }
        Ok(running)
    }

    fn look_around(&mut self) -> Result<(), BenchError> {
        let mut backends = Vec::new();
        for (transport, address) in &self.addresses {
            let mut dialogue = begin(address, self.read_only)?;
            self.identities.push((*transport, identity(&mut dialogue)?));
            backends.push(parent_of_backend(dialogue.backend));
        }
        self.pids = match &self.private {
            Some(server) => vec![server.pid()],
            None => {
                let found = foreign_pids(self.addresses.values().map(|address| &address.endpoint));
                if found.is_empty() { backends.into_iter().flatten().collect() } else { found }
            }
        };
        self.pids.sort_unstable();
        self.pids.dedup();
        Ok(())
    }

    fn are_different_servers(&self) -> bool {
        let [(_, first), others @ ..] = self.identities.as_slice() else { return false };
        others.iter().any(|(_, identity)| !identity.same_server(first))
    }

    fn make_tables(&mut self) -> Result<(), BenchError> {
        let mut done: Vec<&Identity> = Vec::new();
        for (transport, identity) in &self.identities {
            if done.contains(&identity) {
                continue;
            }
            done.push(identity);
            let address = &self.addresses[transport];
            let mut dialogue = begin(address, false)?;
            for (number, sql) in make_table(&self.table, self.settings.rows).iter().enumerate() {
                dialogue.must("to make and fill our table", sql)?;
                if number == 0 {
                    self.tables.push(address.clone());
                }
            }
        }
        Ok(())
    }

    fn drop_table(&self, address: &ServerAddress) -> Result<(), BenchError> {
        let sql = format!("DROP TABLE IF EXISTS {}", self.table);
        begin(address, false)?.must("to drop our table", &sql)?;
        Ok(())
    }

    fn asked(&self, dialogue: &mut Dialogue) -> Result<Asked, BenchError> {
        let Settings { statement, protocol, rows, .. } = self.settings;
        if statement == Statement::Copy {
            return Ok(Asked::Copy { table: self.table.clone(), rows });
        }
        let has_row = matches!(statement, Statement::PointSelect | Statement::Select1);
        let description = if has_row && protocol == Protocol::Simple {
            description(dialogue, &statement.sql(&self.table, "0"))?
        } else {
            Vec::new()
        };
        let once = self.settings.prepares_once();
        let exchange = Exchange::new(statement, protocol, !once, (&self.table, rows), &description)?;
        let mut prepared = None;
        if protocol == Protocol::Extended && once {
            prepared = Some((statement.sql(&self.table, "$1"), statement.parameters()));
        }
        Ok(Asked::Rows { exchange, prepared })
    }
}

impl Drop for RunningPostgres {
    fn drop(&mut self) {
        if self.private.is_some() {
            return;
        }
        for address in &self.tables {
            if let Err(error) = interrupt::putting_right(|| self.drop_table(address)) {
                tracing::warn!(
                    "the table {} could not be dropped: {error}; `DROP TABLE {}` in database {} does it",
                    self.table,
                    self.table,
                    address.credentials.database.as_deref().unwrap_or_default()
                );
            }
        }
    }
}

impl Instance for RunningPostgres {
    fn server(&self) -> ServerInfo {
        ServerInfo {
            kind: if let Some(pooler) = &self.pooler {
                format!("{} and postgresql", pooler.settings.kind.word())
            } else if self.are_different_servers() {
                format!("postgresql, {}", apart("server"))
            } else {
                "postgresql".into()
            },
            version: match self.identities.first() {
                Some((_, identity)) => identity.version.clone(),
                None => String::new(),
            },
            managed: self.private.is_some(),
            pids: self.pids.clone(),
        }
    }

    fn proxy_pids(&self) -> Vec<u32> {
        self.pooler.iter().map(|pooler| pooler.server.pid()).collect()
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let address = match &self.pooler {
            Some(pooler) => pooler.address(pooler.settings.front.at(&arm.point), arm.transport),
            None => self.addresses.get(&arm.transport).cloned(),
        };
        let address = listening(arm.transport, "PostgreSQL", address)?;
        let mut dialogue = begin(&address, self.read_only)?;
        // Connections of a round's arms are open at the same time, so they are not waited for.
        self.open.retain(|connector| connector.strong_count() > 0);
        match &self.pooler {
            // A pooler keeps its connections to the server, so that no backend ends.
            Some(pooler) => pooler.check(arm, &mut dialogue)?,
            None if self.open.is_empty() => wait_for_leavers(&mut dialogue)?,
            None => {}
        }
        let asked = self.asked(&mut dialogue)?;
        let view = View::default();
        self.view = view.clone();
        if self.settings.per_query {
            let Asked::Rows { exchange, .. } = asked else {
                return BenchError::refuse("--connect per-query is for statements of one row");
            };
            view.of_first(|| Ok(dialogue.seen().ok().map(says)))?;
            let cipher = dialogue.link.cipher().map(|cipher| format!(", {cipher}")).unwrap_or_default();
            let seen = Seen::of_socket(&dialogue.link.into_stream()?).saying(&cipher);
            return Job::callers(&address.endpoint, Some(seen), arm.point.connections, |number| {
                let session = RowSession::new(exchange.clone(), u64::from(number));
                Ok(QueryCaller { address: address.clone(), session, read_only: self.read_only })
            });
        }
        let whole = matches!(asked, Asked::Copy { .. });
        let (read_only, opened) = (self.read_only, AtomicU64::new(0));
        let connector = opener(&address.endpoint.clone(), move || {
            let mut dialogue = measured(&address, read_only)?;
            view.of_first(|| Ok(dialogue.seen().ok().map(says)))?;
            let session = asked.session(&mut dialogue, opened.fetch_add(1, Ordering::Relaxed))?;
            Ok((dialogue.link.into_stream()?, session))
        });
        self.open.push(Arc::downgrade(&connector));
        Ok(if whole { Job::Whole { connector } } else { Job::Sessions { connector, small: true } })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.addresses.get(&transport).map(|address| address.endpoint.clone())
    }

    fn stderr_tail(&self) -> String {
        let pooler = self.pooler.iter().map(|pooler| &pooler.server);
        let mut tails: Vec<String> = pooler.chain(&self.private).map(PrivateServer::stderr_tail).collect();
        tails.retain(|tail| !tail.is_empty());
        tails.join("\n")
    }

    fn add_observations(&mut self, trial: &mut Trial) {
        let Some(view) = self.server_view() else { return };
        let Some(observed) = &mut trial.transport_observed else { return };
        let Some(pooler) = &self.pooler else {
            observed.push_str(&format!("; {view}"));
            return;
        };
        *observed = format!("in front {observed}; behind {} {view}", pooler.settings.kind.title());
        // The kernel's evidence is about the connection in front, which is the same in both arms.
        trial.connection = None;
        // PgBouncer has one thread, and Odyssey is started with one worker.
        trial.proxy_most_cpus = Some(1.0);
    }

    fn server_view(&mut self) -> Option<String> {
        self.view.said()
    }
}

/// Starts the private server; where logging in is measured, its password is stored as users have it.
fn private_server(settings: &Settings, start: &StartOptions) -> Result<PrivateServer, BenchError> {
    let server = postgres::start(&start.program, start.most_connections, is_ours)?;
    if settings.per_query
        && let Some(endpoint) = server.endpoints().next()
    {
        let address = ServerAddress::new(endpoint.clone(), login(&server, "postgres"));
        let mut dialogue = begin(&address, false)?;
        for sql in postgres::usual_password(&server) {
            dialogue.must("to store the password as users do", &sql)?;
        }
    }
    Ok(server)
}

/// The postmaster of a backend, if it is on this machine and visible to us.
fn parent_of_backend(backend: i32) -> Option<u32> {
    let backend = status::read_stat(u32::try_from(backend).ok()?)?;
    let postmaster = status::read_stat(backend.parent)?;
    if is_postgres(&backend) && is_postgres(&postmaster) { Some(backend.parent) } else { None }
}

fn is_postgres(stat: &Stat) -> bool {
    stat.name.starts_with("postgres")
}

enum Asked {
    Rows {
        exchange: Exchange,
        /// The statement that each connection prepares, and its number of integer parameters.
        prepared: Option<(String, usize)>,
    },
    Copy {
        table: String,
        rows: u32,
    },
}

impl Asked {
    /// The session of the connection of this number, which is the seed of its rows, the same in every trial.
    fn session(&self, dialogue: &mut Dialogue, number: u64) -> Result<Box<dyn Session>, BenchError> {
        match self {
            Asked::Rows { exchange, prepared } => {
                if let Some((sql, parameters)) = prepared {
                    prepare(dialogue, sql, *parameters)?;
                }
                let mut session = RowSession::new(exchange.clone(), number);
                for _ in 0..BEFOREHAND {
                    exchange_once(dialogue, &mut session)?
                        .map_err(|bad| BenchError::lost(dialogue.link.endpoint(), bad.to_string()))?;
                }
                Ok(Box::new(session))
            }
            Asked::Copy { table, rows } => {
                // Rows then come in the order of insertion even if others scan the table too; pg_dump does the same.
                dialogue.must("a setting", "SET synchronize_seqscans = off")?;
                Ok(Box::new(CopySession::new(table, *rows)?))
            }
        }
    }
}

words! {
    pub(super) enum Pool { Transaction = "transaction", Session = "session" }
}

pub(super) const VIA: &[&str] = &["none", "pgbouncer", "odyssey"];
pub(super) const FRONTS: &[&str] = &["tcp", "unix"];
/// Most connections to the server that are opened before the first trial: each takes some milliseconds.
const MOST_OPENED: u32 = 256;

#[derive(Clone, Debug)]
pub(super) struct Pooled {
    pub(super) kind: PoolerKind,
    pub(super) pool: Pool,
    pub(super) front: Axis<Transport>,
}

/// A pooler between the client and the private server. An arm is the transport behind it; the transport in front is a
/// factor of its own.
struct Pooler {
    server: PrivateServer,
    settings: Pooled,
}

impl Pooler {
    fn start(settings: &Pooled, start: &StartOptions, server: &PrivateServer) -> Result<Self, BenchError> {
        let spec = PoolerSpec { server, mode: settings.pool.word(), connections: start.most_connections };
        let pooler = poolers::start(settings.kind, &start.program, &spec, |pooler| {
            for endpoint in pooler.endpoints() {
                for behind in [Transport::Tcp, Transport::Unix] {
                    let login = login(server, &database(behind));
                    leads_to(server, &ServerAddress::new(endpoint.clone(), login))?;
                }
            }
            Ok(())
        })?;
        Ok(Pooler { server: pooler, settings: settings.clone() })
    }

    /// Where to connect to: at the transport in front, to the database that the pooler reaches over that behind.
    fn address(&self, front: Transport, behind: Transport) -> Option<ServerAddress> {
        let endpoint = self.server.endpoint(front)?;
        Some(ServerAddress::new(endpoint.clone(), login(&self.server, &database(behind))))
    }

    /// Opens as many connections to the server as an arm needs, over each transport: otherwise the first trials would
    /// pay for their login. A client that waits inside a transaction keeps its connection, so the pooler has to open
    /// another one for the next client.
    fn fill(&self, connections: u32, statement: Statement, table: &str) -> Result<(), BenchError> {
        let statement = if statement.has_table() { Statement::PointSelect } else { statement };
        let sql = statement.sql(table, "1000000001");
        for behind in [Transport::Tcp, Transport::Unix] {
            let Some(address) = self.address(Transport::Unix, behind) else { continue };
            let mut open = Vec::new();
            for _ in 0..connections.min(MOST_OPENED) {
                let mut dialogue = begin(&address, false)?;
                dialogue.must("to begin a transaction", "BEGIN")?;
                for _ in 0..BEFOREHAND {
                    dialogue.must("a statement", &sql)?;
                }
                open.push(dialogue);
            }
            for mut dialogue in open {
                dialogue.must("to end a transaction", "COMMIT")?;
                dialogue.end()?;
            }
        }
        Ok(())
    }

    /// Checks by the server's own view of the session that the pooler came by the arm's transport.
    fn check(&self, arm: &Arm, dialogue: &mut Dialogue) -> Result<(), BenchError> {
        let seen = dialogue.seen()?;
        if seen.transport() == Some(arm.transport.name()) {
            return Ok(());
        }
        Err(BenchError::WrongTransport { asked: arm.transport, observed: says(seen) })
    }
}
