//! PostgreSQL: a point select, an update, a constant or a whole table, over the extended or the simple protocol, on
//! persistent connections or a connection per statement, against a private server or one that is already running. The
//! table has a name of our own, is made before the first trial and dropped after the last.

mod address;
mod caller;
mod copy;
mod dialogue;
mod impact;
mod messages;
mod running;
mod session;
mod statement;

use std::collections::BTreeMap;

use samehost_model::{MetricInfo, Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::private_servers::POSTGRES;
use crate::starts::{DATABASES, Starts};
use crate::workload::{
    Capabilities, CheckupEntry, Instance, Look, OpenOrClosed, Parameter, ParameterKind, Parameters,
    StartOptions, Workload,
};
use crate::workloads::reached::complete;
use crate::workloads::requests::{MOST_SLICED, request_metrics};
use address::Address;
use running::RunningPostgres;
use samehost_login::postgres::Defaults;
use statement::Statement;

/// Most rows of our table.
const MOST_ROWS: u32 = 1_000_000;
/// Most connections if each has a thread.
const MOST_THREADS: u32 = 1024;

/// The postgres workload.
pub struct Postgres;

impl Workload for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn about(&self) -> &'static str {
        "PostgreSQL: point select, update, SELECT 1 or COPY; a table `samehost_…` only"
    }

    fn example(&self) -> &'static str {
        "postgres --connections 1,64"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                name: "statement",
                help: "What is asked: one row by its key, a constant, an update of one row, or the whole table as text (COPY). All but select-1 use a table `samehost_…`, made before the first trial and dropped after the last",
                default: "point-select",
                kind: ParameterKind::Choice(&["point-select", "select-1", "update", "copy"]),
            },
            Parameter {
                name: "protocol",
                help: "extended: a prepared statement, Bind, Execute and Sync each time; simple: its text each time",
                default: "extended",
                kind: ParameterKind::Choice(&["extended", "simple"]),
            },
            Parameter {
                name: "connect",
                help: "once: connections stay; per-query: connect, log in, ask and close for each statement",
                default: "once",
                kind: ParameterKind::Choice(&["once", "per-query"]),
            },
            Parameter {
                name: "rows",
                help: "Rows of the table, 1 to 1,000,000 (about 150 bytes each)",
                default: "10000",
                kind: ParameterKind::Count,
            },
            Parameter {
                name: "read-only",
                help: "yes: a server that already runs gets nothing written; only --statement select-1 can do that",
                default: "no",
                kind: ParameterKind::Choice(&["no", "yes"]),
            },
        ]
    }

    fn axes(&self, parameters: &Parameters) -> Capabilities {
        // A COPY is one whole operation on a connection of its own.
        let requests = parameters["statement"] != "copy";
        Capabilities {
            transports: &[Transport::Tcp, Transport::Unix, Transport::TcpTls],
            connections: requests.then_some("1"),
            sizes: None,
            rates: requests,
            timed: requests,
            foreign_servers: true,
            commands: false,
        }
    }

    fn most_sliced(&self, parameters: &Parameters, _: &BTreeMap<Transport, String>) -> u32 {
        if is_per_query(parameters) || parameters["statement"] == "copy" { 0 } else { MOST_SLICED }
    }

    fn title(&self, parameters: &Parameters) -> String {
        let statement = match parameters["statement"].as_str() {
            "copy" => return format!("COPY of {} rows", parameters["rows"]),
            "select-1" => "SELECT 1",
            "update" => "update of one row",
            _ => "point select",
        };
        let protocol = match parameters["protocol"].as_str() {
            "simple" => "as text",
            _ => "prepared",
        };
        if is_per_query(parameters) {
            format!("connect, log in, {statement}, close")
        } else {
            format!("{statement}, {protocol}")
        }
    }

    fn metrics(&self, parameters: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if parameters["statement"] == "copy" {
            let names =
                ["bandwidth", "throughput", "client_cpu_per_op", "server_cpu_per_op", "total_cpu_per_op"];
            return names.map(MetricInfo::built_in).to_vec();
        }
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, _: Transport, parameters: &Parameters) -> Result<(), BenchError> {
        rows(parameters)?;
        let per_query = is_per_query(parameters);
        let statement = Statement::of(point, parameters);
        if per_query && statement == Statement::Copy {
            return Err(BenchError::Usage(
                "a COPY has a connection of its own anyway; leave --connect per-query out".into(),
            ));
        }
        if per_query && point.connections > MOST_THREADS {
            return Err(BenchError::Usage(format!(
                "--connect per-query has a thread for each connection; at most {MOST_THREADS} of them"
            )));
        }
        if is_read_only(parameters) && statement.has_table() {
            return Err(BenchError::Usage(format!(
                "--read-only yes writes nothing, and --statement {} needs a table of ours; use --statement select-1, or leave --read-only out: the table is dropped at the end",
                parameters["statement"]
            )));
        }
        Ok(())
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        impact::look(look)
    }

    fn starts(&self, _: &Parameters) -> Starts {
        // Making a cluster and filling a table takes about a second each time.
        Starts::InTurn(DATABASES)
    }

    fn complete(
        &self,
        servers: &BTreeMap<Transport, String>,
        wanted: &[Transport],
    ) -> Result<BTreeMap<Transport, String>, BenchError> {
        let defaults = Defaults::here();
        complete(servers, wanted, |known, text| {
            let address = Address::given(known, text, &defaults)?;
            // A server that refuses plain TCP may still be asked over TLS.
            let over_tls = known == Transport::Tcp && wanted.contains(&Transport::TcpTls);
            let asked = if over_tls { address.over_tls() } else { address };
            Ok(dialogue::other_half(&asked)?.to_url())
        })
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&POSTGRES, self.name()))
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningPostgres::start(start)?))
    }
}

