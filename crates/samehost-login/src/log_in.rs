//! A login with any protocol: connect, authenticate, and ask what the server sees of this connection.

use std::time::Duration;

use rustix::fs::fstat;
use samehost_model::scan::{Login, LoginOutcome};
use samehost_model::{ConnectionSettings, Endpoint, Protocol};
use samehost_system::diag::both_ends;
use samehost_transport::{ConnectError, Observed};

use crate::credentials::Credentials;
use crate::error::LoginError;
use crate::expected::Expected;
use crate::link::{Encrypted, Link, plain};
use crate::{credentials, memcached, mysql, postgres, redis, rights};

/// Evidence about a connection after a successful login, from the server and the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The server's version; empty if it does not report it, or was not asked.
    pub version: String,
    /// The server's view of this connection, in words; never a password. Empty if it was not asked.
    pub says: String,
    /// `unix` or `tcp`, as the server sees it; `None` if it does not report it.
    pub transport: Option<&'static str>,
    /// Our end according to the kernel: family, type, protocol and addresses.
    pub family: String,
    /// Of our end.
    pub inode: u64,
    /// TLS version and cipher, if TLS is in use.
    pub tls: Option<String>,
    /// Other connections of the account to this server that have TLS, where the server tells.
    pub encrypted: Vec<Encrypted>,
    /// Privileges of the account, line by line; empty if the server does not report them.
    pub rights: Vec<String>,
    /// Whether a server accepted a login or answered a question; only this module knows.
    answered: bool,
}

/// What a login proves: nobody else makes a [`Login`].
#[must_use]
pub fn proved(result: &Result<View, LoginError>) -> Login {
    match result {
        Ok(view) => {
            let outcome = if view.answered { LoginOutcome::LoggedIn } else { LoginOutcome::Connected };
            Login::as_answered(outcome, view.says.clone())
        }
        Err(error) => Login::as_answered(error.outcome(), error.to_string()),
    }
}

/// No login, and why none was tried.
#[must_use]
pub fn not_tried(why: String) -> Login {
    Login::as_answered(LoginOutcome::NotTried, why)
}

/// A login that reached the server from here, and that a user of the application could not make, as the kernel says.
#[must_use]
pub fn barred(login: &Login, user: &str) -> Login {
    let says =
        format!("{user} may not connect to that socket (Permission denied); from here: {}", login.outcome());
    Login::as_answered(LoginOutcome::Barred, says)
}

/// A connection before the first message.
#[derive(Debug)]
pub struct Connection {
    protocol: Protocol,
    endpoint: Endpoint,
    link: Link,
    observed: Observed,
    inode: u64,
}

/// Connects to an endpoint, verifies the peer, logs in, and asks the server what it sees. `patience` limits
/// the time to connect, and then the time of the whole login.
///
/// A server that accepts logins over TLS only is tried with TLS, as its own client would do. A refused
/// password is not sent again by this program: servers count refusals and lock accounts.
///
/// # Errors
/// [`LoginError`]; a refusal keeps the server's message and its code.
pub fn log_in(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    expected: &Expected,
    patience: Duration,
) -> Result<View, LoginError> {
    with_tls_where_needed(protocol, endpoint, credentials, |endpoint| {
        Connection::to(protocol, endpoint, patience)?.log_in(credentials, expected)
    })
}

/// Tries a login over TCP, and over TLS if the server requires it. An endpoint that is not plain TCP
/// is tried once.
///
/// # Errors
/// As the attempts have them; if TLS fails too, the first refusal.
pub fn with_tls_where_needed(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    mut attempt: impl FnMut(&Endpoint) -> Result<View, LoginError>,
) -> Result<View, LoginError> {
    let Endpoint::Tcp { host, port } = endpoint else { return attempt(endpoint) };
    let over_tls = Endpoint::TcpTls { host: host.clone(), port: *port };
    if protocol == Protocol::Mysql && credentials.password.is_some() {
        return with_tls_first(endpoint, &over_tls, attempt);
    }
    let refused = match attempt(endpoint) {
        Err(LoginError::Refused(refused)) if refused.may_need_tls => refused,
        other => return other,
    };
    // If TLS fails too, the first refusal is the answer.
    attempt(&over_tls).map_err(|_| refused.into())
}

/// MySQL returns the same refusal for a wrong password and for missing TLS. Over TLS it can only mean the
/// password. So TLS is tried first if the server supports it, and a wrong password is sent only once: servers count
/// refusals.
fn with_tls_first(
    endpoint: &Endpoint,
    over_tls: &Endpoint,
    mut attempt: impl FnMut(&Endpoint) -> Result<View, LoginError>,
) -> Result<View, LoginError> {
    match attempt(over_tls) {
        Ok(view) => match attempt(endpoint) {
            Err(LoginError::Refused(refused)) if refused.may_need_tls => Ok(view),
            other => other,
        },
        Err(LoginError::Refused(refused)) if refused.by_password => Err(refused.into()),
        // The server has no TLS, or none that we support.
        Err(LoginError::Refused(_) | LoginError::Connect(ConnectError::Tls { .. })) => attempt(endpoint),
        Err(other) => Err(other),
    }
}

