//! Talks to MySQL outside the hot path: set-up, prepared statements and clean-up, over the login in `samehost-login`.

use std::fmt;

use samehost_login::mysql::packet::{SqlError, first_frame, frame};
use samehost_login::mysql::{self, Surroundings};
use samehost_login::url::{ServerUrl, escape, login, unescape};
use samehost_login::{Destination, Expected, MYSQL_SOCKET_OPTIONS};
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_transport::Stream;

use super::super::requests::{expected, expected_again};
use crate::error::{self, BenchError};
use crate::workloads::requests::REPLY_TIMEOUT;

pub(super) use samehost_login::mysql::{QUERY, Reply};

/// COM_STMT_PREPARE.
const PREPARE: u8 = 0x16;

/// Keeps a connection's statements out of the binary log.
const UNLOGGED: &str = "SET SESSION sql_log_bin = 0";

/// Whether a server logs our writes, for its replicas and for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryLog {
    /// The server has no binary log.
    None,
    /// It logs other clients' statements, but not ours.
    KeptOut,
    /// It logs ours too: this user may not switch that off.
    Ours,
}

/// A connection that is logged in.
pub(super) struct Dialogue(mysql::Dialogue);

impl Dialogue {
    /// Connects, with TLS if the endpoint asks for it, and logs in.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected(Protocol::Mysql))
    }

    /// Connects as a part of what is measured.
    pub(super) fn measured(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected_again(Protocol::Mysql))
    }

    fn with(address: &Address, expected: &Expected) -> Result<Self, BenchError> {
        let account = mysql::Account {
            user: &address.user,
            password: &address.password,
            database: address.database.as_deref(),
            expected,
        };
        let mut dialogue = Dialogue(mysql::Dialogue::begin(&address.endpoint, &account, REPLY_TIMEOUT)?);
        if address.unlogged {
            dialogue.must("keeping our statements out of the binary log", UNLOGGED)?;
        }
        Ok(dialogue)
    }

    /// Whether the server has a binary log, and whether we may keep out of it. If so, this connection does
    /// from then on.
    pub(super) fn binary_log(&mut self) -> Result<BinaryLog, BenchError> {
        if !matches!(self.variable("log_bin")?.as_deref(), Some("ON" | "1")) {
            return Ok(BinaryLog::None);
        }
        Ok(if matches!(self.ask(UNLOGGED)?, Reply::Refused(_)) {
            BinaryLog::Ours
        } else {
            BinaryLog::KeptOut
        })
    }

    /// A single number from a query's first row; `column` counts from 0.
    pub(super) fn number(&mut self, sql: &str, column: usize) -> Result<Option<u64>, BenchError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => {
                rows.first().and_then(|row| row.get(column)).and_then(|value| value.as_deref()?.parse().ok())
            }
            _ => None,
        })
    }

    /// Version as the server reports it.
    pub(super) fn version(&self) -> &str {
        &self.0.greeting().version
    }

    /// Sends a command and returns the whole reply as bytes.
    pub(super) fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, BenchError> {
        Ok(self.0.raw(command)?)
    }

    /// Sends a query and returns the reply, also if it is a refusal.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Reply, BenchError> {
        Ok(self.0.ask(sql)?)
    }

    /// Sends a query that the measurement needs; a refusal is an error.
    pub(super) fn must(&mut self, what: &str, sql: &str) -> Result<Reply, BenchError> {
        match self.ask(sql)? {
            Reply::Refused(error) => Err(self.refused(what, &error)),
            reply => Ok(reply),
        }
    }

    /// Sends a query that the measurement needs; returns the rows.
    pub(super) fn rows_of(&mut self, what: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>, BenchError> {
        Ok(match self.must(what, sql)? {
            Reply::Rows(rows) => rows,
            _ => Vec::new(),
        })
    }

    fn refused(&mut self, what: &str, error: &SqlError) -> BenchError {
        BenchError::Refused {
            endpoint: self.0.link().endpoint().to_string(),
            what: what.to_owned(),
            try_next: error::mysql(error.code).to_owned(),
            answer: error.to_string(),
        }
    }

    /// Prepares a statement; returns its id, number of parameters and number of columns.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<(u32, u16, u16), BenchError> {
        let mut question = Vec::new();
        frame(0, &[&[PREPARE], sql.as_bytes()].concat(), &mut question);
        let answered = self.0.link().ask(&question, prepared)?;
        answered.map_err(|error| self.refused("a prepared statement", &error))
    }

    /// The server's view of this connection: account, peer and cipher.
    pub(super) fn view(&mut self) -> Result<String, BenchError> {
        Ok(format!("the server says {}", self.0.seen()?))
    }

    /// Value of a server variable.
    pub(super) fn variable(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        Ok(self.0.variable(name)?)
    }

    /// Sends COM_QUIT; the server then closes without counting an aborted client.
    pub(super) fn quit(self) -> Result<(), BenchError> {
        Ok(self.0.quit()?)
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        Ok(self.0.into_stream()?)
    }
}

