//! MySQL and MariaDB: statements on a table of our own (prepared or as text, on persistent connections or a
//! connection per statement), and a dump, against a private server or one that is already running.

mod dialogue;
mod running;
mod session;
mod statement;
mod tables;

use std::sync::Arc;

use samehost_login::mysql::Surroundings;
use samehost_model::{Endpoint, Metric, MetricInfo, Point, RateSpec, Transport, metric};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Parameter, Parameters, Values, Word, YesOrNo, words};
use crate::private_servers::MARIADB;
use crate::private_servers::mariadb::Brand;
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, DATABASES, Description, Instance, Look,
    OpenOrClosed, Servers, StartOptions, Starts, Workload, request_metrics,
};
use crate::workloads::foreign::complete;
use crate::workloads::requests::{MOST_SLICED, require_own_connects};
use dialogue::{Address, Dialogue};
use running::RunningMySql;
use statement::{Protocol, Statement};

/// Most connections that are reopened for each statement: each has its own thread.
const MOST_CALLERS: u32 = 1024;
/// Most rows: ids are numbers of 32 bits.
const MOST_ROWS: u32 = 1_000_000_000;

/// Connections of an arm in the checkup. Each is a thread of the server, and a round opens and closes those of both arms: beside a
/// program at 60 % of each of two CPUs a block took 0.56 s with 16 and 0.76 s with 64, and after as much time the ratio of CPU time
/// was as well known (three runs of 11 s each).
const CHECKUP_CONNECTIONS: u32 = 16;

/// The mysql workload.
pub struct MySql;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Statement>(
        "statement",
        "What is asked: one row by its primary key, SELECT 1, an UPDATE or an INSERT of one row, or a dump (all rows of the table in one reply, as mysqldump --quick reads them)",
    ),
    Parameter::word::<Protocol>(
        "protocol",
        "Prepared once per connection and executed, or sent as text and parsed each time",
    ),
    Parameter::word::<Connect>(
        "connect",
        "Connections are made once, or anew for each statement: connect, log in, ask as text, quit",
    ),
    Parameter::text("rows", "Rows of the table [default: 10000; for a dump 200000]"),
    Parameter::word::<Brand>("server", "The private server; any is what is installed, MariaDB first"),
    Parameter::word::<ThreadHandling>("thread-handling", "The private server's threads (MariaDB)"),
    Parameter::word::<YesOrNo>(
        "read-only",
        "On a server that runs: write nothing, and use a table that is there (--table)",
    ),
    Parameter::text(
        "table",
        "With --read-only yes: the table, which has one integer as primary key [default: the largest such of the URL's database]",
    ),
];

impl Workload for MySql {
    fn description(&self) -> Description {
        Description {
            name: "mysql",
            about: "MySQL or MariaDB: statements, prepared or as text, or a dump; tables `samehost_…` only",
            example: "mysql --connections 1,64",
            parameters: PARAMETERS,
        }
    }

    fn complete(&self, servers: &Servers, wanted: &[Transport]) -> Result<Servers, BenchError> {
        let around = Surroundings::of_process()?;
        let mut servers = complete(servers, wanted, |known, text| {
            let address = Address::given(known, text, &around)?;
            other_half(&address, if known == Transport::Tcp { "socket" } else { "port" })
        })?;
        if !wanted.is_empty() && !wanted.contains(&Transport::Tcp) {
            servers.remove(&Transport::Tcp);
        }
        Ok(servers)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::Server {
            kind: &MARIADB,
            parameters: &[],
            running: self.name(),
            trial: CHECKUP_TRIAL,
            many: CHECKUP_CONNECTIONS,
        })
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let statement = parameters.word("statement")?;
        Ok(Arc::new(Settings {
            statement,
            protocol: parameters.word("protocol")?,
            per_query: parameters.word::<Connect>("connect")? == Connect::PerQuery,
            rows: rows(statement, parameters.given("rows"))?,
            brand: parameters.word("server")?,
            thread_handling: parameters.word("thread-handling")?,
            read_only: parameters.is_yes("read-only")?,
            table: parameters.given("table"),
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        let dump = self.statement == Statement::Dump;
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix, Transport::TcpTls, Transport::TcpRun],
            connections: if dump { None } else { Some("1") },
            rates: !dump,
            timed: !dump,
            ..Capabilities::REQUESTS
        }
    }

    fn most_sliced(&self) -> u32 {
        if self.per_query || self.statement == Statement::Dump { 0 } else { MOST_SLICED }
    }

