//! PostgreSQL: a point select, an update, a constant or a whole table, over the extended or the simple protocol, on
//! persistent connections or a connection per statement, against a private server or one that is already running. The
//! table has a name of our own, is made before the first trial and dropped after the last.
//!
//! With a private pooler in front of a private server the arms are the transports behind the pooler, and the transport in
//! front of it is a factor of its own.
//!
//! What a measurement would do to a server that is already running is read from its own settings and views.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use samehost_login::url::ServerUrl;
use samehost_login::{ServerAddress, SslMode};
use samehost_model::{MetricInfo, Point, Transport, metric};

use crate::error::BenchError;
use crate::impact::{Impact, in_words};
use crate::parameters::{Parameter, ParameterKind, Parameters, Values, Word, YesOrNo};
use crate::private_servers::POSTGRES;
use crate::served::{Instance, Servers, StartOptions};
use crate::workload::{
    Capabilities, CheckupEntry, Configured, DATABASES, Description, Look, OpenOrClosed, Starts, Workload,
    Written, infos, request_metrics, with_proxy,
};
use crate::workloads::foreign::{Forms, complete};
use crate::workloads::requests::{Connect, MAX_SLICED_CONNECTIONS, require_threads};
use dialogue::{Dialogue, Identity, begin, identity};
use running::{FRONTS, Pool, Pooled, RunningPostgres, VIA};
use statement::{Protocol, Statement};

mod dialogue;
mod running;
mod session;
mod statement;

const MAX_ROWS: u32 = 1_000_000;
/// Connections of an arm in the checkup. Each is a process that the server forks, and takes 10 ms of CPU time until its
/// caches are filled (perf: page faults), three times as long beside other work: with 64 an arm, a checkup had four
/// blocks where MariaDB had nine.
const CHECKUP_CONNECTIONS: u32 = 16;
/// Time of an arm in a block of the checkup. Beside two neighbours at 60 % intervals with one connection were ±4 to
/// ±5 % with 50 ms, and ±4 to ±15 % with 25, as many blocks in 7 s; MariaDB's were not narrower.
const CHECKUP_LENGTH: Duration = Duration::from_millis(35);

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Postgres,
    title: "PostgreSQL",
    examples: "postgres://[USER[:PASSWORD]@]127.0.0.1:5432[/DB], postgres:///DB?host=/DIRECTORY[&port=5432][&user=USER] or a plain endpoint (tcp:127.0.0.1:5432, unix:/DIRECTORY/.s.PGSQL.5432)",
    hint: "",
};

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
    Parameter::count("rows", "10000", "Rows of the table, 1 to 1,000,000 (about 150 bytes each)"),
    Parameter::word::<YesOrNo>(
        "read-only",
        "yes: a server that already runs gets nothing written; only --statement select-1 can do that",
    ),
    Parameter::choice(
        "via",
        VIA,
        "A private PgBouncer or Odyssey in front of a private server; the arms are the transports behind it",
    ),
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

    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        let text = in_directory(written.text);
        let written = Written { text: &text, ..*written };
        let url = FORMS.url(&written)?;
        let sslmode = match &url {
            Some(url) => sslmode(url)?,
            None => SslMode::default(),
        };
        let mut address = ServerAddress { sslmode, ..FORMS.address(&written, url.as_ref())? };
        let login = &mut address.credentials;
        if login.password.is_none() {
            login.password = login.own_postgres_password(&address.endpoint);
        }
        Ok(address)
    }

    fn complete(&self, servers: &Servers, wanted: &[Transport]) -> Result<Servers, BenchError> {
        complete(servers, wanted, dialogue::other_half)
    }

    fn propose(&self, parameters: &Parameters, _: &[u32]) -> Result<Parameters, BenchError> {
        let mut parameters = parameters.clone();
        let direct = is_direct(&parameters);
        for (name, default) in [("pool", Pool::WORDS[0].to_owned()), ("front", FRONTS.join(","))] {
            match (direct, parameters.given(name)) {
                (false, None) => {
                    parameters.insert(name.to_owned(), default);
                }
                (true, Some(_)) => {
                    return BenchError::refuse(format!(
                        "--{name} is an option of --via pgbouncer and --via odyssey"
                    ));
                }
                _ => {}
            }
        }
        Ok(parameters)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&POSTGRES, self.name(), CHECKUP_LENGTH, CHECKUP_CONNECTIONS))
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
            rows: parameters.count("rows", MAX_ROWS)?,
            read_only: parameters.is_yes("read-only")?,
            pooled,
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        use Transport::{Tcp, TcpTls, Unix};
        // A COPY is one whole operation on a connection of its own.
        let requests = self.statement != Statement::Copy;
        let direct = self.pooled.is_none();
        Capabilities {
            transports: if direct { &[Tcp, Unix, TcpTls] } else { &[Tcp, Unix] },
            foreign_servers: direct,
            connections: requests.then_some("1"),
            rates: requests,
            timed: requests,
            most_sliced: if self.per_query || !requests { 0 } else { MAX_SLICED_CONNECTIONS },
            // Making a cluster and filling a table takes about a second each time.
            starts: Starts::InTurn(DATABASES),
            ..Capabilities::REQUESTS
        }
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
            return infos(&[
                metric::BANDWIDTH,
                metric::THROUGHPUT,
                metric::CLIENT_CPU_PER_OP,
                metric::SERVER_CPU_PER_OP,
                metric::TOTAL_CPU_PER_OP,
            ]);
        }
        let metrics = request_metrics(open_loop);
        if self.pooled.is_some() { with_proxy(metrics) } else { metrics }
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        if self.pooled.is_some() && self.statement == Statement::Copy {
            return BenchError::refuse("--via is for statements of one row; leave it out to measure a COPY");
        }
        if self.per_query && self.statement == Statement::Copy {
            return BenchError::refuse(
                "a COPY has a connection of its own anyway; leave --connect per-query out",
            );
        }
        if self.per_query {
            require_threads("--connect per-query", point.connections)?;
        }
        if self.read_only && self.statement.has_table() {
            return BenchError::refuse(format!(
                "--read-only yes writes nothing, and --statement {} needs a table of ours; use --statement select-1, or leave --read-only out: the table is dropped at the end",
                self.statement.word()
            ));
        }
        Ok(())
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        self::look(self, look)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningPostgres::start(self, start)?))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    statement: Statement,
    protocol: Protocol,
    per_query: bool,
    rows: u32,
    read_only: bool,
    pooled: Option<Pooled>,
}

