//! PostgreSQL: a point select, an update, a constant or a whole table, over the extended or the simple protocol, on
//! persistent connections or a connection per statement, against a private server or one that is already running. The
//! table has a name of our own, is made before the first trial and dropped after the last.
//!
//! With a private pooler in front of a private server the arms are the transports behind the pooler, and the transport in
//! front of it is a factor of its own.
//!
//! What a measurement would do to a server that is already running is read from its own settings and views.

use std::sync::Arc;
use std::time::Duration;

use samehost_login::postgres::Defaults;
use samehost_model::{Metric, MetricInfo, Point, Transport, metric};

use self::dialogue::{Dialogue, Identity};
use crate::error::BenchError;
use crate::impact::{Connections, Impact, in_words};
use crate::parameters::{Parameter, ParameterKind, Parameters, Values, Word, YesOrNo, words};
use crate::private_servers::POSTGRES;
use crate::workload::{
    Capabilities, CheckupEntry, Configured, DATABASES, Description, Instance, Look, OpenOrClosed, Servers,
    StartOptions, Starts, Workload, add_proxy_metric, request_metrics,
};
use crate::workloads::foreign::complete;
use crate::workloads::requests::MOST_SLICED;
use address::Address;
use pooler::{FRONTS, Pool, Pooled, VIA};
use running::RunningPostgres;
use statement::{Protocol, Statement};

mod address;
mod dialogue;
mod pooler;
mod running;
mod session;
mod statement;

/// Most rows of our table.
const MOST_ROWS: u32 = 1_000_000;
/// Most connections if each has a thread.
const MOST_THREADS: u32 = 1024;
/// Connections of an arm in the checkup. Each is a process that the server forks, and takes 10 ms of CPU time until its caches are filled
/// (perf: page faults), three times as long beside other work: with 64 an arm, a checkup had four blocks where MariaDB had nine.
const CHECKUP_CONNECTIONS: u32 = 16;
/// Time of an arm in a block of the checkup. Beside two neighbours at 60 % intervals with one connection were ±4 to ±5 % with 50 ms, and ±4
/// to ±15 % with 25, as many blocks in 7 s; MariaDB's were not narrower.
const CHECKUP_LENGTH: Duration = Duration::from_millis(35);

/// The postgres workload.
pub struct Postgres;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Statement>(
        "statement",
        "What is asked: one row by its key, a constant, an update of one row, or the whole table as text (COPY). All but select-1 use a table `samehost_…`, made before the first trial and dropped after the last",
    ),
    Parameter::word::<Protocol>(
        "protocol",
        "extended: a prepared statement, Bind, Execute and Sync each time; simple: its text each time",
    ),
    Parameter::word::<Connect>(
        "connect",
        "once: connections stay; per-query: connect, log in, ask and close for each statement",
    ),
    Parameter {
        name: "rows",
        help: "Rows of the table, 1 to 1,000,000 (about 150 bytes each)",
        default: "10000",
        kind: ParameterKind::Count,
    },
    Parameter::word::<YesOrNo>(
        "read-only",
        "yes: a server that already runs gets nothing written; only --statement select-1 can do that",
    ),
    Parameter {
        name: "via",
        help: "A private PgBouncer or Odyssey in front of a private server; the arms are the transports behind it",
        default: VIA[0],
        kind: ParameterKind::Choice(VIA),
    },
    Parameter {
        name: "pool",
        help: "--via: a connection to the server for each transaction (extended statements are then parsed each time) or for each session [default: transaction]",
        default: "",
        kind: ParameterKind::Choice(Pool::WORDS),
    },
    Parameter {
        name: "front",
        help: "--via: transport in front of the pooler: tcp, unix, or both as a factor of their own [default: tcp,unix]",
        default: "",
        kind: ParameterKind::Choices(FRONTS),
    },
];

impl Workload for Postgres {
    fn description(&self) -> Description {
        Description {
            name: "postgres",
            about: "PostgreSQL: point select, update, SELECT 1 or COPY; a table `samehost_…` only",
            example: "postgres --connections 1,64",
            parameters: PARAMETERS,
        }
    }

    fn complete(&self, servers: &Servers, wanted: &[Transport]) -> Result<Servers, BenchError> {
        let defaults = Defaults::here();
        complete(servers, wanted, |known, text| {
            let address = Address::given(known, text, &defaults)?;
            // A server that refuses plain TCP may still be asked over TLS.
            let over_tls = known == Transport::Tcp && wanted.contains(&Transport::TcpTls);
            let asked = if over_tls { address.over_tls() } else { address };
            Ok(dialogue::other_half(&asked)?.to_url())
        })
    }

