//! Redis and servers that behave like it: login, and queries about the connection.

pub mod resp;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use crate::address::ServerAddress;
use crate::credentials::Credentials;
use crate::error::{LoginError, Refused};
use crate::expected::Expected;
use crate::link::Link;
use crate::passwords::hold;
use resp::Reply;

// Talks to Redis outside a hot path: log in, ask for identity and evidence.

/// Account to log in as.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    /// `None` for the default user.
    pub user: Option<&'a str>,
    /// `None` for no login.
    pub password: Option<&'a str>,
    /// Database number.
    pub database: u32,
    /// Peers that may receive the password, which is sent in clear text.
    pub expected: &'a Expected,
}

impl<'a> Account<'a> {
    /// The account of these credentials.
    ///
    /// # Errors
    /// When the database is not a number.
    pub(crate) fn of(
        endpoint: &Endpoint,
        credentials: &'a Credentials,
        expected: &'a Expected,
    ) -> Result<Self, LoginError> {
        let named = credentials.database.as_deref().unwrap_or("0");
        let database = named.parse().map_err(|_| {
            LoginError::from(Box::new(Refused {
                protocol: Protocol::Redis,
                endpoint: endpoint.to_string(),
                what: format!("database {}", named.escape_debug()),
                code: None,
                answer: "it is not a number".into(),
                try_next: "databases of Redis are numbers from 0".into(),
                may_need_tls: false,
                by_password: false,
            }))
        })?;
        Ok(Account {
            user: credentials.user.as_deref(),
            password: credentials.password(),
            database,
            expected,
        })
    }
}

/// A connection that is logged in, on its database.
#[derive(Debug)]
pub struct Dialogue {
    link: Link,
}

/// Identity of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Kind of service; `None` if it may not be asked.
    pub kind: Option<Kind>,
    pub version: String,
    /// Process of the server.
    pub pid: Option<u32>,
    /// Random id, new at each start of the server.
    pub run_id: String,
}

/// The server's view of a connection: a line of CLIENT INFO or CLIENT LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    asked: &'static str,
    line: String,
}

impl Seen {
    fn word(&self, name: &str) -> Option<&str> {
        self.line.split_ascii_whitespace().find(|word| word.starts_with(name))
    }

    /// Both addresses, as the server writes them. On a Unix socket both are its path and port 0.
    #[must_use]
    pub fn addresses(&self) -> Option<String> {
        Some(format!("{} {}", self.word("addr=")?, self.word("laddr=")?))
    }

    /// `unix` or `tcp`: flag U, or an address with port 0, means a Unix socket.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        let address = self.word("addr=")?;
        let is_unix =
            self.word("flags=").is_some_and(|flags| flags[6..].contains('U')) || address.ends_with(":0");
        Some(if is_unix { "unix" } else { "tcp" })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ["addr=", "laddr=", "user=", "flags="].into_iter().filter_map(|name| self.word(name));
        write!(f, "{}: {}", self.asked, words.collect::<Vec<_>>().join(" "))
    }
}

impl Dialogue {
    /// Connects, logs in and selects the database.
    pub fn begin(
        address: &ServerAddress,
        expected: &Expected,
        patience: Duration,
    ) -> Result<Self, LoginError> {
        let endpoint = &address.endpoint;
        let account = Account::of(endpoint, &address.credentials, expected)?;
        let link = Link::proven(endpoint, patience)?;
        let mut dialogue = Self::over(link, &account)?;
        dialogue.link.let_in();
        Ok(dialogue)
    }

    /// Logs in over a new connection.
    pub(crate) fn over(link: Link, account: &Account<'_>) -> Result<Self, LoginError> {
        let mut dialogue = Dialogue { link };
        if let Some(password) = account.password {
            match dialogue.link.tie(account.expected) {
                Err(lost @ LoginError::Lost { .. }) => return Err(dialogue.last_words().unwrap_or(lost)),
                tied => tied?,
            }
            hold(password);
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(account.user.map(str::as_bytes));
            words.push(password.as_bytes());
            dialogue.must("the login", &words)?;
        }
        if account.database > 0 {
            let number = account.database.to_string();
            dialogue.must(&format!("database {number}"), &[b"SELECT", number.as_bytes()])?;
        }
        Ok(dialogue)
    }

    /// The error that the server sent before it hung up: too many clients, protected mode.
    fn last_words(&mut self) -> Option<LoginError> {
        let answer = self.link.ask(&[], |input| resp::parse(input).map_err(|error| error.to_string()));
        match answer.ok()? {
            Reply::Error(answer) => Some(self.refused("a connection", answer)),
            _ => None,
        }
    }

    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    #[must_use]
    pub fn into_link(self) -> Link {
        self.link
    }