impl Settings {
    /// Whether a connection prepares its statement once, and then only binds and executes it. In a pool of transactions
    /// another connection to the server may serve the next request.
    fn prepares_once(&self) -> bool {
        !self.per_query && self.pooled.as_ref().is_none_or(|pooled| pooled.pool == Pool::Session)
    }
}

/// Completes an endpoint that names a directory with the usual socket in it; other texts are as they are.
fn in_directory(text: &str) -> String {
    match text.strip_prefix("unix:") {
        Some(directory) if Path::new(directory).is_dir() => {
            format!("unix:{}/.s.PGSQL.5432", directory.trim_end_matches('/'))
        }
        _ => text.to_owned(),
    }
}

/// The TLS that a URL asks for.
///
/// # Errors
/// When it has options that cannot be followed.
fn sslmode(url: &ServerUrl) -> Result<SslMode, BenchError> {
    let mut sslmode = SslMode::default();
    for (name, value) in &url.options {
        match (name.as_str(), value.as_str()) {
            // Belong to the address and the login, which are read elsewhere.
            ("host" | "socket" | "port" | "user" | "dbname", _) => {}
            ("sslmode", "disable") => sslmode = SslMode::Disable,
            ("sslmode", "allow" | "prefer") => sslmode = SslMode::Prefer,
            ("sslmode", "require") => sslmode = SslMode::Require,
            ("sslmode", _) => {
                return Err(FORMS.wrong(
                    "sslmode is disable, prefer or require: certificates of servers on this machine are not verified",
                ));
            }
            ("password", _) => {
                return Err(FORMS.wrong(
                    "a password among the options would stand in the report; write USER:PASSWORD@, or use PGPASSWORD or ~/.pgpass",
                ));
            }
            // Options for other clients that have no effect here.
            ("application_name" | "connect_timeout" | "client_encoding", _) => {}
            _ => return Err(FORMS.wrong("options after `?` are host, port, user, dbname and sslmode")),
        }
    }
    Ok(sslmode)
}

