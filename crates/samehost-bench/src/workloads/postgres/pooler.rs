//! A pooler between the client and the private server: its addresses, and whether it reaches the server as it should.

use samehost_login::ServerAddress;
use samehost_model::{Arm, Transport};

use super::dialogue::{Dialogue, begin, leads_to, login};
use super::statement::Statement;
use crate::error::BenchError;
use crate::parameters::{Axis, Word, words};
use crate::private_servers::PrivateServer;
use crate::private_servers::poolers::{self, PoolerKind, PoolerSpec, database};
use crate::workload::StartOptions;
use crate::workloads::requests::says;

words! {
    /// How long a client keeps a connection to the server.
    pub(super) enum Pool { Transaction = "transaction", Session = "session" }
}

/// What may stand between client and server.
pub(super) const VIA: &[&str] = &["none", "pgbouncer", "odyssey"];
/// Transports in front of the pooler.
pub(super) const FRONTS: &[&str] = &["tcp", "unix"];
/// Statements on each new connection to the server: its backend fills its caches with the first ones.
const BEFOREHAND: u32 = 6;
/// Most connections to the server that are opened before the first trial: each takes some milliseconds.
const MOST_OPENED: u32 = 256;

/// Settings of a pooler.
#[derive(Clone, Debug)]
pub(super) struct Pooled {
    pub(super) kind: PoolerKind,
    pub(super) pool: Pool,
    /// Transport in front of it.
    pub(super) front: Axis<Transport>,
}

impl Pooled {
    /// Whether a statement that was prepared is there for the next request: with transactions another connection to
    /// the server may serve it.
    pub(super) fn keeps_prepared(&self) -> bool {
        self.pool == Pool::Session
    }
}

/// A running pooler.
pub(super) struct Pooler {
    server: PrivateServer,
    settings: Pooled,
}

impl Pooler {
    /// Starts it before `server`.
    pub(super) fn start(
        settings: &Pooled,
        start: &StartOptions,
        server: &PrivateServer,
    ) -> Result<Self, BenchError> {
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

    /// Address of an arm: in front, that of the point; behind, the arm's transport.
    pub(super) fn address(&self, arm: &Arm) -> Option<ServerAddress> {
        self.address_of(self.settings.front.at(&arm.point), arm.transport)
    }

    fn address_of(&self, front: Transport, behind: Transport) -> Option<ServerAddress> {
        let endpoint = self.server.endpoint(front)?;
        Some(ServerAddress::new(endpoint.clone(), login(&self.server, &database(behind))))
    }

    /// Opens as many connections to the server as an arm needs, over each transport: otherwise the first trials would
    /// pay for their login. A client that waits inside a transaction keeps its connection.
    pub(super) fn fill(&self, connections: u32, statement: Statement, table: &str) -> Result<(), BenchError> {
        let sql =
            if statement.has_table() { Statement::PointSelect } else { statement }.sql(table, "1000000001");
        for behind in [Transport::Tcp, Transport::Unix] {
            let Some(address) = self.address_of(Transport::Unix, behind) else { continue };
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

    /// Checks, as the server sees it, that the pooler reaches it by the arm's transport.
    pub(super) fn check(&self, arm: &Arm, dialogue: &mut Dialogue) -> Result<(), BenchError> {
        let seen = dialogue.seen()?;
        if seen.transport() == Some(arm.transport.name()) {
            return Ok(());
        }
        Err(BenchError::WrongTransport { asked: arm.transport, observed: says(seen) })
    }

    /// Its name in reports.
    pub(super) fn title(&self) -> &'static str {
        self.settings.kind.title()
    }

    pub(super) fn word(&self) -> &'static str {
        self.settings.kind.word()
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(super) fn stderr_tail(&self) -> String {
        self.server.stderr_tail()
    }
}