    /// Sends a command and returns the reply, also if it is a refusal.
    ///
    /// # Errors
    /// When the connection broke; and after the login, when the server has sent more than was asked for: all further answers
    /// would be those of other questions, and a value that was never set would look as if it had been.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, LoginError> {
        if !self.link.is_in_login() && self.link.has_unasked() {
            return Err(LoginError::lost(self.link.endpoint(), "it answers before it is asked"));
        }
        let mut question = Vec::new();
        resp::command(words, &mut question);
        self.link.ask(&question, |input| resp::parse(input).map_err(|error| error.to_string()))
    }

    /// Sends a command that must not be refused.
    pub fn must(&mut self, what: &str, words: &[&[u8]]) -> Result<Reply, LoginError> {
        match self.ask(words)? {
            Reply::Error(answer) => Err(self.refused(what, answer)),
            reply => Ok(reply),
        }
    }

    fn refused(&self, what: &str, answer: String) -> LoginError {
        LoginError::from(Box::new(Refused {
            protocol: Protocol::Redis,
            endpoint: self.link.endpoint().to_string(),
            what: what.to_owned(),
            code: answer.split(' ').next().map(str::to_owned),
            try_next: advice(&answer).to_owned(),
            by_password: answer.starts_with("WRONGPASS") || answer.starts_with("ERR invalid password"),
            answer,
            may_need_tls: false,
        }))
    }

    /// A setting of the server; `None` if it may not be asked.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>, LoginError> {
        Ok(match self.ask(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Reply::Array(Some(items)) => items.get(1).and_then(Reply::text),
            _ => None,
        })
    }

    /// Identity of the server, as far as it may be asked.
    ///
    /// # Errors
    /// When a login is required, or the connection broke.
    pub fn identity(&mut self) -> Result<Identity, LoginError> {
        match self.ask(&[b"INFO", b"server"])? {
            Reply::Error(answer) if answer.starts_with("NOAUTH") => {
                self.must("a question without a login", &[b"PING"])?;
                Ok(Identity::default())
            }
            reply => Ok(reply.text().map(|text| identity(&text)).unwrap_or_default()),
        }
    }

    /// The server's view of this connection: CLIENT INFO, or before Redis 6.2 our line of CLIENT LIST, found
    /// by a name that we set. `None` if the user may use neither.
    ///
    /// # Errors
    /// When a login is required, or the connection broke.
    pub fn seen(&mut self) -> Result<Option<Seen>, LoginError> {
        match self.ask(&[b"CLIENT", b"INFO"])? {
            Reply::Error(answer) if answer.starts_with("NOAUTH") => {
                return Err(self.refused("a question without a login", answer));
            }
            Reply::Error(_) => {}
            reply => return Ok(reply.text().map(|line| Seen { asked: "CLIENT INFO", line })),
        }
        let name = format!("samehost-{}", std::process::id());
        self.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()])?;
        let list = self.ask(&[b"CLIENT", b"LIST"])?.text().unwrap_or_default();
        let ours = format!("name={name}");
        let line = list.lines().find(|line| line.split_ascii_whitespace().any(|word| word == ours));
        Ok(line.map(|line| Seen { asked: "CLIENT LIST", line: line.to_owned() }))
    }
}

/// Advice after a refusal with this message, for any caller; empty if there is none.
#[must_use]
pub fn advice(answer: &str) -> &'static str {
    match answer.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => {
            "give user and password in the URL (redis://USER:PASSWORD@…), or the password in the environment variable REDISCLI_AUTH"
        }
        // Redis before 6, or a server without a password.
        "ERR" if answer.contains("AUTH") || answer.contains("password") => {
            "see whether the server has a password at all (requirepass), and whether REDISCLI_AUTH holds another server's"
        }
        _ => "",
    }
}

/// Parses the fields of INFO, lines `name:value`.
fn identity(text: &str) -> Identity {
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let kind = Kind::that_says(Protocol::Redis, text.as_bytes()).unwrap_or(Kind::Redis);
    let version = kind.descriptor().says.as_deref().map(|says| field(says.trim_end_matches(':')));
    let version = version.unwrap_or_default();
    Identity { kind: Some(kind), version, pid: field("process_id").parse().ok(), run_id: field("run_id") }
}

#[cfg(test)]
mod mutated;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_tells_what_it_is() {
        let redis = "# Server\r\nredis_version:7.0.15\r\nprocess_id:41\r\nrun_id:abc\r\n";
        let expected = Identity {
            kind: Some(Kind::Redis),
            version: "7.0.15".into(),
            pid: Some(41),
            run_id: "abc".into(),
        };
        assert_eq!(identity(redis), expected);
        let valkey = identity("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n");
        assert_eq!(
            (valkey.kind.unwrap().name(), valkey.version.as_str(), valkey.pid),
            ("valkey", "8.0.1", None)
        );
    }

    #[test]
    fn client_info_tells_the_transport() {
        fn seen(line: &str) -> Seen {
            Seen { asked: "CLIENT INFO", line: line.to_owned() }
        }
        let unix = seen("id=3 addr=/run/r.sock:0 laddr=/run/r.sock:0 fd=8 name= age=0 flags=U db=0\n");
        assert_eq!(unix.addresses().unwrap(), "addr=/run/r.sock:0 laddr=/run/r.sock:0");
        assert_eq!(unix.to_string(), "CLIENT INFO: addr=/run/r.sock:0 laddr=/run/r.sock:0 flags=U");
        assert_eq!(unix.transport(), Some("unix"));
        // Before Redis 6.2: no laddr.
        let tcp = seen("id=3 addr=127.0.0.1:4711 fd=8 name=x age=0 flags=N db=0");
        assert_eq!((tcp.transport(), tcp.addresses()), (Some("tcp"), None));
        assert_eq!(seen("id=3 name=").transport(), None);
    }
}