fn is_direct(parameters: &Parameters) -> bool {
    parameters.given("via").is_none_or(|via| via == VIA[0])
}

/// Bytes of a row with half of each page free, including its part of the index.
const ROW_BYTES: u64 = 400;
/// Bytes that the write-ahead log may take besides: segments until a checkpoint.
const LOG_BYTES: u64 = 64 << 20;

/// Asks each server once, over either transport and in a read-only session, what a measurement would do to it and
/// whether it has the room: connections, disk, standbys, archive.
fn look(settings: &Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let mut seen: Vec<Identity> = Vec::new();
    let mut impacts = Vec::new();
    for address in look.servers.values() {
        let mut dialogue = begin(address, true)?;
        let identity = identity(&mut dialogue)?;
        if !seen.iter().any(|known| known.same_server(&identity)) {
            impacts.push(look_at(settings, look, address, &mut dialogue));
            seen.push(identity);
        }
        dialogue.end()?;
    }
    Ok(impacts)
}

fn look_at(settings: &Settings, look: &Look<'_>, address: &ServerAddress, dialogue: &mut Dialogue) -> Impact {
    let statement = settings.statement;
    let database = address.credentials.database.as_deref().unwrap_or_default();
    let mut impact = Impact::on(format!("the PostgreSQL at {} database {database}", address.endpoint));
    let open = number(
        dialogue,
        "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()",
    );
    let kept = number(dialogue, "SHOW superuser_reserved_connections").unwrap_or(0)
        + number(dialogue, "SHOW reserved_connections").unwrap_or(0);
    let most = number(dialogue, "SHOW max_connections").map(|most| most.saturating_sub(kept));
    impact.connections(look.connections, open, most, "max_connections");
    if settings.read_only || !statement.has_table() {
        return impact;
    }
    let rows = u64::from(settings.rows);
    impact.does.push(format!(
        "makes a table samehost_… with {rows} rows (about {}) in the database {}, and drops it at the end (--statement select-1 --read-only yes writes nothing)",
        in_words(rows * ROW_BYTES),
        database.escape_debug()
    ));
    if statement == Statement::Update {
        impact.does.push("changes one of these rows with every statement, as fast as it is answered".into());
    }
    let standbys = number(dialogue, "SELECT count(*) FROM pg_stat_replication").unwrap_or(0);
    let (level, archive) = (setting(dialogue, "wal_level"), setting(dialogue, "archive_mode"));
    impact.found.push(match standbys {
        0 => format!("what is written goes to its log (wal_level {level}), which no standby reads now"),
        1 => format!("what is written goes to its log (wal_level {level}), which 1 standby reads"),
        many => format!("what is written goes to its log (wal_level {level}), which {many} standbys read"),
    });
    if !matches!(archive.as_str(), "" | "off") {
        impact.found.push("its log is archived (archive_mode), with all that is written".into());
    }
    let directory = setting(dialogue, "data_directory");
    if !directory.is_empty() {
        impact.disk(rows * ROW_BYTES + LOG_BYTES, &directory);
    }
    impact
}

/// A number that the server tells; `None` for what this version does not have, or this user may not see.
fn number(dialogue: &mut Dialogue, sql: &str) -> Option<u64> {
    dialogue.value("a number", sql).ok()?.parse().ok()
}

