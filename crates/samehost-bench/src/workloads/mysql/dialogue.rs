//! Talking to MySQL outside the hot path: being let in, asking what it is, setting up and clearing away.

use samehost_model::Endpoint;
use samehost_transport::Stream;

use super::address::Address;
use super::login::{Channel, Denied, Greeting, Login, Step};
use super::packet::{self, Answer, SqlError, first_frame, frame, take_text};
use crate::BenchError;
use crate::workloads::link::Link;

/// COM_QUIT.
const QUIT: u8 = 0x01;
/// COM_QUERY.
pub(super) const QUERY: u8 = 0x03;
/// COM_STMT_PREPARE.
const PREPARE: u8 = 0x16;

/// One connection, let in.
pub(super) struct Dialogue {
    link: Link,
    greeting: Greeting,
}

/// What a command was answered, taken out of the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Done; so many rows were affected.
    Done(u64),
    /// Rows of texts; none is NULL.
    Rows(Vec<Vec<Option<String>>>),
    /// No.
    Refused(SqlError),
}

impl Dialogue {
    /// Connects, over TLS where the endpoint says so, and logs in.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        let plain = match &address.endpoint {
            Endpoint::TcpTls { host, port } => Endpoint::Tcp { host: host.clone(), port: *port },
            other => other.clone(),
        };
        let channel = match &address.endpoint {
            Endpoint::TcpTls { .. } => Channel::Tls,
            Endpoint::Tcp { .. } => Channel::Plain,
            _ => Channel::Socket,
        };
        let mut link = Link::connect(&plain)?;
        let mut login = Login::new(&address.user, &address.password, address.database.as_deref(), channel);
        let (_, greeting) = packet(&mut link, &[])?;
        let mut step = login.greeted(&greeting).map_err(|denied| not_let_in(address, false, denied))?;
        let has_tls = login.has_tls();
        let denied = |denied| not_let_in(address, has_tls, denied);
        loop {
            let question = match step {
                Step::Done => return Ok(Dialogue { link, greeting: login.greeting }),
                Step::Wait => Vec::new(),
                Step::Send(bytes) => bytes,
                Step::StartTls(bytes) => {
                    link.tell(&bytes)?;
                    link = link.start_tls(&address.endpoint)?;
                    login.secured().map_err(denied)?
                }
            };
            let (sequence, payload) = packet(&mut link, &question)?;
            step = login.answered(sequence, &payload).map_err(denied)?;
        }
    }

    /// What the server said of itself.
    pub(super) fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Sends a command as it is and hands back the whole answer as bytes.
    pub(super) fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, BenchError> {
        let mut question = Vec::new();
        frame(0, command, &mut question);
        self.link.ask(&question, |input| match packet::answer(input) {
            Ok(None) => Ok(None),
            Ok(Some((_, length))) => Ok(Some((input[..length].to_vec(), length))),
            Err(reason) => Err(format!("its answer holds {reason}")),
        })
    }

    /// Asks in SQL, and hands back what was answered, a refusal too.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Reply, BenchError> {
        let bytes = self.raw(&[&[QUERY], sql.as_bytes()].concat())?;
        Ok(match packet::answer(&bytes) {
            Ok(Some((Answer::Done(okay), _))) => Reply::Done(okay.affected_rows),
            Ok(Some((Answer::Refused(error), _))) => Reply::Refused(error),
            Ok(Some((Answer::Rows(rows), _))) => Reply::Rows(rows.into_iter().map(texts).collect()),
            // `raw` has seen it whole.
            Ok(None) | Err(_) => Reply::Rows(Vec::new()),
        })
    }

    /// Asks for something without which nothing can be measured.
    pub(super) fn must(&mut self, what: &str, sql: &str) -> Result<Reply, BenchError> {
        match self.ask(sql)? {
            Reply::Refused(error) => Err(BenchError::Refused {
                endpoint: self.link.endpoint().to_string(),
                what: what.to_owned(),
                try_next: advice(&error).to_owned(),
                answer: error.to_string(),
            }),
            reply => Ok(reply),
        }
    }

    /// The first row of an answer; none where the server refuses or has no row.
    pub(super) fn row(&mut self, sql: &str) -> Result<Option<Vec<Option<String>>>, BenchError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => rows.into_iter().next(),
            _ => None,
        })
    }

    /// Prepares a statement: its id, number of parameters and of columns.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<(u32, u16, u16), BenchError> {
        let mut question = Vec::new();
        frame(0, &[&[PREPARE], sql.as_bytes()].concat(), &mut question);
        let answered = self.link.ask(&question, prepared)?;
        answered.map_err(|error| BenchError::Refused {
            endpoint: self.link.endpoint().to_string(),
            what: "a prepared statement".into(),
            try_next: advice(&error).to_owned(),
            answer: error.to_string(),
        })
    }

    /// The server's own view of this connection: whom it takes us for, from where, and over which cipher.
    pub(super) fn view(&mut self) -> Result<String, BenchError> {
        let first = |row: Option<Vec<Option<String>>>, at: usize| {
            row.and_then(|row| row.get(at).cloned().flatten()).unwrap_or_default()
        };
        let row = self.row("SELECT USER(), CURRENT_USER()")?;
        let (user, account) = (first(row.clone(), 0), first(row, 1));
        let host =
            first(self.row("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")?, 0);
        let cipher = first(self.row("SHOW SESSION STATUS LIKE 'Ssl_cipher'")?, 1);
        let cipher = if cipher.is_empty() { "no TLS".into() } else { format!("TLS {cipher}") };
        let host = if host.is_empty() { String::new() } else { format!(" from {host}") };
        Ok(format!("the server says {user}{host}, account {account}, {cipher}"))
    }

    /// A variable of the server's.
    pub(super) fn variable(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        let row = self.row(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?;
        Ok(row.and_then(|row| row.into_iter().nth(1).flatten()))
    }

    /// Says goodbye; the server then closes without counting an aborted client.
    pub(super) fn quit(mut self) -> Result<(), BenchError> {
        let mut question = Vec::new();
        frame(0, &[QUIT], &mut question);
        self.link.tell(&question)
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        self.link.into_stream()
    }
}