impl Connection {
    /// Connects, and asks the kernel about the connection. MySQL and PostgreSQL are connected to without TLS, which they
    /// switch to in [`Connection::log_in`]. `patience` limits the time to connect, and then that of the login.
    ///
    /// # Errors
    /// When connecting fails, or the kernel does not describe the connection.
    pub fn to(protocol: Protocol, endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let turns_to_tls = matches!(protocol, Protocol::Mysql | Protocol::Postgres);
        let first = if turns_to_tls { plain(endpoint) } else { endpoint.clone() };
        Self::over(protocol, endpoint, Link::open(&first, patience)?)
    }

    pub(crate) fn over(protocol: Protocol, endpoint: &Endpoint, link: Link) -> Result<Self, LoginError> {
        let unseen = |error| LoginError::io("asking the kernel about a socket", error);
        let observed = link.stream().observed().map_err(unseen)?;
        let inode = fstat(link.stream()).map_err(|error| unseen(error.into()))?.st_ino;
        Ok(Connection { protocol, endpoint: endpoint.clone(), link, observed, inode })
    }

    #[must_use]
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Congestion control and buffers of both ends, from the kernel; `None` where it does not say.
    #[must_use]
    pub fn settings(&self) -> Option<ConnectionSettings> {
        both_ends(self.link.stream())
    }

    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Logs in and asks the server what it sees; then ends the connection. The password is sent to an
    /// expected peer only.
    ///
    /// # Errors
    /// When the server refuses the login, or the peer is not an expected one.
    pub fn log_in(self, credentials: &Credentials, expected: &Expected) -> Result<View, LoginError> {
        let (protocol, family, inode) = (self.protocol, self.observed.to_string(), self.inode);
        if credentials.password.is_some() {
            credentials::guard_memory();
        }
        credentials::refuse_again(protocol, &self.endpoint, credentials)?;
        let answered =
            matches!(protocol, Protocol::Mysql | Protocol::Postgres | Protocol::Redis | Protocol::Memcached);
        let result = match protocol {
            Protocol::Mysql => self.mysql(credentials, expected),
            Protocol::Postgres => self.postgres(credentials, expected),
            Protocol::Redis => self.redis(credentials, expected),
            Protocol::Memcached => memcached(self.link),
            _ => Ok(View { tls: self.link.cipher(), ..View::default() }),
        };
        credentials::note_outcome(protocol, credentials, result.as_ref().err());
        Ok(View { family, inode, answered, ..result? })
    }

    fn mysql(self, credentials: &Credentials, expected: &Expected) -> Result<View, LoginError> {
        let user = credentials.user();
        let account = mysql::Account::of(&user, credentials, expected);
        let mut dialogue = mysql::Dialogue::over(self.link, &self.endpoint, &account)?;
        let mut seen = dialogue.seen()?;
        seen.connection_type = dialogue.connection_type()?;
        let rights = rights::of_mysql(&mut dialogue)?;
        let encrypted = dialogue.encrypted()?;
        let mut says = format!("USER() {seen}");
        if let Some(kind) = &seen.connection_type {
            says.push_str(&format!(", CONNECTION_TYPE {kind}"));
        }
        let view = View {
            version: dialogue.greeting().version.trim_start_matches("5.5.5-").to_owned(),
            says,
            transport: seen.transport(),
            tls: dialogue.link().cipher(),
            encrypted,
            rights,
            ..View::default()
        };
        // The login succeeded, so an error when quitting does not matter.
        let _ = dialogue.quit();
        Ok(view)
    }

    fn postgres(self, credentials: &Credentials, expected: &Expected) -> Result<View, LoginError> {
        let user = credentials.user();
        // Poolers refuse settings that they do not know, so it is not asked to be read-only; nothing here writes.
        let account = postgres::Account::of(&user, credentials, expected);
        let mut logged_in = postgres::LoggedIn::over(self.link, &self.endpoint, &account)?;
        let (says, transport) = match logged_in.seen() {
            Ok(seen) => (format!("pg_stat_activity: {seen}"), seen.transport()),
            // The console of a pooler, or a server that only speaks the protocol.
            Err(LoginError::Refused(refused)) if !refused.answers_nothing() => (
                format!(
                    "user {user}; the server does not tell how it sees the connection: {}",
                    refused.answer
                ),
                None,
            ),
            Err(error) => return Err(error),
        };
        // A server that does not report the connection is not a PostgreSQL that reports privileges.
        let rights = if transport.is_some() { rights::of_postgres(&mut logged_in) } else { Vec::new() };
        let encrypted = if transport.is_some() { logged_in.encrypted()? } else { Vec::new() };
        let tls = logged_in.link.cipher();
        let version = logged_in.version.clone();
        let view = View { version, says, transport, tls, encrypted, rights, ..View::default() };
        let _ = logged_in.end();
        Ok(view)
    }