/// A setting of the server; empty where this version does not have it, or this user may not see it.
fn setting(dialogue: &mut Dialogue, name: &str) -> String {
    dialogue.value("a setting", &format!("SHOW {name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    /// Read as the option takes it that fits.
    fn given(text: &str) -> Result<ServerAddress, BenchError> {
        let over_tcp = Postgres.address(&Written { transport: Transport::Tcp, text, password: None });
        over_tcp.or_else(|error| {
            let written = Written { transport: Transport::Unix, text, password: None };
            Postgres.address(&written).map_err(|_| error)
        })
    }

    #[test]
    fn urls_say_what_their_users_mean() {
        let own = given("tcp:127.0.0.1:6000").unwrap().credentials;
        let me = (own.user.clone().unwrap(), own.database.clone().unwrap());
        for (text, endpoint, user, database) in [
            ("postgres://127.0.0.1", "tcp:127.0.0.1:5432", me.0.as_str(), me.1.as_str()),
            ("postgresql://bob:p%40s@[::1]:6000/shop", "tcp:[::1]:6000", "bob", "shop"),
            ("postgres:///shop?host=/run/pg&port=6000&user=bob", "unix:/run/pg/.s.PGSQL.6000", "bob", "shop"),
            ("postgres://bob@/shop?host=127.0.0.1", "tcp:127.0.0.1:5432", "bob", "shop"),
            ("postgres://bob@%2Frun%2Fpg:6000/b", "unix:/run/pg/.s.PGSQL.6000", "bob", "b"),
            ("unix:/run/pg/.s.PGSQL.6000", "unix:/run/pg/.s.PGSQL.6000", &me.0, &me.1),
            ("unix:/", "unix:/.s.PGSQL.5432", &me.0, &me.1),
        ] {
            let address = given(text).unwrap();
            let login = &address.credentials;
            assert_eq!(address.endpoint.to_string(), endpoint, "{text}");
            assert_eq!(
                (login.user.as_deref(), login.database.as_deref()),
                (Some(user), Some(database)),
                "{text}"
            );
        }
        let password = given("postgresql://bob:p%40s@[::1]:6000/shop").unwrap().credentials.password;
        assert_eq!(password.unwrap().reveal(), "p@s");
        let required = given("postgres://h/d?sslmode=require").unwrap();
        assert_eq!(required.sslmode, SslMode::Require);
        assert_eq!(required.over_tls().endpoint.to_string(), "tcp+tls:h:5432");
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        assert_leads_everywhere(&["postgres"], |text| {
            given(text).map(|address| address.endpoint.to_string())
        });
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, word) in [
            ("mysql://:hunter2@h/", "not a URL of PostgreSQL"),
            ("postgres://u:hunter2@h:x/", "not a port number"),
            ("postgres://u:hunter2@h/?sslmode=verify-full", "sslmode"),
            ("postgres://u@h/?password=hunter2", "PGPASSWORD"),
            ("postgres://u:hunter2@a,b/", "each of several servers"),
            ("postgres://u:hunter2@h/?what=1", "options"),
        ] {
            let error = given(text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("hunter2"), "{error}");
        }
        let written = Written { transport: Transport::Unix, text: "postgres://h", password: None };
        let error = Postgres.address(&written).unwrap_err().to_string();
        assert!(error.contains("--unix names"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(postgres|postgresql)://.{0,30}") {
            let _ = given(&text);
        }
    }

    fn parameters(changed: &[(&str, &str)]) -> Parameters {
        let mut all = crate::workload::defaults(&Postgres);
        all.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        all
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        fn check(changed: &[(&str, &str)], connections: u32) -> Result<(), BenchError> {
            let point = Point { connections, ..Point::default() };
            Postgres.configure(&parameters(changed))?.check(&point, Transport::Tcp)
        }
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
        fn title(changed: &[(&str, &str)]) -> String {
            Postgres.configure(&parameters(changed)).unwrap().title()
        }
        fn via(via: &str, pool: &str) -> String {
            title(&[("via", via), ("pool", pool), ("front", "tcp")])
        }
        assert_eq!(title(&[]), "point select, prepared");
        assert_eq!(title(&[("statement", "copy")]), "COPY of 10000 rows");
        assert_eq!(title(&[("protocol", "simple"), ("statement", "select-1")]), "SELECT 1, as text");
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