fn is_per_query(parameters: &Parameters) -> bool {
    parameters["connect"] == "per-query"
}

fn is_read_only(parameters: &Parameters) -> bool {
    parameters["read-only"] == "yes"
}

fn rows(parameters: &Parameters) -> Result<u32, BenchError> {
    let text = &parameters["rows"];
    match text.parse() {
        Ok(rows) if (1..=MOST_ROWS).contains(&rows) => Ok(rows),
        _ => Err(BenchError::Usage(format!("--rows {text}: from 1 to {MOST_ROWS}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::statement::Protocol;
    use super::*;

    fn parameters(changed: &[(&str, &str)]) -> Parameters {
        let mut all = crate::workload::defaults(&Postgres);
        all.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        all
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        let check = |changed: &[(&str, &str)], connections| {
            let point = Point { connections, ..Point::default() };
            Postgres.check(&point, Transport::Tcp, &parameters(changed))
        };
        assert!(check(&[], 1).is_ok());
        assert!(check(&[("rows", "1000001")], 1).is_err());
        assert!(check(&[("read-only", "yes")], 1).is_err());
        assert!(check(&[("read-only", "yes"), ("statement", "select-1")], 1).is_ok());
        assert!(check(&[("connect", "per-query"), ("statement", "copy")], 1).is_err());
        assert!(check(&[("connect", "per-query")], 1025).is_err());
        assert!(check(&[("connect", "per-query")], 1024).is_ok());
    }

    #[test]
    fn titles_say_what_is_done() {
        assert_eq!(Postgres.title(&parameters(&[])), "point select, prepared");
        assert_eq!(Postgres.title(&parameters(&[("statement", "copy")])), "COPY of 10000 rows");
        let simple = parameters(&[("protocol", "simple"), ("statement", "select-1")]);
        assert_eq!(Postgres.title(&simple), "SELECT 1, as text");
    }

    #[test]
    fn a_point_of_its_own_goes_first() {
        let point = Point { parameters: [("protocol".into(), "simple".into())].into(), ..Point::default() };
        assert_eq!(Protocol::of(&point, &parameters(&[])), Protocol::Simple);
    }
}
