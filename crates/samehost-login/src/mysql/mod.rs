//! MySQL and MariaDB: login, and queries about the connection.

mod login;
pub mod packet;

use std::fmt;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol};
use samehost_transport::Stream;

use crate::address::ServerAddress;
use crate::credentials::Credentials;
use crate::error::{LoginError, Refused};
use crate::expected::Expected;
use crate::link::{Encrypted, Link, plain};
use crate::passwords::hold;
use login::{Channel, Denied, Login, Step};
use packet::{Answer, SqlError, first_frame, frame, take_text};

pub use login::Greeting;

// Talks to MySQL outside a hot path: log in, ask for identity and evidence.

/// COM_QUIT.
const QUIT: u8 = 0x01;
/// COM_QUERY.
pub const QUERY: u8 = 0x03;

/// Longest packet during a login: greetings, proofs and keys have a few hundred bytes. The beginning of
/// another protocol's text would announce some megabytes, which are not waited for.
const LONGEST_IN_LOGIN: usize = 64 * 1024;

/// Most packets of a login: a greeting, a switch of plugin, a key and the outcome suffice.
const MOST_PACKETS: u32 = 16;

/// Account to log in as.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub user: &'a str,
    /// Empty for no password.
    pub password: &'a str,
    /// Initial database.
    pub database: Option<&'a str>,
    /// Peers that may receive the password, or a proof of it.
    pub expected: &'a Expected,
}

impl<'a> Account<'a> {
    /// The account of these credentials, whose user is `user`.
    pub(crate) fn of(user: &'a str, credentials: &'a Credentials, expected: &'a Expected) -> Self {
        let password = credentials.password().unwrap_or_default();
        Account { user, password, database: credentials.database.as_deref(), expected }
    }
}

/// A connection that is logged in.
#[derive(Debug)]
pub struct Dialogue {
    link: Link,
    greeting: Greeting,
}

/// Parsed reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; number of affected rows.
    Done(u64),
    /// Rows of text columns; `None` is NULL.
    Rows(Vec<Vec<Option<String>>>),
    /// The server returned an ERR packet.
    Refused(SqlError),
}

/// The server's view of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// USER(): the user that we named, and our host.
    pub user: String,
    /// CURRENT_USER(): the account that the server chose.
    pub account: String,
    /// HOST of the process list: `localhost` for a socket, an address with its port for TCP.
    pub host: String,
    /// Ssl_cipher; empty without TLS.
    pub cipher: String,
    /// CONNECTION_TYPE of performance_schema.threads, if it may be read: `Socket`, `TCP/IP`, `SSL/TLS`.
    pub connection_type: Option<String>,
}

impl Seen {
    /// `unix` or `tcp`, if the server reports it. `localhost` without a port means a socket.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        match self.connection_type.as_deref() {
            Some("Socket") => Some("unix"),
            Some("TCP/IP" | "SSL/TLS") => Some("tcp"),
            _ if self.host == "localhost" => Some("unix"),
            _ if self.host.contains(':') => Some("tcp"),
            _ => None,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)?;
        if !self.host.is_empty() {
            write!(f, " from {}", self.host)?;
        }
        write!(f, ", account {}, ", self.account)?;
        if self.cipher.is_empty() { f.write_str("no TLS") } else { write!(f, "TLS {}", self.cipher) }
    }
}

impl Dialogue {
    /// Connects, with TLS if the endpoint asks for it, and logs in.
    pub fn begin(
        address: &ServerAddress,
        expected: &Expected,
        patience: Duration,
    ) -> Result<Self, LoginError> {
        let link = Link::proven(&plain(&address.endpoint), patience)?;
        let user = address.credentials.user();
        let account = Account::of(&user, &address.credentials, expected);
        let mut dialogue = Self::over(link, &address.endpoint, &account)?;
        dialogue.link.let_in();
        Ok(dialogue)
    }

    /// Logs in over a new connection.
    pub(crate) fn over(
        mut link: Link,
        endpoint: &Endpoint,
        account: &Account<'_>,
    ) -> Result<Self, LoginError> {
        let channel = match endpoint {
            Endpoint::TcpTls { .. } => Channel::Tls,
            Endpoint::Tcp { .. } => Channel::Plain,
            _ => Channel::Socket,
        };
        let mut login = Login::new(account.user, account.password, account.database, channel);
        let (_, greeting) = packet(&mut link, &[])?;
        // A server that refuses every client sends an error instead of a greeting, and hangs up.
        let mut step =
            login.greeted(&greeting).map_err(|denied| not_let_in(endpoint, account, false, denied))?;
        // A proof of the password is as good as the password: it can be cracked in time, or relayed to the server.
        if !account.password.is_empty() {
            link.tie(account.expected)?;
            hold(account.password);
        }
        let has_tls = login.has_tls();
        let denied = |denied| not_let_in(endpoint, account, has_tls, denied);
        for _ in 0..MOST_PACKETS {
            let question = match step {
                Step::Done => return Ok(Dialogue { link, greeting: login.greeting }),
                Step::Wait => Vec::new(),
                Step::Send(bytes) => bytes,
                Step::StartTls(bytes) => {
                    link.tell(&bytes)?;
                    link = link.start_tls(endpoint)?;
                    login.secured().map_err(denied)?
                }
            };
            let (sequence, payload) = packet(&mut link, &question)?;
            step = login.answered(sequence, &payload).map_err(denied)?;
        }
        Err(LoginError::strange(endpoint, format!("more than {MOST_PACKETS} packets for one login")))
    }

