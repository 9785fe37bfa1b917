//! Talking to MySQL outside a hot path: being let in, asking what it is and what it sees.

use std::fmt;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol};
use samehost_transport::Stream;

use super::login::{Channel, Denied, Greeting, Login, Step};
use super::packet::{self, Answer, SqlError, first_frame, frame, take_text};
use crate::error::{LoginError, Refused};
use crate::expected::Expected;
use crate::held::hold;
use crate::link::{Link, plain, prove};

/// COM_QUIT.
const QUIT: u8 = 0x01;
/// COM_QUERY.
pub const QUERY: u8 = 0x03;

/// The longest packet of a login: greetings, proofs and keys have a few hundred bytes. What begins with text, as other
/// protocols do, announces some megabytes, for which nobody need wait.
const LONGEST_IN_LOGIN: usize = 64 * 1024;

/// The most packets of a login: a greeting, a switch of plugin, a key and the outcome are what there is.
const MOST_PACKETS: u32 = 16;

/// Whom to be.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    /// The user.
    pub user: &'a str,
    /// The password; empty for none.
    pub password: &'a str,
    /// The database to begin in.
    pub database: Option<&'a str>,
    /// Who may be at the other end before the password, or a proof of it, goes there.
    pub expected: &'a Expected,
}

/// One connection, let in.
#[derive(Debug)]
pub struct Dialogue {
    link: Link,
    greeting: Greeting,
}

/// What a command was answered, taken out of the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; so many rows were affected.
    Done(u64),
    /// Rows of texts; none is NULL.
    Rows(Vec<Vec<Option<String>>>),
    /// No.
    Refused(SqlError),
}

/// The server's own view of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// USER(): whom we said we are, and from where.
    pub user: String,
    /// CURRENT_USER(): the account that this was taken for.
    pub account: String,
    /// HOST of the process list: `localhost` for a socket, an address with its port for TCP.
    pub host: String,
    /// Ssl_cipher; empty without TLS.
    pub cipher: String,
    /// CONNECTION_TYPE of performance_schema.threads, where that may be read: `Socket`, `TCP/IP`, `SSL/TLS`.
    pub connection_type: Option<String>,
}

impl Seen {
    /// `unix` or `tcp`, where the server tells. A name that stands without a port is a socket's.
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
    /// Connects, over TLS where the endpoint says so, and logs in.
    ///
    /// # Errors
    /// When nobody can be connected to, or the server does not let us in.
    pub fn begin(endpoint: &Endpoint, account: &Account<'_>, patience: Duration) -> Result<Self, LoginError> {
        let first = plain(endpoint);
        let link = Link::open(&first, patience)?;
        prove(link.stream(), first.transport())?;
        let mut dialogue = Self::over(link, endpoint, account)?;
        dialogue.link.let_in();
        Ok(dialogue)
    }

    /// Logs in over a connection that was just made.
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
        // One that turns everybody away says so in place of a greeting, and hangs up.
        let mut step =
            login.greeted(&greeting).map_err(|denied| not_let_in(endpoint, account, false, denied))?;
        // A proof of the password is as good as the password to one who has time, or who passes it on to the server.
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

    /// What the server said of itself.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The connection, for commands that are not known here.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Sends a command as it is and hands back the whole answer as bytes.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, LoginError> {
        let mut question = Vec::new();
        frame(0, command, &mut question);
        self.link.ask(&question, |input| match packet::answer(input) {
            Ok(None) => Ok(None),
            Ok(Some((_, length))) => Ok(Some((input[..length].to_vec(), length))),
            Err(reason) => Err(format!("its answer holds {reason}")),
        })
    }

    /// Asks in SQL, and hands back what was answered, a refusal too.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn ask(&mut self, sql: &str) -> Result<Reply, LoginError> {
        let bytes = self.raw(&[&[QUERY], sql.as_bytes()].concat())?;
        Ok(match packet::answer(&bytes) {
            Ok(Some((Answer::Done(okay), _))) => Reply::Done(okay.affected_rows),
            Ok(Some((Answer::Refused(error), _))) => Reply::Refused(error),
            Ok(Some((Answer::Rows(rows), _))) => Reply::Rows(rows.into_iter().map(texts).collect()),
            // `raw` has seen it whole.
            Ok(None) | Err(_) => Reply::Rows(Vec::new()),
        })
    }

    /// The first row of an answer; none where the server refuses or has no row.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn row(&mut self, sql: &str) -> Result<Option<Vec<Option<String>>>, LoginError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => rows.into_iter().next(),
            _ => None,
        })
    }

    /// The server's own view of this connection: whom it takes us for, from where, and over which cipher.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn seen(&mut self) -> Result<Seen, LoginError> {
        let first = |row: Option<Vec<Option<String>>>, at: usize| {
            row.and_then(|row| row.get(at).cloned().flatten()).unwrap_or_default()
        };
        let row = self.row("SELECT USER(), CURRENT_USER()")?;
        let (user, account) = (first(row.clone(), 0), first(row, 1));
        let host =
            first(self.row("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")?, 0);
        let cipher = first(self.row("SHOW SESSION STATUS LIKE 'Ssl_cipher'")?, 1);
        Ok(Seen { user, account, host, cipher, connection_type: None })
    }

    /// CONNECTION_TYPE of this connection, where performance_schema is on and may be read.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn connection_type(&mut self) -> Result<Option<String>, LoginError> {
        let sql =
            "SELECT CONNECTION_TYPE FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID()";
        Ok(self.row(sql)?.and_then(|row| row.into_iter().next().flatten()))
    }

    /// A variable of the server's.
    ///
    /// # Errors
    /// When the connection broke, or no answer came.
    pub fn variable(&mut self, name: &str) -> Result<Option<String>, LoginError> {
        let row = self.row(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?;
        Ok(row.and_then(|row| row.into_iter().nth(1).flatten()))
    }

    /// Says goodbye; the server then closes without counting an aborted client.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn quit(mut self) -> Result<(), LoginError> {
        let mut question = Vec::new();
        frame(0, &[QUIT], &mut question);
        self.link.tell(&question)
    }

    /// The connection, for one who has limits of his own.
    ///
    /// # Errors
    /// When the limit on waiting cannot be lifted.
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

fn not_let_in(endpoint: &Endpoint, account: &Account<'_>, has_tls: bool, denied: Denied) -> LoginError {
    let refused = |code: Option<u16>, answer: String| {
        let may_need_tls =
            has_tls && matches!(endpoint, Endpoint::Tcp { .. }) && matches!(code, Some(1045 | 1835 | 3159));
        let mut try_next = code.map(advice).unwrap_or_default().to_owned();
        // The same answer, whether the password is wrong or the account takes TLS only.
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
        // 1053: it is going down, which is no refusal.
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

/// What to try next after a refusal of this number, whoever asked; empty where there is nothing to say.
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
mod tests {
    use super::*;

    #[test]
    fn the_transport_is_the_type_of_connection_or_else_the_host() {
        let seen = |host: &str, connection_type: Option<&str>| Seen {
            host: host.into(),
            connection_type: connection_type.map(str::to_owned),
            ..Seen::default()
        };
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
