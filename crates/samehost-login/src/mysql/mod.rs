//! MySQL and MariaDB: login, and queries about the connection.

mod login;
pub mod packet;

use std::fmt;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol};
use samehost_transport::Stream;

use crate::address::ServerAddress;
use crate::credentials::{Credentials, remember_sent};
use crate::error::{LoginError, Malformed, Refused};
use crate::expected::Expected;
use crate::link::{Encrypted, Link, plain};
use login::{Channel, Denied, Login, Step};
use packet::{Answer, SqlError, first_frame, frame, take_text};

pub use login::Greeting;

const QUIT: u8 = 0x01;
/// COM_QUERY; the text of a statement follows.
pub const QUERY: u8 = 0x03;

/// Longest packet during a login: greetings, proofs and keys have a few hundred bytes. The beginning of
/// another protocol's text would announce some megabytes, which are not waited for.
const LONGEST_IN_LOGIN: usize = 64 * 1024;

/// Most packets of a login: a greeting, a switch of plugin, a key and the outcome suffice.
const MOST_PACKETS: u32 = 16;

#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub user: &'a str,
    /// Empty for no password.
    pub password: &'a str,
    pub database: Option<&'a str>,
    /// Peers that may receive the password, or a proof of it.
    pub expected: &'a Expected,
}

impl<'a> Account<'a> {
    pub(crate) fn of(user: &'a str, credentials: &'a Credentials, expected: &'a Expected) -> Self {
        let password = credentials.password().unwrap_or_default();
        Account { user, password, database: credentials.database.as_deref(), expected }
    }
}

#[derive(Debug)]
pub struct Dialogue {
    link: Link,
    greeting: Greeting,
}

/// Columns of a row as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The number of rows that it changed.
    Done(u64),
    Rows(Vec<Row>),
    Refused(SqlError),
}

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
    /// Connects, checks the transport with the kernel, and logs in; with TLS if the endpoint asks for it. `patience` limits
    /// the time to connect, then that of the login, and then that of each reply.
    ///
    /// # Errors
    /// When connecting fails, the peer is not an expected one, or the server refuses.
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
        let greeting = packet(&mut link, &[])?.payload;
        // A server that refuses every client sends an error instead of a greeting, and hangs up.
        let mut step =
            login.greeted(&greeting).map_err(|denied| not_let_in(endpoint, account, false, denied))?;
        // The peer is tied before the first proof of the password, which is as good as the password: it can be cracked in
        // time, or relayed to the server.
        if !account.password.is_empty() {
            link.tie(account.expected)?;
            remember_sent(account.password);
        }
        let has_tls = login.has_tls();
        let not_let_in = |denied| not_let_in(endpoint, account, has_tls, denied);
        for _ in 0..MOST_PACKETS {
            let question = match step {
                Step::Done => return Ok(Dialogue { link, greeting: login.greeting }),
                Step::Wait => Vec::new(),
                Step::Send(bytes) => bytes,
                Step::StartTls(bytes) => {
                    link.tell(&bytes)?;
                    link = link.start_tls(endpoint)?;
                    login.secured().map_err(not_let_in)?
                }
            };
            let packet = packet(&mut link, &question)?;
            step = login.answered(packet.sequence, &packet.payload).map_err(not_let_in)?;
        }
        Err(LoginError::strange(endpoint, format!("more than {MOST_PACKETS} packets for one login")))
    }

    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Sends a command (its code and what follows it) and returns the whole reply, one or several packets, as bytes.
    pub fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, LoginError> {
        let mut question = Vec::new();
        frame(0, command, &mut question);
        self.link.ask(&question, |input| match packet::answer(input) {
            Ok(None) => Ok(None),
            Ok(Some((_, length))) => Ok(Some((input[..length].to_vec(), length))),
            Err(reason) => Err(format!("its answer holds {reason}").into()),
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

    /// Sends a query; a refusal is an error with advice, whose text has `what` after "refused".
    pub fn must(&mut self, what: &str, sql: &str) -> Result<Reply, LoginError> {
        match self.ask(sql)? {
            Reply::Refused(error) => Err(self.refused(what, &error)),
            reply => Ok(reply),
        }
    }

    /// As [`Dialogue::must`], with the rows alone.
    pub fn rows(&mut self, what: &str, sql: &str) -> Result<Vec<Row>, LoginError> {
        Ok(match self.must(what, sql)? {
            Reply::Rows(rows) => rows,
            _ => Vec::new(),
        })
    }

    #[must_use]
    pub fn refused(&self, what: &str, error: &SqlError) -> LoginError {
        let refused = Refused::new(Protocol::Mysql, self.link.endpoint(), what, error.to_string());
        let (code, try_next) = (Some(error.code.to_string()), advice(error.code).to_owned());
        Refused { code, try_next, ..refused }.into()
    }

    /// The first row of a reply; `None` if the server refuses or returns no row.
    pub fn row(&mut self, sql: &str) -> Result<Option<Row>, LoginError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => rows.into_iter().next(),
            _ => None,
        })
    }

    /// The server's view of this connection; what needs a right and is refused is empty. Who the account is needs none: a server
    /// that refuses that answers no statement (a password that expired, a limit that is used up). Without `connection_type`: see
    /// [`Dialogue::connection_type`].
    pub fn seen(&mut self) -> Result<Seen, LoginError> {
        let rows =
            self.rows("a statement, although it accepted the login", "SELECT USER(), CURRENT_USER()")?;
        let row = rows.into_iter().next();
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
        let mut found = Vec::new();
        for row in &rows {
            let Some(Some(host)) = row.first() else { continue };
            let Some((_, port)) = host.rsplit_once(':') else { continue };
            if let Ok(port) = port.parse() {
                found.push(Encrypted { port, tls: "TLS".to_owned() });
            }
        }
        Ok(found)
    }

    /// A global variable of the server; `None` if there is none of this name, or the server refuses.
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

