//! MySQL and MariaDB: statements on a table of our own (prepared or as text, on persistent connections or a
//! connection per statement), and a dump, against a private server or one that is already running.

mod dialogue;
mod running;
mod session;
mod statement;

use std::sync::Arc;

use samehost_login::{MYSQL_SOCKET_OPTIONS, ServerAddress};
use samehost_model::{Endpoint, MetricInfo, Point, RateSpec, Transport, metric};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Parameter, Parameters, Values, Word, YesOrNo};
use crate::private_servers::mariadb::Brand;
use crate::private_servers::{MARIADB, PrivateServer};
use crate::served::{Instance, Servers, StartOptions};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, DATABASES, Description, Look, OpenOrClosed,
    Starts, Workload, Written, infos, request_metrics,
};
use crate::workloads::foreign::{Forms, complete, lacking};
use crate::workloads::requests::{Connect, MAX_SLICED_CONNECTIONS, require_own_connects, require_threads};
use dialogue::begin;
use running::RunningMySql;
use statement::{Protocol, Statement};

/// Most rows: ids are numbers of 32 bits.
const MAX_ROWS: u32 = 1_000_000_000;

/// Connections of an arm in the checkup. Each is a thread of the server, and a round opens and closes those of both
/// arms: beside a program at 60 % of each of two CPUs a block took 0.56 s with 16 and 0.76 s with 64, and after as
/// much time the ratio of CPU time was as well known (three runs of 11 s each).
const CHECKUP_CONNECTIONS: u32 = 16;

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Mysql,
    title: "MySQL",
    examples: "mysql://USER@127.0.0.1:3306[/DATABASE], mysql://USER@localhost[/DATABASE]?socket=/path or a plain endpoint (tcp:127.0.0.1:3306, unix:/path)",
    hint: "; `localhost` means the default socket, as it does to MySQL's own clients; 127.0.0.1 is TCP",
};

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
    Parameter::word::<YesOrNo>(
        "read-only",
        "On a server that runs: write nothing, and use the largest table of the URL's database that has one integer as primary key",
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

    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        let url = FORMS.url(written)?;
        if let Some(url) = &url {
            for (name, _) in &url.options {
                if !MYSQL_SOCKET_OPTIONS.contains(&name.as_str()) {
                    return Err(FORMS.wrong("the only option after `?` is socket"));
                }
            }
        }
        FORMS.address(written, url.as_ref())
    }

    fn complete(&self, servers: &Servers, wanted: &[Transport]) -> Result<Servers, BenchError> {
        complete(servers, wanted, other_half)
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&MARIADB, self.name(), CHECKUP_TRIAL, CHECKUP_CONNECTIONS))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        let (statement, protocol) = (parameters.word("statement")?, parameters.word("protocol")?);
        let per_query = parameters.word::<Connect>("connect")? == Connect::PerQuery;
        Ok(Arc::new(Settings {
            statement,
            protocol: if per_query { Protocol::Text } else { protocol },
            per_query,
            rows: rows(statement, parameters.given("rows"))?,
            brand: parameters.word("server")?,
            read_only: parameters.is_yes("read-only")?,
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
            most_sliced: if self.per_query || dump { 0 } else { MAX_SLICED_CONNECTIONS },
            // Making a data directory and filling a table takes seconds.
            starts: Starts::InTurn(DATABASES),
            ..Capabilities::REQUESTS
        }
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
            return infos(&[
                metric::WALL_TIME,
                metric::BANDWIDTH,
                metric::CLIENT_CPU_PER_OP,
                metric::SERVER_CPU_PER_OP,
                metric::TOTAL_CPU_PER_OP,
            ]);
        }
        request_metrics(open_loop)
    }

    fn check(&self, point: &Point, transport: Transport) -> Result<(), BenchError> {
        if self.per_query {
            require_own_connects(transport)?;
            require_threads("--connect per-query", point.connections)?;
        }
        if self.per_query && self.statement == Statement::Dump {
            return BenchError::refuse("a dump is one long query: --connect per-query says nothing about it");
        }
        if self.read_only && self.statement.writes() {
            return BenchError::refuse("--read-only yes and a statement that writes do not go together");
        }
        Ok(())
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        running::look(self, look)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningMySql::start(self, start)?))
    }
}