type Prepared = Result<(u32, u16, u16), SqlError>;

/// Parses the reply to COM_STMT_PREPARE: OK, id (4), columns (2), parameters (2), then the definitions of
/// parameters and of columns; each list that is not empty has an end packet.
fn prepared(input: &[u8]) -> Result<Option<(Prepared, usize)>, String> {
    let next = |at: usize| first_frame(&input[at..]).map_err(str::to_owned);
    let Some(first) = next(0)? else { return Ok(None) };
    if let Some(error) = SqlError::read(first.payload) {
        return Ok(Some((Err(error), first.length)));
    }
    let [0, a, b, c, d, columns_low, columns_high, low, high, ..] = *first.payload else {
        return Err("a broken answer to PREPARE".into());
    };
    let columns = u16::from_le_bytes([columns_low, columns_high]);
    let parameters = u16::from_le_bytes([low, high]);
    let mut at = first.length;
    for list in [parameters, columns] {
        for _ in 0..if list > 0 { u32::from(list) + 1 } else { 0 } {
            let Some(frame) = next(at)? else { return Ok(None) };
            at += frame.length;
        }
    }
    Ok(Some((Ok((u32::from_le_bytes([a, b, c, d]), parameters, columns)), at)))
}

// Address and login of a MySQL or MariaDB server: from a URL or a plain endpoint, completed from the environment and
// the user's option file. The password goes to the server only; formatting an address never shows it.

const FORMS: &str = "write mysql://USER@127.0.0.1:3306[/DATABASE], mysql://USER@localhost[/DATABASE]?socket=/path or a plain endpoint (tcp:127.0.0.1:3306, unix:/path)";

/// A server and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) user: String,
    pub(super) password: String,
    /// Database for our table; `None` for one of our own.
    pub(super) database: Option<String>,
    /// Whether our writes are kept out of the server's binary log, and so from its replicas.
    pub(super) unlogged: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.endpoint, self.user.escape_debug())
    }
}

impl Address {
    /// Parses what the command line gave for a transport.
    ///
    /// # Errors
    /// When it is not an address, or has another transport.
    pub(super) fn given(transport: Transport, text: &str, around: &Surroundings) -> Result<Self, BenchError> {
        let given = parse(text)?;
        let known = given.endpoint.transport();
        let fits = known == transport
            || matches!(
                (transport, known),
                (Transport::Tcp | Transport::TcpTls, Transport::Tcp | Transport::Tcp6)
            );
        if !fits {
            return Err(BenchError::Usage(format!(
                "--{transport} names a server reached over {known}: {}; `localhost` means the default socket, as it does to MySQL's own clients; 127.0.0.1 is TCP",
                given.endpoint
            )));
        }
        let endpoint = match (transport, given.endpoint) {
            (Transport::TcpTls, Endpoint::Tcp { host, port }) => Endpoint::TcpTls { host, port },
            (_, endpoint) => endpoint,
        };
        let passwords = [&given.password, &around.environment, &around.file.password];
        Ok(Address {
            endpoint,
            user: given
                .user
                .or_else(|| around.file.user.clone())
                .unwrap_or_else(|| around.login_name.clone()),
            password: passwords.into_iter().flatten().next().cloned().unwrap_or_default(),
            database: given.database,
            unlogged: false,
        })
    }

