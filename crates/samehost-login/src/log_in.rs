//! One login, whatever the protocol: connect, be let in, and ask what the server sees of this connection.

use std::time::Duration;

use rustix::fs::fstat;
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_transport::Observed;

use crate::link::{Link, plain};
use crate::{Credentials, LoginError, memcached, mysql, postgres, redis, user};

/// What the server, and the kernel, say of a connection that was let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The server's version; empty where it does not tell, or was not asked.
    pub version: String,
    /// What it says of this connection, in words; never a password. Empty where it was not asked.
    pub says: String,
    /// `unix` or `tcp`, as the server sees it; none where it does not tell.
    pub transport: Option<&'static str>,
    /// The kernel's word on our end: family, kind, protocol and addresses.
    pub family: String,
    /// The inode of our end.
    pub inode: u64,
    /// Protocol version and cipher, where TLS is in use.
    pub tls: Option<String>,
}

/// A connection that nobody has spoken over yet.
#[derive(Debug)]
pub struct Connection {
    protocol: Protocol,
    endpoint: Endpoint,
    link: Link,
    observed: Observed,
    inode: u64,
}

/// Connects to an endpoint, logs in, and asks the server what it sees. `patience` is the longest that connecting, and
/// then each answer, may take.
///
/// A server that lets in over TLS only is asked again over TLS, as its own client would.
///
/// # Errors
/// [`LoginError`]; a refusal keeps the server's words and its code.
pub fn log_in(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    patience: Duration,
) -> Result<View, LoginError> {
    let refused = match Connection::to(protocol, endpoint, patience)?.log_in(credentials) {
        Err(LoginError::Refused(refused)) if refused.may_need_tls => refused,
        other => return other,
    };
    let Endpoint::Tcp { host, port } = endpoint else { return Err(refused.into()) };
    let over_tls = Endpoint::TcpTls { host: host.clone(), port: *port };
    Connection::to(protocol, &over_tls, patience)
        .and_then(|connection| connection.log_in(credentials))
        .map_err(|_| refused.into())
}

impl Connection {
    /// Connects and asks the kernel what that is.
    ///
    /// # Errors
    /// When nobody can be connected to there.
    pub fn to(protocol: Protocol, endpoint: &Endpoint, patience: Duration) -> Result<Self, LoginError> {
        let turns_to_tls = matches!(protocol, Protocol::Mysql | Protocol::Postgres);
        let first = if turns_to_tls { plain(endpoint) } else { endpoint.clone() };
        let link = Link::open(&first, patience)?;
        let unseen = |error| LoginError::io("asking the kernel about a socket", error);
        let observed = link.stream().observed().map_err(unseen)?;
        let inode = fstat(link.stream()).map_err(|error| unseen(error.into()))?.st_ino;
        Ok(Connection { protocol, endpoint: endpoint.clone(), link, observed, inode })
    }

    /// The kernel's word on our end.
    #[must_use]
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The inode of our end.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Logs in and asks the server what it sees; then the connection ends.
    ///
    /// # Errors
    /// When the server does not let us in.
    pub fn log_in(self, credentials: &Credentials) -> Result<View, LoginError> {
        let Connection { protocol, endpoint, link, observed, inode } = self;
        let mut view = match protocol {
            Protocol::Mysql => mysql(link, &endpoint, credentials),
            Protocol::Postgres => postgres(link, &endpoint, credentials),
            Protocol::Redis => redis(link, &endpoint, credentials),
            Protocol::Memcached => memcached(link),
            _ => Ok(View { tls: link.cipher(), ..View::default() }),
        }?;
        view.family = observed.to_string();
        view.inode = inode;
        Ok(view)
    }
}

/// The user to be, or the one that runs this.
fn user_of(credentials: &Credentials) -> String {
    let own = || user::own_name().unwrap_or_else(|| rustix::process::geteuid().as_raw().to_string());
    credentials.user.clone().unwrap_or_else(own)
}

fn password_of(credentials: &Credentials) -> Option<&str> {
    credentials.password.as_ref().map(Secret::reveal)
}

fn mysql(link: Link, endpoint: &Endpoint, credentials: &Credentials) -> Result<View, LoginError> {
    let user = user_of(credentials);
    let account = mysql::Account {
        user: &user,
        password: password_of(credentials).unwrap_or_default(),
        database: credentials.database.as_deref(),
    };
    let mut dialogue = mysql::Dialogue::over(link, endpoint, &account)?;
    let mut seen = dialogue.seen()?;
    seen.connection_type = dialogue.connection_type()?;
    let connection_type = seen.connection_type.as_ref();
    let connection_type = connection_type.map(|kind| format!(", CONNECTION_TYPE {kind}")).unwrap_or_default();
    let view = View {
        version: dialogue.greeting().version.trim_start_matches("5.5.5-").to_owned(),
        says: format!("USER() {seen}{connection_type}"),
        transport: seen.transport(),
        tls: dialogue.link().cipher(),
        ..View::default()
    };
    // It was let in and has answered: how the end is taken does not matter.
    let _ = dialogue.quit();
    Ok(view)
}

fn postgres(link: Link, endpoint: &Endpoint, credentials: &Credentials) -> Result<View, LoginError> {
    let user = user_of(credentials);
    let account = postgres::Account {
        user: &user,
        password: password_of(credentials),
        database: credentials.database.as_deref().unwrap_or(&user),
        sslmode: postgres::SslMode::Disable,
        // Poolers refuse settings that they do not know; nothing here writes.
        read_only: false,
    };
    let mut logged_in = postgres::LoggedIn::over(link, endpoint, &account)?;
    let (says, transport) = match logged_in.seen() {
        Ok(seen) => (format!("pg_stat_activity: {seen}"), seen.transport()),
        // A pooler's own console, or something that only speaks like it.
        Err(LoginError::Refused(refused)) => (
            format!("user {user}; the server does not tell how it sees the connection: {}", refused.answer),
            None,
        ),
        Err(error) => return Err(error),
    };
    let tls = logged_in.link.cipher();
    let view = View { version: logged_in.version.clone(), says, transport, tls, ..View::default() };
    let _ = logged_in.end();
    Ok(view)
}

fn redis(link: Link, endpoint: &Endpoint, credentials: &Credentials) -> Result<View, LoginError> {
    let number = match credentials.database.as_deref() {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            LoginError::from(Box::new(crate::Refused {
                protocol: Protocol::Redis,
                endpoint: endpoint.to_string(),
                what: format!("database {}", text.escape_debug()),
                code: None,
                answer: "it is no number".into(),
                try_next: "databases of Redis are numbers from 0".into(),
                may_need_tls: false,
            }))
        })?,
    };
    let account = redis::Account {
        user: credentials.user.as_deref(),
        password: password_of(credentials),
        database: number,
    };
    let mut dialogue = redis::Dialogue::over(link, &account)?;
    let seen = dialogue.seen()?;
    let version = dialogue.identity()?.version;
    let tls = dialogue.link().cipher();
    let says = match &seen {
        Some(seen) => seen.to_string(),
        None => "the user may not ask for CLIENT INFO or CLIENT LIST".into(),
    };
    Ok(View { version, says, transport: seen.and_then(|seen| seen.transport()), tls, ..View::default() })
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