/// Asks a server how it is reached over the other transport, by its variable `socket` or `port`. A port counts only
/// where the server listens there (`skip_networking`); the address is taken to be 127.0.0.1.
fn other_half(known: &ServerAddress) -> Result<Endpoint, BenchError> {
    let variable = if known.endpoint.path().is_some() { "port" } else { "socket" };
    let mut dialogue = begin(known)?;
    let mut value = dialogue.variable(variable)?.filter(|value| !value.is_empty() && value != "0");
    if variable == "port" && dialogue.variable("skip_networking")?.as_deref() == Some("ON") {
        value = None;
    }
    dialogue.quit()?;
    match value {
        Some(path) if variable == "socket" => Ok(format!("unix:{path}").parse()?),
        Some(port) => Ok(format!("tcp:127.0.0.1:{port}").parse()?),
        None => Err(lacking(
            known,
            &format!(
                "does not listen on a {variable} to measure against; set `{variable}` in [mysqld], give the other half with --tcp or --unix"
            ),
        )),
    }
}

#[derive(Clone, Debug)]
struct Settings {
    statement: Statement,
    protocol: Protocol,
    per_query: bool,
    rows: u32,
    brand: Brand,
    read_only: bool,
}

fn rows(statement: Statement, given: Option<String>) -> Result<u32, BenchError> {
    let Some(text) = given else {
        return Ok(if statement == Statement::Dump { 200_000 } else { 10_000 });
    };
    // `10k` is ten thousand, as in rates: the parser of rates reads it.
    match samehost_model::parse_rate_list(&text).as_deref() {
        Ok([RateSpec::PerSecond(count)]) if *count >= 1.0 && *count <= f64::from(MAX_ROWS) => {
            Ok(*count as u32)
        }
        _ => BenchError::refuse(format!("--rows {text}: a number from 1 to {MAX_ROWS}, such as 10k")),
    }
}

/// Logs in at each endpoint of a private server, and creates the database if it does not exist, for WordPress.
///
/// # Errors
/// When the server does not answer, or refuses.
pub(crate) fn ensure_database(server: &PrivateServer, database: &str) -> Result<(), BenchError> {
    for address in server.plain_addresses() {
        let mut dialogue = begin(&address)?;
        dialogue
            .must("a database", &format!("CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4"))?;
        dialogue.quit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use samehost_login::Credentials;
    use samehost_model::Secret;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn given(transport: Transport, text: &str) -> Result<ServerAddress, BenchError> {
        MySql.address(&Written { transport, text, password: None })
    }

    #[test]
    fn urls_are_read_as_clients_read_them() {
        let tcp = given(Transport::Tcp, "mysql://bob:p%40ss@127.0.0.1/shop").unwrap();
        assert_eq!(tcp.endpoint.to_string(), "tcp:127.0.0.1:3306");
        let expected = Credentials {
            user: Some("bob".into()),
            password: Some(Secret::new("p@ss")),
            database: Some("shop".into()),
        };
        assert_eq!(tcp.credentials, expected);
        let ip6 = given(Transport::Tcp, "mariadb://[::1]:7/").unwrap();
        assert_eq!(ip6.over_tls().endpoint.to_string(), "tcp+tls:[::1]:7");
        assert_eq!(ip6.credentials.database, None);
        let default = given(Transport::Unix, "mysql://bob@localhost/db").unwrap();
        assert!(default.endpoint.path().is_some(), "{default:?}");
        let unix = given(Transport::Unix, "mysql://bob@localhost/db?socket=/run/my%20sql.sock").unwrap();
        assert_eq!(unix.endpoint.to_string(), "unix:/run/my sql.sock");
        let plain = given(Transport::Unix, "unix:/run/m.sock").unwrap();
        assert_eq!(plain.endpoint.to_string(), "unix:/run/m.sock");
    }

    #[test]
    fn a_password_that_was_prompted_for_is_for_a_url_without_one() {
        let asked = Secret::new("p@w");
        let given =
            |text| MySql.address(&Written { transport: Transport::Tcp, text, password: Some(&asked) });
        assert_eq!(given("mysql://bob@h").unwrap().credentials.password, Some(asked.clone()));
        assert_eq!(given("mysql://bob:own@h").unwrap().credentials.password, Some(Secret::new("own")));
        assert!(given("tcp:h:1").unwrap_err().to_string().contains("has no place for a password"));
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        assert_leads_everywhere(&["mysql", "mariadb"], |text| {
            let address = given(Transport::Tcp, text).or_else(|_| given(Transport::Unix, text));
            address.map(|address| address.endpoint.to_string())
        });
    }

    #[test]
    fn wrong_ones_are_refused_without_their_secrets() {
        for text in [
            "http://u:hunter2@h",
            "mysql://u:hunter2@/db",
            "mysql://u:hunter2@h?socket=relative",
            "mysql://u:hunter2%zz@h",
            "mysql://u:hunter2@h:x",
            "mysql://u:hunter2@h?password=hunter2",
            "mysql://u:hunter2@localhost?socket=/s",
        ] {
            let error = given(Transport::Tcp, text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let shown = format!("{:?}", given(Transport::Tcp, "mysql://u:hunter2@h"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