/// Sends bytes, if any, and reads one packet: its sequence number and payload.
fn packet(link: &mut Link, question: &[u8]) -> Result<(u8, Vec<u8>), BenchError> {
    link.ask(question, |input| {
        let frame = first_frame(input).map_err(|reason| format!("its answer holds {reason}"))?;
        Ok(frame.map(|frame| ((frame.sequence, frame.payload.to_vec()), frame.length)))
    })
}

type Prepared = Result<(u32, u16, u16), SqlError>;

/// The answer to COM_STMT_PREPARE: OK, id (4), columns (2), parameters (2), then the definitions of parameters and of
/// columns, each list with its end where it is not empty.
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

fn texts(mut row: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    while !row.is_empty() {
        let Some(value) = take_text(&mut row) else { break };
        values.push(value.map(|text| String::from_utf8_lossy(text).into_owned()));
    }
    values
}

fn not_let_in(address: &Address, has_tls: bool, denied: Denied) -> BenchError {
    let endpoint = address.endpoint.to_string();
    let user = address.user.escape_debug();
    match denied {
        // 1053: it is going down, which is no refusal.
        Denied::Server(error) if error.code == 1053 => BenchError::lost(&address.endpoint, error.to_string()),
        Denied::Server(error) => {
            let mut try_next = advice(&error).to_owned();
            // The same answer, whether the password is wrong or the account takes TLS only.
            if error.code == 1045 && has_tls && matches!(address.endpoint, Endpoint::Tcp { .. }) {
                try_next.push_str("; or the account requires TLS: --transports tcp+tls");
            }
            BenchError::Refused {
                endpoint,
                what: format!("the login of `{user}`"),
                try_next,
                answer: error.to_string(),
            }
        }
        Denied::Us(reason) => BenchError::Refused {
            endpoint,
            what: format!("the login of `{user}`"),
            answer: reason,
            try_next: String::new(),
        },
        Denied::Malformed(reason) => {
            BenchError::lost(&address.endpoint, format!("{reason}; is that a MySQL or MariaDB?"))
        }
    }
}

fn advice(error: &SqlError) -> &'static str {
    match error.code {
        1040 | 1203 | 1226 => "use fewer --connections, or raise max_connections",
        1044 => {
            "grant the user a database of the tool's own (CREATE on samehost.*), name one that it may use in the URL, or try --read-only yes"
        }
        1045 | 1698 => {
            "give user and password in the URL, in MYSQL_PWD, in [client] of ~/.my.cnf or with --ask-password; an account `u@127.0.0.1` and one `u@localhost` (the socket's) are two accounts with two passwords"
        }
        1130 => "no account allows this host: over TCP the server sees 127.0.0.1, over the socket localhost",
        1129 => "the server blocks this host after too many failed connects: FLUSH HOSTS",
        3159 | 1835 => "the server takes TLS or the Unix socket only: --transports tcp+tls,unix",
        1290 | 1792 | 1836 => "the server is read-only: try --read-only yes",
        1142 | 1227 => "the user may not do that: try --read-only yes, or grant it",
        1021 | 1114 => "the disk is full",
        _ => "",
    }
}
