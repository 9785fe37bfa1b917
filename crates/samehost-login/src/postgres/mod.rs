//! PostgreSQL: login, and queries about the connection.

mod login;
pub mod messages;

use std::io;
use std::time::Duration;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message};
use samehost_model::Endpoint;

use crate::address::ServerAddress;
use crate::error::LoginError;
use crate::expected::Expected;
use crate::link::{Encrypted, Link, plain};
use login::{MOST_MESSAGES, converse, next, refused, secure};
use messages::{Refusal, query};

pub use crate::own_files::{FoundPassword, Login, OwnFiles, PasswordPlace, UnknownService, with_service};
pub(crate) use login::Account;
pub use login::{PASSWORD, advice, unsaid};

#[derive(Debug)]
pub struct LoggedIn {
    pub link: Link,
    /// The parameter `server_version`; empty if the server did not report it.
    pub version: String,
    /// Pid of the server's process for this connection (BackendKeyData); 0 if the server did not report it.
    pub backend: i32,
}

const MOST_ROWS: usize = 100_000;

/// Columns as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

impl LoggedIn {
    /// Connects, checks the transport with the kernel, and logs in; with `read_only` the server is asked to refuse all
    /// writes. `patience` limits the time to connect, then that of the login, and then that of each reply.
    ///
    /// # Errors
    /// When connecting fails, the peer is not an expected one, or the server refuses.
    pub fn begin(
        address: &ServerAddress,
        read_only: bool,
        expected: &Expected,
        patience: Duration,
    ) -> Result<Self, LoginError> {
        let link = Link::proven(&plain(&address.endpoint), patience)?;
        let user = address.credentials.user();
        let account = Account::of(&user, &address.credentials, expected);
        let account = Account { sslmode: address.sslmode, read_only, ..account };
        let mut logged_in = Self::over(link, &address.endpoint, &account)?;
        logged_in.link.let_in();
        Ok(logged_in)
    }

    pub(crate) fn over(link: Link, endpoint: &Endpoint, account: &Account<'_>) -> Result<Self, LoginError> {
        let link = secure(link, endpoint, account.sslmode)?;
        converse(link, account)
    }

    /// Runs a statement and returns its rows; the inner error is the server's first refusal. Rows that came before it are
    /// dropped.
    ///
    /// # Errors
    /// When the connection broke, or the server ended it.
    pub fn ask(&mut self, sql: &str) -> Result<Result<Vec<Row>, Refusal>, LoginError> {
        let mut question = query(sql).map_err(unsaid)?;
        let (mut rows, mut refusal) = (Vec::new(), None);
        let most = if self.link.is_in_login() { MOST_MESSAGES } else { MOST_ROWS };
        for _ in 0..most {
            match next(&mut self.link, &question)? {
                Message::DataRow(body) => {
                    let row = row(&body);
                    rows.push(
                        row.map_err(|error| LoginError::lost(self.link.endpoint(), error.to_string()))?,
                    );
                }
                Message::ErrorResponse(body) => {
                    let new = Refusal::read(body.fields());
                    if new.is_final() {
                        return Ok(Err(new));
                    }
                    refusal.get_or_insert(new);
                }
                Message::ReadyForQuery(_) => {
                    return Ok(match refusal {
                        None => Ok(rows),
                        Some(refusal) => Err(refusal),
                    });
                }
                _ => {}
            }
            question.clear();
        }
        let reason = format!("more than {most} messages in answer to one question");
        Err(LoginError::strange(self.link.endpoint(), reason))
    }

    /// Runs a statement; a refusal is an error with advice, whose text has `what` after "refused".
    pub fn must(&mut self, what: &str, sql: &str) -> Result<Vec<Row>, LoginError> {
        self.ask(sql)?.map_err(|refusal| self.refused(what, &refusal))
    }

    /// As [`LoggedIn::must`], with the first value alone; empty if there is none.
    pub fn value(&mut self, what: &str, sql: &str) -> Result<String, LoginError> {
        let rows = self.must(what, sql)?;
        Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
    }

    #[must_use]
    pub fn refused(&self, what: &str, refusal: &Refusal) -> LoginError {
        refused(&self.link, what.to_owned(), refusal)
    }

    /// The server's view of this connection.
    ///
    /// # Errors
    /// When the connection broke, or the server does not report it.
    pub fn seen(&mut self) -> Result<Seen, LoginError> {
        let sql = "SELECT current_user, host(inet_server_addr()), inet_server_port(), host(a.client_addr), \
                   a.client_port, s.version, s.cipher FROM pg_stat_activity a \
                   LEFT JOIN pg_stat_ssl s ON s.pid = a.pid AND s.ssl WHERE a.pid = pg_backend_pid()";
        let rows = self.must("to tell how it sees this connection", sql)?;
        Ok(Seen(rows.into_iter().next().unwrap_or_default()))
    }