    /// This address over another endpoint, as a URL with its secrets: for use inside this program only.
    pub(super) fn url_of(&self, endpoint: &Endpoint) -> String {
        let login = login(Some(&self.user), Some(&self.password));
        let database = self.database.as_deref().map(escape).unwrap_or_default();
        match endpoint {
            Endpoint::Unix(path) => {
                format!("mysql://{login}localhost/{database}?socket={}", escape(&path.display().to_string()))
            }
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } if host.contains(':') => {
                format!("mysql://{login}[{host}]:{port}/{database}")
            }
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } => {
                format!("mysql://{login}{host}:{port}/{database}")
            }
            other => other.to_string(),
        }
    }
}

struct Given {
    endpoint: Endpoint,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
}

fn parse(text: &str) -> Result<Given, BenchError> {
    let Some(url) = ServerUrl::parse(text) else {
        return Ok(Given { endpoint: text.parse()?, user: None, password: None, database: None });
    };
    let url = url.map_err(|reason| wrong(&reason))?;
    let known = MYSQL_SOCKET_OPTIONS;
    if url.options.iter().any(|(name, _)| !known.contains(&name.as_str())) {
        return Err(wrong("the only option after `?` is socket"));
    }
    let found = Destination::of(&url).map_err(|error| wrong(&error.to_string()))?;
    if found.protocol != Protocol::Mysql {
        return Err(wrong(&format!("`{}://` is not a URL of MySQL", url.scheme.escape_debug())));
    }
    let (_, database) = url.place.split_once('/').unwrap_or_default();
    let database = unescape(database).ok_or_else(|| wrong("a wrong `%` in the database"))?;
    Ok(Given {
        endpoint: found.endpoint,
        user: url.user,
        password: url.password,
        database: Some(database).filter(|name| !name.is_empty()),
    })
}

fn wrong(reason: &str) -> BenchError {
    BenchError::Usage(format!("{reason}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use samehost_login::mysql::OptionFile;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            environment: Some("from-env".into()),
            file: OptionFile { user: Some("filed".into()), password: Some("from-file".into()) },
            login_name: "me".into(),
        }
    }

    #[test]
    fn urls_are_read_as_clients_read_them() {
        let given = |transport, text: &str| Address::given(transport, text, &around()).unwrap();
        let tcp = given(Transport::Tcp, "mysql://bob:p%40ss@127.0.0.1/shop");
        assert_eq!(tcp.endpoint.to_string(), "tcp:127.0.0.1:3306");
        assert_eq!((tcp.user.as_str(), tcp.password.as_str()), ("bob", "p@ss"));
        assert_eq!(tcp.database.as_deref(), Some("shop"));
        let tls = given(Transport::TcpTls, "mariadb://[::1]:7/");
        assert_eq!(tls.endpoint.to_string(), "tcp+tls:[::1]:7");
        assert_eq!((tls.user.as_str(), tls.password.as_str()), ("filed", "from-env"));
        assert_eq!(tls.database, None);
        let default = given(Transport::Unix, "mysql://bob@localhost/db");
        assert!(default.endpoint.path().is_some(), "{default}");
        let unix = given(Transport::Unix, "mysql://bob@localhost/db?socket=/run/my%20sql.sock");
        assert_eq!(unix.endpoint.to_string(), "unix:/run/my sql.sock");
        assert_eq!(given(Transport::Unix, "unix:/run/m.sock").endpoint.to_string(), "unix:/run/m.sock");
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| parse(text).map(|given| given.endpoint.to_string());
        assert_leads_everywhere(&["mysql", "mariadb"], read);
    }

    #[test]
    fn an_address_comes_back_from_its_url() {
        let given = |transport, text: &str| Address::given(transport, text, &around()).unwrap();
        for (transport, text) in [
            (Transport::Tcp, "mysql://b%40b:p%2f@127.0.0.1:7/d%20b"),
            (Transport::TcpTls, "mysql://b@[::1]:7"),
            (Transport::Unix, "mysql://b:@localhost?socket=/a%3fb"),
        ] {
            let address = given(transport, text);
            assert!(given(transport, &address.url_of(&address.endpoint)) == address, "{text}");
        }
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
            let error = Address::given(Transport::Tcp, text, &around()).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(
            !format!("{:?}", Address::given(Transport::Tcp, "mysql://u:hunter2@h", &around()))
                .contains("hunter2")
        );
    }
}