    /// What the server's greeting contained.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The connection, for other commands.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Sends a command and returns the whole reply as bytes.
    pub fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, LoginError> {
        let mut question = Vec::new();
        frame(0, command, &mut question);
        self.link.ask(&question, |input| match packet::answer(input) {
            Ok(None) => Ok(None),
            Ok(Some((_, length))) => Ok(Some((input[..length].to_vec(), length))),
            Err(reason) => Err(format!("its answer holds {reason}")),
        })
    }

    /// Sends a query and returns the reply, also if it is a refusal.
    pub fn ask(&mut self, sql: &str) -> Result<Reply, LoginError> {
        let bytes = self.raw(&[&[QUERY], sql.as_bytes()].concat())?;
        Ok(match packet::answer(&bytes) {
            Ok(Some((Answer::Done(okay), _))) => Reply::Done(okay.affected_rows),
            Ok(Some((Answer::Refused(error), _))) => Reply::Refused(error),
            Ok(Some((Answer::Rows(rows), _))) => Reply::Rows(rows.into_iter().map(texts).collect()),
            // `raw` has already checked that it is complete.
            Ok(None) | Err(_) => Reply::Rows(Vec::new()),
        })
    }

    /// Sends a query that must not be refused.
    pub fn must(&mut self, what: &str, sql: &str) -> Result<Reply, LoginError> {
        match self.ask(sql)? {
            Reply::Refused(error) => Err(self.refused(what, &error)),
            reply => Ok(reply),
        }
    }

    /// The rows of a query that must not be refused.
    pub fn rows(&mut self, what: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>, LoginError> {
        Ok(match self.must(what, sql)? {
            Reply::Rows(rows) => rows,
            _ => Vec::new(),
        })
    }

    /// Turns a refusal after the login into an error with advice.
    #[must_use]
    pub fn refused(&self, what: &str, error: &SqlError) -> LoginError {
        LoginError::from(Box::new(Refused {
            protocol: Protocol::Mysql,
            endpoint: self.link.endpoint().to_string(),
            what: what.to_owned(),
            code: Some(error.code.to_string()),
            answer: error.to_string(),
            try_next: advice(error.code).to_owned(),
            may_need_tls: false,
            by_password: false,
        }))
    }

    /// The first row of a reply; `None` if the server refuses or returns no row.
    pub fn row(&mut self, sql: &str) -> Result<Option<Vec<Option<String>>>, LoginError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => rows.into_iter().next(),
            _ => None,
        })
    }

    /// The server's view of this connection: user, account, peer and cipher.
    pub fn seen(&mut self) -> Result<Seen, LoginError> {
        let row = self.row("SELECT USER(), CURRENT_USER()")?;
        let (user, account) = (column(row.as_deref(), 0), column(row.as_deref(), 1));
        let row = self.row("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")?;
        let host = column(row.as_deref(), 0);
        let cipher = column(self.row("SHOW SESSION STATUS LIKE 'Ssl_cipher'")?.as_deref(), 1);
        Ok(Seen { user, account, host, cipher, connection_type: None })
    }

    /// CONNECTION_TYPE of this connection, if performance_schema is on and may be read.
    pub fn connection_type(&mut self) -> Result<Option<String>, LoginError> {
        let sql =
            "SELECT CONNECTION_TYPE FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID()";
        Ok(self.row(sql)?.and_then(|row| row.into_iter().next().flatten()))
    }

    /// The connections of the account that have TLS. MySQL tells who may read performance_schema; MariaDB tells nobody.
    pub fn encrypted(&mut self) -> Result<Vec<Encrypted>, LoginError> {
        let sql = "SELECT p.HOST FROM information_schema.PROCESSLIST p JOIN performance_schema.threads t \
                   ON t.PROCESSLIST_ID = p.ID WHERE t.CONNECTION_TYPE = 'SSL/TLS' AND p.ID <> CONNECTION_ID()";
        let Reply::Rows(rows) = self.ask(sql)? else { return Ok(Vec::new()) };
        let ports = rows.iter().filter_map(|row| row.first()?.as_ref()?.rsplit_once(':')?.1.parse().ok());
        Ok(ports.map(|port| Encrypted { port, tls: "TLS".to_owned() }).collect())
    }

    /// Value of a server variable.
    pub fn variable(&mut self, name: &str) -> Result<Option<String>, LoginError> {
        let row = self.row(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?;
        Ok(row.and_then(|row| row.into_iter().nth(1).flatten()))
    }

    /// Sends COM_QUIT; the server then closes without counting an aborted client.
    pub fn quit(mut self) -> Result<(), LoginError> {
        let mut question = Vec::new();
        frame(0, &[QUIT], &mut question);
        self.link.tell(&question)
    }

    /// The connection without time limits, for a caller with its own.
    pub fn into_stream(self) -> Result<Stream, LoginError> {
        self.link.into_stream()
    }
}

