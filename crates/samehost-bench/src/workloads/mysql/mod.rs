//! MySQL and MariaDB: statements on a table of our own (prepared or as text, on persistent connections or a
//! connection per statement), and a dump, against a private server or one that is already running.

mod address;
mod caller;
mod dialogue;
mod dump;
mod impact;
mod running;
mod session;
mod statement;
mod tables;

use std::collections::BTreeMap;

use samehost_model::{Endpoint, MetricInfo, Point, RateSpec, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::private_servers::MARIADB;
use crate::starts::{DATABASES, Starts};
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Workload,
};
use crate::workloads::reached::complete;
use crate::workloads::requests::{MOST_SLICED, request_metrics};
use address::Address;
use dialogue::Dialogue;
use running::RunningMySql;
use samehost_login::mysql::Surroundings;
use statement::Statement;

/// Most connections that are reopened for each statement: each has its own thread.
const MOST_CALLERS: u32 = 1024;
/// Most rows: ids are numbers of 32 bits.
const MOST_ROWS: u32 = 1_000_000_000;

/// The mysql workload.
pub struct MySql;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "statement",
        help: "What is asked: one row by its primary key, SELECT 1, an UPDATE or an INSERT of one row, or a dump (all rows of the table in one reply, as mysqldump --quick reads them)",
        default: "point-select",
        kind: ParameterKind::Choice(Statement::NAMES),
    },
    Parameter {
        name: "protocol",
        help: "Prepared once per connection and executed, or sent as text and parsed each time",
        default: "prepared",
        kind: ParameterKind::Choice(&["prepared", "text"]),
    },
    Parameter {
        name: "connect",
        help: "Connections are made once, or anew for each statement: connect, log in, ask as text, quit",
        default: "once",
        kind: ParameterKind::Choice(&["once", "per-query"]),
    },
    Parameter {
        name: "rows",
        help: "Rows of the table [default: 10000; for a dump 200000]",
        default: "",
        kind: ParameterKind::Text,
    },
    Parameter {
        name: "thread-handling",
        help: "The private server's threads",
        default: "one-thread-per-connection",
        kind: ParameterKind::Choice(&["one-thread-per-connection", "pool-of-threads"]),
    },
    Parameter {
        name: "read-only",
        help: "On a server that runs: write nothing, and use a table that is there (--table)",
        default: "no",
        kind: ParameterKind::Choice(&["no", "yes"]),
    },
    Parameter {
        name: "table",
        help: "With --read-only yes: the table, which has one integer as primary key [default: the largest such of the URL's database]",
        default: "",
        kind: ParameterKind::Text,
    },
];

impl Workload for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn about(&self) -> &'static str {
        "MySQL or MariaDB: statements, prepared or as text, or a dump; tables `samehost_…` only"
    }

    fn example(&self) -> &'static str {
        "mysql --connections 1,64"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn axes(&self, parameters: &Parameters) -> Capabilities {
        let dump = Statement::of(parameters) == Statement::Dump;
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix, Transport::TcpTls],
            connections: if dump { None } else { Some("1") },
            sizes: None,
            rates: !dump,
            timed: !dump,
            foreign_servers: true,
            commands: false,
        }
    }

    fn most_sliced(&self, parameters: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        if is_per_query(parameters) || Statement::of(parameters) == Statement::Dump { 0 } else { MOST_SLICED }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let statement = &parameters["statement"];
        if Statement::of(parameters) == Statement::Dump {
            format!("{statement} of {} rows", rows(parameters).unwrap_or(0))
        } else if is_per_query(parameters) {
            format!("connect, {statement}, quit")
        } else {
            format!("{statement}, {}", parameters["protocol"])
        }
    }

    fn metrics(&self, parameters: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if Statement::of(parameters) == Statement::Dump {
            return ["wall_time", "bandwidth", "client_cpu_per_op", "server_cpu_per_op", "total_cpu_per_op"]
                .map(MetricInfo::built_in)
                .to_vec();
        }
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        let statement = Statement::of(parameters);
        let wrong = |reason: &str| Err(BenchError::Usage(reason.to_owned()));
        rows(parameters)?;
        if is_per_query(parameters) && point.connections > MOST_CALLERS {
            return wrong("--connect per-query has a thread for each connection; at most 1024 of them");
        }
        if is_per_query(parameters) && statement == Statement::Dump {
            return wrong("a dump is one long query: --connect per-query says nothing about it");
        }
        if is_read_only(parameters) && statement.writes() {
            return wrong("--read-only yes and a statement that writes do not go together");
        }
        if !parameters["table"].is_empty() && !is_read_only(parameters) {
            return wrong("--table is for --read-only yes; otherwise the tool makes tables of its own");
        }
        Ok(())
    }

    fn starts(&self, _: &Parameters) -> Starts {
        // Making a data directory and filling a table takes seconds.
        Starts::InTurn(DATABASES)
    }

    fn complete(
        &self,
        servers: &BTreeMap<Transport, String>,
        wanted: &[Transport],
    ) -> Result<BTreeMap<Transport, String>, BenchError> {
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

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        impact::look(look)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&MARIADB, self.name()))
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningMySql::start(start)?))
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

fn is_per_query(parameters: &Parameters) -> bool {
    parameters["connect"] == "per-query"
}

fn is_read_only(parameters: &Parameters) -> bool {
    parameters["read-only"] == "yes"
}

/// Rows of our own table.
fn rows(parameters: &Parameters) -> Result<u32, BenchError> {
    let text = parameters["rows"].as_str();
    if text.is_empty() {
        return Ok(if Statement::of(parameters) == Statement::Dump { 200_000 } else { 10_000 });
    }
    let wrong = || BenchError::Usage(format!("--rows {text}: a number from 1 to {MOST_ROWS}, such as 10k"));
    // `10k` is ten thousand, as in rates.
    match samehost_model::parse_rate_list(text).as_deref() {
        Ok([RateSpec::PerSecond(count)]) if *count >= 1.0 && *count <= f64::from(MOST_ROWS) => {
            Ok(*count as u32)
        }
        _ => Err(wrong()),
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