struct Packet {
    sequence: u8,
    payload: Vec<u8>,
}

fn packet(link: &mut Link, question: &[u8]) -> Result<Packet, LoginError> {
    link.ask(question, packet_of_login)
}

fn packet_of_login(input: &[u8]) -> Result<Option<(Packet, usize)>, Malformed> {
    if let [a, b, c, ..] = *input
        && u32::from_le_bytes([a, b, c, 0]) as usize > LONGEST_IN_LOGIN
    {
        return Err("no packet of a login; is that a MySQL or MariaDB?".into());
    }
    match first_frame(input) {
        Ok(None) => Ok(None),
        Ok(Some(frame)) => {
            let packet = Packet { sequence: frame.sequence, payload: frame.payload.to_vec() };
            Ok(Some((packet, frame.length)))
        }
        Err(reason) => Err(format!("its answer holds {reason}").into()),
    }
}

fn texts(mut row: &[u8]) -> Row {
    let mut values = Vec::new();
    while !row.is_empty() {
        let Some(value) = take_text(&mut row) else { break };
        values.push(value.map(|text| String::from_utf8_lossy(text).into_owned()));
    }
    values
}

/// A column of a row; empty where there is none.
fn column(row: Option<&[Option<String>]>, at: usize) -> String {
    let value = row.unwrap_or_default().get(at).cloned().flatten();
    value.unwrap_or_default()
}

fn not_let_in(endpoint: &Endpoint, account: &Account<'_>, has_tls: bool, denied: Denied) -> LoginError {
    let (code, answer) = match denied {
        // 1053: the server is shutting down, which is not a refusal.
        Denied::Server(error) if error.code == 1053 => {
            return LoginError::Lost {
                endpoint: endpoint.to_string(),
                reason: error.to_string(),
                code: Some(error.code.to_string()),
            };
        }
        Denied::Malformed(reason) => {
            return LoginError::strange(endpoint, format!("{reason}; is that a MySQL or MariaDB?"));
        }
        Denied::Server(error) => (Some(error.code), error.to_string()),
        Denied::Us(reason) => (None, reason),
    };
    let may_need_tls =
        has_tls && matches!(endpoint, Endpoint::Tcp { .. }) && matches!(code, Some(1045 | 1835 | 3159));
    let mut try_next = code.map(advice).unwrap_or_default().to_owned();
    // The server sends the same error for a wrong password and for an account that requires TLS.
    if may_need_tls && code == Some(1045) {
        try_next.push_str("; or the account requires TLS");
    }
    let what = format!("the login of `{}`", account.user.escape_debug());
    let refused = Refused::new(Protocol::Mysql, endpoint, what, answer);
    let (by_password, code) = (code == Some(1045), code.map(|code| code.to_string()));
    Refused { code, try_next, may_need_tls, by_password, ..refused }.into()
}

/// Advice after a refusal with this error number, for any caller; empty if there is none.
#[must_use]
pub fn advice(code: u16) -> &'static str {
    match code {
        1040 | 1203 => "close idle connections, or raise max_connections",
        1226 => {
            "the account's limit (MAX_QUERIES_PER_HOUR and others) is used up: raise it, or wait for the hour to end"
        }
        1820 | 1862 => "the account's password expired: ALTER USER … IDENTIFIED BY",
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
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::link::replayed::{endpoint, login};

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

    fn recorded() -> Vec<Vec<u8>> {
        vec![
            include_bytes!("../../tests/recorded/mysql-native.bin").to_vec(),
            include_bytes!("../../tests/recorded/mysql-ed25519.bin").to_vec(),
            include_bytes!("../../tests/recorded/mysql-refused.bin").to_vec(),
        ]
    }

    fn answer(bytes: &[u8]) -> Result<String, LoginError> {
        let expected = Expected::default();
        let account = Account { user: "app", password: "hunter2", database: None, expected: &expected };
        login(bytes, |link| {
            let mut dialogue = Dialogue::over(link, &endpoint(), &account)?;
            let seen = dialogue.seen()?;
            Ok(format!("{seen} {:?} {:?}", dialogue.connection_type()?, dialogue.greeting()))
        })
    }

    #[test]
    fn what_was_recorded_is_understood() {
        let [native, ed25519, refused] = &recorded()[..] else { panic!() };
        assert!(answer(native).unwrap().contains("app@127.0.0.1"));
        assert!(answer(ed25519).unwrap().contains("TCP/IP"));
        assert_eq!(answer(refused).unwrap_err().code(), Some("1045"));
    }

    proptest! {
        #[test]
        fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
            let _ = answer(&bytes);
        }
    }
}