    fn propose(&self, parameters: &Parameters, _: &[u32]) -> Result<Parameters, BenchError> {
        let mut parameters = parameters.clone();
        let direct = is_direct(&parameters);
        for (name, default) in [("pool", Pool::WORDS[0].to_owned()), ("front", FRONTS.join(","))] {
            match (direct, parameters.given(name)) {
                (false, None) => drop(parameters.insert(name.to_owned(), default)),
                (true, Some(_)) => {
                    return Err(BenchError::Usage(format!(
                        "--{name} is an option of --via pgbouncer and --via odyssey"
                    )));
                }
                _ => {}
            }
        }
        Ok(parameters)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        let checkup = CheckupEntry::Server {
            kind: &POSTGRES,
            parameters: &[],
            running: self.name(),
            trial: CHECKUP_LENGTH,
            many: CHECKUP_CONNECTIONS,
        };
        Some(checkup)
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let pooled = if is_direct(parameters) {
            None
        } else {
            Some(Pooled {
                kind: parameters.one_of("via", VIA)?,
                pool: parameters.word("pool")?,
                front: parameters.list("front", FRONTS)?,
            })
        };
        Ok(Arc::new(Settings {
            statement: parameters.word("statement")?,
            protocol: parameters.word("protocol")?,
            per_query: parameters.word::<Connect>("connect")? == Connect::PerQuery,
            rows: parameters.count("rows", MOST_ROWS)?,
            read_only: parameters.is_yes("read-only")?,
            pooled,
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        // A COPY is one whole operation on a connection of its own.
        let requests = self.statement != Statement::Copy;
        let direct = self.pooled.is_none();
        Capabilities {
            transports: if direct { DIRECT } else { BEHIND },
            foreign_servers: direct,
            connections: requests.then_some("1"),
            rates: requests,
            timed: requests,
            ..Capabilities::REQUESTS
        }
    }

    fn most_sliced(&self) -> u32 {
        if self.per_query || self.statement == Statement::Copy { 0 } else { MOST_SLICED }
    }

    fn title(&self) -> String {
        let statement = match self.statement {
            Statement::Copy => return format!("COPY of {} rows", self.rows),
            Statement::Select1 => "SELECT 1",
            Statement::Update => "update of one row",
            Statement::PointSelect => "point select",
        };
        let protocol = match self.protocol {
            Protocol::Simple => "as text",
            Protocol::Extended if self.prepares_once() => "prepared",
            Protocol::Extended => "parsed each time",
        };
        let asked = if self.per_query {
            format!("connect, log in, {statement}, close")
        } else {
            format!("{statement}, {protocol}")
        };
        match &self.pooled {
            None => asked,
            Some(pooled) => {
                format!("the hop from {} ({} pool), {asked}", pooled.kind.title(), pooled.pool.word())
            }
        }
    }

    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        if self.statement == Statement::Copy {
            let metrics = [
                metric::BANDWIDTH,
                metric::THROUGHPUT,
                metric::CLIENT_CPU_PER_OP,
                metric::SERVER_CPU_PER_OP,
                metric::TOTAL_CPU_PER_OP,
            ];
            return metrics.iter().map(Metric::info).collect();
        }
        let mut metrics = request_metrics(open_loop);
        if self.pooled.is_some() {
            add_proxy_metric(&mut metrics);
        }
        metrics
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        if self.pooled.is_some() && self.statement == Statement::Copy {
            return Err(BenchError::Usage(
                "--via is for statements of one row; leave it out to measure a COPY".into(),
            ));
        }
        if self.per_query && self.statement == Statement::Copy {
            return Err(BenchError::Usage(
                "a COPY has a connection of its own anyway; leave --connect per-query out".into(),
            ));
        }
        if self.per_query && point.connections > MOST_THREADS {
            return Err(BenchError::Usage(format!(
                "--connect per-query has a thread for each connection; at most {MOST_THREADS} of them"
            )));
        }
        if self.read_only && self.statement.has_table() {
            return Err(BenchError::Usage(format!(
                "--read-only yes writes nothing, and --statement {} needs a table of ours; use --statement select-1, or leave --read-only out: the table is dropped at the end",
                self.statement.word()
            )));
        }
        Ok(())
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        self::look(self, look)
    }

    fn starts(&self) -> Starts {
        // Making a cluster and filling a table takes about a second each time.
        Starts::InTurn(DATABASES)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningPostgres::start(self, start)?))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    statement: Statement,
    protocol: Protocol,
    /// Whether each statement has a connection.
    per_query: bool,
    /// Rows of our table.
    rows: u32,
    read_only: bool,
    /// The pooler between client and server.
    pooled: Option<Pooled>,
}

impl Settings {
    /// Whether a connection prepares its statement once, and then only binds and executes it.
    fn prepares_once(&self) -> bool {
        !self.per_query && self.pooled.as_ref().is_none_or(Pooled::keeps_prepared)
    }
}

/// Whether no pooler is asked for.
fn is_direct(parameters: &Parameters) -> bool {
    parameters.given("via").is_none_or(|via| via == VIA[0])
}

/// Transports to the server.
const DIRECT: &[Transport] = &[Transport::Tcp, Transport::Unix, Transport::TcpTls];
/// Transports from the pooler to the server.
const BEHIND: &[Transport] = &[Transport::Tcp, Transport::Unix];

words! {
    enum Connect { Once = "once", PerQuery = "per-query" }
}

/// Bytes of a row with half of each page free, including its part of the index.
const ROW: u64 = 400;
/// Bytes that the write-ahead log may take besides: segments until a checkpoint.
const LOG: u64 = 64 << 20;

/// Queries each server once, over either transport.
fn look(settings: &Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let defaults = Defaults::here();
    let (mut seen, mut impacts): (Vec<Identity>, _) = (Vec::new(), Vec::new());
    for (transport, text) in look.servers {
        let address = Address::given(*transport, text, &defaults)?;
        let mut dialogue = Dialogue::begin(&address, true)?;
        let identity = dialogue.identity()?;
        if !seen.iter().any(|known| known.same_server(&identity)) {
            impacts.push(look_at(settings, look, &address, &mut dialogue)?);
            seen.push(identity);
        }
        dialogue.end()?;
    }
    Ok(impacts)
}

fn look_at(
    settings: &Settings,
    look: &Look<'_>,
    address: &Address,
    dialogue: &mut Dialogue,
) -> Result<Impact, BenchError> {
    let statement = settings.statement;
    let mut impact = Impact::of(format!("the PostgreSQL at {address}"));
    // `None` for what this version does not have, or this user may not see.
    let mut number =
        |sql: &str| dialogue.value("a number", sql).ok().and_then(|text| text.parse::<u64>().ok());
    // Our own connection is not counted.
    let open =
        number("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()");
    let kept = number("SHOW superuser_reserved_connections").unwrap_or(0)
        + number("SHOW reserved_connections").unwrap_or(0);
    if let (Some(open), Some(most)) = (open, number("SHOW max_connections")) {
        let ours = u64::from(look.connections);
        impact.connections(Connections { ours, open, most: most.saturating_sub(kept) }, "max_connections");
    }
    if settings.read_only || !statement.has_table() {
        return Ok(impact);
    }
    let rows = u64::from(settings.rows);
    impact.does.push(format!(
        "makes a table samehost_… with {rows} rows (about {}) in the database {}, and drops it at the end (--statement select-1 --read-only yes writes nothing)",
        in_words(rows * ROW),
        address.database.escape_debug()
    ));
    if statement == Statement::Update {
        impact.does.push("changes one of these rows with every statement, as fast as it is answered".into());
    }
    let standbys = number("SELECT count(*) FROM pg_stat_replication").unwrap_or(0);
    let mut text =
        |setting: &str| dialogue.value("a setting", &format!("SHOW {setting}")).unwrap_or_default();
    let (level, archive) = (text("wal_level"), text("archive_mode"));
    impact.found.push(match standbys {
        0 => format!("what is written goes to its log (wal_level {level}), which no standby reads now"),
        1 => format!("what is written goes to its log (wal_level {level}), which 1 standby reads"),
        many => format!("what is written goes to its log (wal_level {level}), which {many} standbys read"),
    });
    if !matches!(archive.as_str(), "" | "off") {
        impact.found.push("its log is archived (archive_mode), with all that is written".into());
    }
    let directory = text("data_directory");
    if !directory.is_empty() {
        impact.disk(rows * ROW + LOG, &directory);
    }
    Ok(impact)
}

#[cfg(test)]
mod tests {

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
            Postgres.configure(&parameters(changed))?.check(&point, Transport::Tcp)
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
        let title = |changed: &[(&str, &str)]| Postgres.configure(&parameters(changed)).unwrap().title();
        assert_eq!(title(&[]), "point select, prepared");
        assert_eq!(title(&[("statement", "copy")]), "COPY of 10000 rows");
        assert_eq!(title(&[("protocol", "simple"), ("statement", "select-1")]), "SELECT 1, as text");
        let via = |via, pool| title(&[("via", via), ("pool", pool), ("front", "tcp")]);
        assert_eq!(
            via("pgbouncer", "session"),
            "the hop from PgBouncer (session pool), point select, prepared"
        );
        assert!(
            via("odyssey", "transaction").ends_with("parsed each time"),
            "another backend may serve each"
        );
    }
}