/// Sends bytes, if any, and reads one packet: its sequence number and payload.
fn packet(link: &mut Link, question: &[u8]) -> Result<(u8, Vec<u8>), LoginError> {
    link.ask(question, |input| {
        if let [a, b, c, ..] = *input
            && u32::from_le_bytes([a, b, c, 0]) as usize > LONGEST_IN_LOGIN
        {
            return Err("no packet of a login; is that a MySQL or MariaDB?".into());
        }
        let frame = first_frame(input).map_err(|reason| format!("its answer holds {reason}"))?;
        Ok(frame.map(|frame| ((frame.sequence, frame.payload.to_vec()), frame.length)))
    })
}

fn texts(mut row: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    while !row.is_empty() {
        let Some(value) = take_text(&mut row) else { break };
        values.push(value.map(|text| String::from_utf8_lossy(text).into_owned()));
    }
    values
}

/// A column of a row; empty where there is none.
fn column(row: Option<&[Option<String>]>, at: usize) -> String {
    row.and_then(|row| row.get(at).cloned().flatten()).unwrap_or_default()
}

fn not_let_in(endpoint: &Endpoint, account: &Account<'_>, has_tls: bool, denied: Denied) -> LoginError {
    let refused = |code: Option<u16>, answer: String| {
        let may_need_tls =
            has_tls && matches!(endpoint, Endpoint::Tcp { .. }) && matches!(code, Some(1045 | 1835 | 3159));
        let mut try_next = code.map(advice).unwrap_or_default().to_owned();
        // The server sends the same error for a wrong password and for an account that requires TLS.
        if may_need_tls && code == Some(1045) {
            try_next.push_str("; or the account requires TLS");
        }
        LoginError::from(Box::new(Refused {
            protocol: Protocol::Mysql,
            endpoint: endpoint.to_string(),
            what: format!("the login of `{}`", account.user.escape_debug()),
            code: code.map(|code| code.to_string()),
            answer,
            try_next,
            may_need_tls,
            by_password: code == Some(1045),
        }))
    };
    match denied {
        // 1053: the server is shutting down, which is not a refusal.
        Denied::Server(error) if error.code == 1053 => LoginError::Lost {
            endpoint: endpoint.to_string(),
            reason: error.to_string(),
            code: Some(error.code.to_string()),
        },
        Denied::Server(error) => refused(Some(error.code), error.to_string()),
        Denied::Us(reason) => refused(None, reason),
        Denied::Malformed(reason) => {
            LoginError::strange(endpoint, format!("{reason}; is that a MySQL or MariaDB?"))
        }
    }
}

/// Advice after a refusal with this error number, for any caller; empty if there is none.
#[must_use]
pub fn advice(code: u16) -> &'static str {
    match code {
        1040 | 1203 | 1226 => "close idle connections, or raise max_connections",
        1044 => "grant the user a right to that database, or name one that it may use",
        1045 | 1698 => {
            "give user and password in the URL, in MYSQL_PWD, in [client] of ~/.my.cnf or with --ask-password; an account `u@127.0.0.1` and one `u@localhost` (the socket's) are two accounts with two passwords"
        }
        1049 => "name a database that exists",
        1129 => "the server blocks this host after too many failed connects: FLUSH HOSTS",
        1130 => "no account allows this host: over TCP the server sees 127.0.0.1, over the socket localhost",
        3159 | 1835 => "the server takes TLS or the Unix socket only",
        _ => "",
    }
}

#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod mutated;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transport_is_the_type_of_connection_or_else_the_host() {
        fn seen(host: &str, connection_type: Option<&str>) -> Seen {
            Seen { host: host.into(), connection_type: connection_type.map(str::to_owned), ..Seen::default() }
        }
        for (host, connection_type, expected) in [
            ("localhost", None, Some("unix")),
            ("localhost:4711", None, Some("tcp")),
            ("127.0.0.1:4711", None, Some("tcp")),
            ("localhost", Some("TCP/IP"), Some("tcp")),
            ("", Some("Socket"), Some("unix")),
            ("", None, None),
        ] {
            assert_eq!(seen(host, connection_type).transport(), expected, "{host}");
        }
    }

    #[test]
    fn a_view_has_its_words() {
        let mut seen = Seen {
            user: "app@localhost".into(),
            account: "app@%".into(),
            host: "localhost".into(),
            ..Seen::default()
        };
        assert_eq!(seen.to_string(), "app@localhost from localhost, account app@%, no TLS");
        seen.cipher = "TLS_AES_256_GCM_SHA384".into();
        assert!(seen.to_string().ends_with(", TLS TLS_AES_256_GCM_SHA384"));
    }
}