    /// The connections with TLS that the account may see: all of its own. A server that does not tell has none to name.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn encrypted(&mut self) -> Result<Vec<Encrypted>, LoginError> {
        let sql = "SELECT a.client_port, s.version, s.cipher FROM pg_stat_activity a JOIN pg_stat_ssl s ON s.pid = a.pid \
                   WHERE s.ssl AND a.client_port > 0 AND a.pid <> pg_backend_pid()";
        let mut found = Vec::new();
        for row in self.ask(sql)?.unwrap_or_default() {
            let [Some(port), version, cipher] = row.as_slice() else { continue };
            let Ok(port) = port.parse() else { continue };
            let words: Vec<&str> = [version, cipher].into_iter().flatten().map(String::as_str).collect();
            found.push(Encrypted { port, tls: words.join(" ") });
        }
        Ok(found)
    }

    /// Sends Terminate, so that the server does not log a lost connection.
    pub fn end(mut self) -> Result<(), LoginError> {
        self.link.tell(b"X\0\0\0\x04")
    }
}

/// The server's view of a connection, as the row that it returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(Row);

impl Seen {
    fn column(&self, index: usize) -> Option<&str> {
        self.0.get(index).and_then(Option::as_deref)
    }

    /// `unix` or `tcp`: a client without an address uses a socket. `None` if the server returned nothing.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        self.column(0)?;
        Some(if self.column(3).is_some() { "tcp" } else { "unix" })
    }

    #[must_use]
    pub fn tls(&self) -> Option<String> {
        Some(format!("{} {}", self.column(5)?, self.column(6)?))
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "user {}, ", self.column(0).unwrap_or("?"))?;
        match (self.column(1), self.column(3)) {
            (Some(server), Some(client)) => {
                let server_port = self.column(2).unwrap_or_default();
                let client_port = self.column(4).unwrap_or_default();
                write!(f, "{server}:{server_port} from {client}:{client_port}, ")?;
            }
            _ => f.write_str("Unix socket, ")?,
        }
        match self.tls() {
            Some(tls) => f.write_str(&tls),
            None => f.write_str("no TLS"),
        }
    }
}

fn row(body: &DataRowBody) -> io::Result<Row> {
    let mut row = Row::new();
    let mut ranges = body.ranges();
    while let Some(range) = ranges.next()? {
        let Some(range) = range else {
            row.push(None);
            continue;
        };
        let bytes = body.buffer().get(range).unwrap_or_default();
        row.push(Some(String::from_utf8_lossy(bytes).into_owned()));
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::address::SslMode;
    use crate::link::replayed::{endpoint, login};

    #[test]
    fn the_view_tells_the_transport_and_the_cipher() {
        fn row(words: [&str; 7]) -> Seen {
            Seen(words.map(|word| Some(word.to_owned()).filter(|word| !word.is_empty())).to_vec())
        }
        let tcp = row(["bob", "127.0.0.1", "5432", "127.0.0.1", "4000", "TLSv1.3", "AES"]);
        assert_eq!(tcp.to_string(), "user bob, 127.0.0.1:5432 from 127.0.0.1:4000, TLSv1.3 AES");
        let unix = row(["bob", "", "", "", "-1", "", ""]);
        assert_eq!(unix.to_string(), "user bob, Unix socket, no TLS");
        assert_eq!((tcp.transport(), unix.transport()), (Some("tcp"), Some("unix")));
        assert_eq!((unix.tls(), Seen::default().transport()), (None, None));
    }

    /// AuthenticationOk.
    const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0";

    fn recorded() -> Vec<Vec<u8>> {
        let scram = include_bytes!("../../tests/recorded/postgres-scram.bin").to_vec();
        // The recording from AuthenticationOk on, since a proof of the password cannot be replayed; before it,
        // other requests for authentication.
        let at = scram.windows(LET_IN.len()).position(|window| window == LET_IN).unwrap();
        let asked = |question: &[u8]| [question, &scram[at..]].concat();
        vec![
            asked(b""),
            asked(b"R\0\0\0\x08\0\0\0\x03"),
            asked(b"R\0\0\0\x0c\0\0\0\x05salt"),
            scram.clone(),
            include_bytes!("../../tests/recorded/postgres-refused.bin").to_vec(),
        ]
    }

    fn answer(bytes: &[u8]) -> Result<String, LoginError> {
        let expected = Expected::default();
        let account = Account {
            user: "app",
            password: Some("hunter2"),
            database: "postgres",
            sslmode: SslMode::Disable,
            read_only: false,
            expected: &expected,
        };
        login(bytes, |link| {
            let mut logged_in = LoggedIn::over(link, &endpoint(), &account)?;
            let seen = logged_in.seen()?;
            Ok(format!("{seen} {}", logged_in.version))
        })
    }

    #[test]
    fn what_was_recorded_is_understood() {
        for understood in &recorded()[..3] {
            assert!(answer(understood).unwrap().contains("user app"));
        }
        // The server proves that it knows the password, which a recording cannot do.
        assert!(answer(&recorded()[3]).is_err());
    }

    proptest! {
        #[test]
        fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
            let _ = answer(&bytes);
        }
    }
}