    fn redis(self, credentials: &Credentials, expected: &Expected) -> Result<View, LoginError> {
        let account = redis::Account::of(&self.endpoint, credentials, expected)?;
        let mut dialogue = redis::Dialogue::over(self.link, &account)?;
        let seen = dialogue.seen()?;
        let version = dialogue.identity()?.version;
        let rights = rights::of_redis(&mut dialogue)?;
        let tls = dialogue.link().cipher();
        let says = match &seen {
            Some(seen) => seen.to_string(),
            None => "the user may not ask for CLIENT INFO or CLIENT LIST".into(),
        };
        let transport = seen.and_then(|seen| seen.transport());
        Ok(View { version, says, transport, tls, rights, ..View::default() })
    }
}

fn memcached(mut link: Link) -> Result<View, LoginError> {
    let version = memcached::version(&mut link)?.map_err(|answer| {
        LoginError::strange(
            link.endpoint(),
            format!("it answers `version` with `{}`; is that a memcached?", answer.escape_debug()),
        )
    })?;
    let seen = memcached::seen(&mut link)?;
    Ok(View {
        version,
        says: seen.as_ref().map(ToString::to_string).unwrap_or_default(),
        transport: seen.and_then(|seen| seen.transport()),
        tls: link.cipher(),
        ..View::default()
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use samehost_model::Secret;

    use super::*;
    use crate::error::LoginErrorKind;

    const ASKED: [Protocol; 4] = [Protocol::Mysql, Protocol::Postgres, Protocol::Redis, Protocol::Memcached];

    fn kind(protocol: Protocol, endpoint: &Endpoint, patience: Duration) -> (LoginErrorKind, String) {
        let credentials = Credentials { password: Some(Secret::new("hunter2")), ..Credentials::default() };
        let error = log_in(protocol, endpoint, &credentials, &ours(), patience).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        (error.kind(), error.to_string())
    }

    /// This process, whose threads are the servers here.
    fn ours() -> Expected {
        let own = samehost_system::Identity::of(std::process::id()).unwrap();
        Expected::processes([(&own).into()])
    }

    fn listening() -> (TcpListener, Endpoint) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        (listener, endpoint)
    }

    #[test]
    fn one_that_says_nothing_is_not_waited_for() {
        let (_listener, endpoint) = listening();
        for protocol in ASKED {
            let (kind, said) = kind(protocol, &endpoint, Duration::from_millis(50));
            assert_eq!(kind, LoginErrorKind::Timeout, "{protocol}: {said}");
            assert!(said.contains(&endpoint.to_string()), "{said}");
        }
    }

    #[test]
    fn nobody_there_and_one_that_hangs_up_are_no_connection() {
        let (listener, endpoint) = listening();
        let closing = std::thread::spawn(move || {
            for _ in ASKED {
                drop(listener.accept().unwrap());
            }
        });
        for protocol in ASKED {
            assert_eq!(kind(protocol, &endpoint, Duration::from_secs(9)).0, LoginErrorKind::Connect);
        }
        closing.join().unwrap();
        let (kind, said) = kind(Protocol::Mysql, &endpoint, Duration::from_secs(9));
        assert_eq!(kind, LoginErrorKind::Connect);
        assert!(said.contains("refused, nothing listens"), "{said}");
    }

    #[test]
    fn another_protocol_is_told_as_such() {
        let (listener, endpoint) = listening();
        let talking = std::thread::spawn(move || {
            for _ in ASKED {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        for protocol in ASKED {
            let (kind, said) = kind(protocol, &endpoint, Duration::from_secs(9));
            assert_eq!(kind, LoginErrorKind::Protocol, "{protocol}: {said}");
        }
        talking.join().unwrap();
    }

    #[test]
    fn where_there_is_no_login_connecting_is_all() {
        let (listener, endpoint) = listening();
        let view =
            log_in(Protocol::FastCgi, &endpoint, &Credentials::default(), &ours(), Duration::from_secs(9))
                .unwrap();
        drop(listener);
        assert!(view.says.is_empty() && view.family.starts_with("AF_INET stream tcp"), "{view:?}");
    }
}
