//! PostgreSQL during a measurement: the private server or the given ones, our table in them, the connections of a
//! trial, and a pooler between the client and the private server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Transport, Trial};
use samehost_system::interrupt;
use samehost_system::proc::status::{self, Stat};

use super::Settings;
use super::dialogue::{
    Dialogue, Identity, begin, description, exchange_once, identity, is_ours, leads_to, measured, prepare,
    wait_for_leavers,
};
use super::session::{CopySession, QueryCaller, RowSession};
use super::statement::{Exchange, Protocol, Statement, make_table};
use crate::engine::Job;
use crate::engine::session::{Connector, Seen, Session};
use crate::error::BenchError;
use crate::machine::each_once;
use crate::parameters::{Axis, Word, words};
use crate::private_servers::poolers::{self, PoolerKind, PoolerSpec, database};
use crate::private_servers::{PrivateServer, postgres, random_hex};
use crate::served::{Instance, Served, StartOptions, listening, stderr_tails};
use crate::workloads::requests::{apart, opener, says};

/// Requests of each connection before it is measured, and statements on each connection that a pooler opens to the
/// server. A backend fills its caches with the first request, which takes milliseconds, and plans a prepared statement
/// five more times before it keeps a plan. With a thousand connections that would take longer than the warm-up.
const BEFOREHAND: u32 = 6;

pub(super) struct RunningPostgres {
    /// The pooler in front of the private server; ends first.
    pooler: Option<Pooler>,
    served: Served,
    settings: Settings,
    read_only: bool,
    identities: Vec<(Transport, Identity)>,
    table: String,
    /// One address of each database that has our table.
    tables: Vec<ServerAddress>,
    /// Connectors of earlier jobs; gone when their connections are closed.
    open: Vec<Weak<dyn Connector>>,
}

impl RunningPostgres {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let mut served = Served::one(start, || private_server(settings, start))?;
        let read_only = !served.is_private() && settings.read_only;
        let pooler = match (&settings.pooled, served.private.first()) {
            (Some(pooled), Some(server)) => Some(Pooler::start(pooled, start, server)?),
            _ => None,
        };
        served.proxy_pids = pooler.iter().map(|pooler| pooler.server.pid()).collect();
        let mut running = RunningPostgres {
            pooler,
            served,
            settings: settings.clone(),
            read_only,
            identities: Vec::new(),
            table: format!("samehost_{}", random_hex(8)?),
            tables: Vec::new(),
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

    /// Asks each server who it is. A process that nobody shows us as a listener is found by its backend.
    fn look_around(&mut self) -> Result<(), BenchError> {
        let mut backends = Vec::new();
        for (transport, address) in &self.served.addresses {
            let mut dialogue = begin(address, self.read_only)?;
            self.identities.push((*transport, identity(&mut dialogue)?));
            backends.extend(parent_of_backend(dialogue.backend));
        }
        let differ = self.identities.iter().any(|(_, one)| !one.same_server(&self.identities[0].1));
        let info = &mut self.served.info;
        if info.pids.is_empty() {
            info.pids = each_once(backends);
        }
        info.kind = match &self.pooler {
            Some(pooler) => format!("{} and postgresql", pooler.settings.kind.word()),
            None if differ => format!("postgresql, {}", apart("server")),
            None => "postgresql".into(),
        };
        if let Some((_, first)) = self.identities.first() {
            info.version.clone_from(&first.version);
        }
        Ok(())
    }

    fn make_tables(&mut self) -> Result<(), BenchError> {
        let mut done: Vec<&Identity> = Vec::new();
        for (transport, identity) in &self.identities {
            if done.contains(&identity) {
                continue;
            }
            done.push(identity);
            let address = &self.served.addresses[transport];
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
        if self.served.is_private() {
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
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (mut address, view) = self.served.begin(arm, "PostgreSQL")?;
        if let Some(pooler) = &self.pooler {
            let in_front = pooler.address(pooler.settings.front.at(&arm.point), arm.transport);
            address = listening(arm.transport, "PostgreSQL", in_front)?;
        }
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

    fn stderr_tail(&self) -> String {
        stderr_tails(self.pooler.iter().map(|pooler| &pooler.server).chain(&self.served.private))
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
}

/// Starts the private server; where logging in is measured, its password is stored as users have it.
fn private_server(settings: &Settings, start: &StartOptions) -> Result<PrivateServer, BenchError> {
    let server = postgres::start(&start.program, start.most_connections, is_ours)?;
    if settings.per_query
        && let Some(address) = server.plain_addresses().next()
    {
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
const MAX_CONNECTIONS_OPENED: u32 = 256;

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

/// An address of a pooler, and on to its server over this transport.
fn behind_pooler(mut address: ServerAddress, behind: Transport) -> ServerAddress {
    address.credentials.database = Some(database(behind));
    address
}

impl Pooler {
    fn start(settings: &Pooled, start: &StartOptions, server: &PrivateServer) -> Result<Self, BenchError> {
        let spec = PoolerSpec { server, mode: settings.pool.word(), connections: start.most_connections };
        let pooler = poolers::start(settings.kind, &start.program, &spec, |pooler| {
            for address in pooler.plain_addresses() {
                for behind in [Transport::Tcp, Transport::Unix] {
                    leads_to(server, &behind_pooler(address.clone(), behind))?;
                }
            }
            Ok(())
        })?;
        Ok(Pooler { server: pooler, settings: settings.clone() })
    }

    /// Where to connect to: at the transport in front, to the database that the pooler reaches over that behind.
    fn address(&self, front: Transport, behind: Transport) -> Option<ServerAddress> {
        Some(behind_pooler(self.server.address(front)?, behind))
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
            for _ in 0..connections.min(MAX_CONNECTIONS_OPENED) {
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