    fn title(&self) -> String {
        let statement = self.statement.word();
        if self.statement == Statement::Dump {
            format!("{statement} of {} rows", self.rows)
        } else if self.per_query {
            format!("connect, {statement}, quit")
        } else {
            format!("{statement}, {}", self.protocol.word())
        }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if self.statement == Statement::Dump {
            let metrics = [
                metric::WALL_TIME,
                metric::BANDWIDTH,
                metric::CLIENT_CPU_PER_OP,
                metric::SERVER_CPU_PER_OP,
                metric::TOTAL_CPU_PER_OP,
            ];
            return metrics.iter().map(Metric::info).collect();
        }
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, transport: Transport) -> Result<(), BenchError> {
        if self.per_query {
            require_own_connects(transport)?;
        }
        if self.per_query && point.connections > MOST_CALLERS {
            return BenchError::refuse(
                "--connect per-query has a thread for each connection; at most 1024 of them",
            );
        }
        if self.per_query && self.statement == Statement::Dump {
            return BenchError::refuse("a dump is one long query: --connect per-query says nothing about it");
        }
        if self.read_only && self.statement.writes() {
            return BenchError::refuse("--read-only yes and a statement that writes do not go together");
        }
        if self.table.is_some() && !self.read_only {
            return BenchError::refuse(
                "--table is for --read-only yes; otherwise the tool makes tables of its own",
            );
        }
        Ok(())
    }

    fn starts(&self) -> Starts {
        // Making a data directory and filling a table takes seconds.
        Starts::InTurn(DATABASES)
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        running::look(self, look)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningMySql::start(self, start)?))
    }
}

/// The server's endpoint on the other transport, as a URL, from its variable `socket` or `port`.
fn other_half(known: &Address, variable: &str) -> Result<String, BenchError> {
    let mut dialogue = Dialogue::begin(known)?;
    let value = dialogue.variable(variable)?.filter(|value| !value.is_empty() && value != "0");
    let off = variable == "port" && dialogue.variable("skip_networking")?.as_deref() == Some("ON");
    dialogue.quit()?;
    match value.filter(|_| !off) {
        Some(path) if variable == "socket" => Ok(known.url_of(&format!("unix:{path}").parse()?)),
        Some(port) => {
            let endpoint: Endpoint = format!("tcp:127.0.0.1:{port}").parse()?;
            Ok(known.url_of(&endpoint))
        }
        None => Err(BenchError::Usage(format!(
            "the server at {} does not listen on a {variable} to measure against; set `{variable}` in [mysqld], give the other half with --tcp or --unix, or measure one arm with --transports {}",
            known.endpoint,
            known.endpoint.transport(),
        ))),
    }
}

#[derive(Clone, Debug)]
struct Settings {
    statement: Statement,
    protocol: Protocol,
    /// Whether each statement has a connection.
    per_query: bool,
    /// Rows of our own table.
    rows: u32,
    brand: Brand,
    thread_handling: ThreadHandling,
    read_only: bool,
    /// The table to read; `None` for the largest.
    table: Option<String>,
}

words! {
    enum Connect { Once = "once", PerQuery = "per-query" }

    enum ThreadHandling {
        OneThreadPerConnection = "one-thread-per-connection",
        PoolOfThreads = "pool-of-threads",
    }
}

fn rows(statement: Statement, given: Option<String>) -> Result<u32, BenchError> {
    let Some(text) = given else {
        return Ok(if statement == Statement::Dump { 200_000 } else { 10_000 });
    };
    // `10k` is ten thousand, as in rates.
    match samehost_model::parse_rate_list(&text).as_deref() {
        Ok([RateSpec::PerSecond(count)]) if *count >= 1.0 && *count <= f64::from(MOST_ROWS) => {
            Ok(*count as u32)
        }
        _ => BenchError::refuse(format!("--rows {text}: a number from 1 to {MOST_ROWS}, such as 10k")),
    }
}

/// Logs in at an endpoint and creates the database if it does not exist, for WordPress.
///
/// # Errors
/// When the server does not answer, or refuses.
pub(crate) fn ensure_database(
    endpoint: &Endpoint,
    user: &str,
    password: &str,
    database: &str,
) -> Result<(), BenchError> {
    let address = Address {
        endpoint: endpoint.clone(),
        user: user.into(),
        password: password.into(),
        database: None,
        unlogged: false,
    };
    let mut dialogue = Dialogue::begin(&address)?;
    dialogue
        .must("a database", &format!("CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4"))?;
    dialogue.quit()
}
