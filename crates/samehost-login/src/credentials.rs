//! Credentials of a login: from a URL, completed from the environment and the user's own files, as the
//! server's own clients do. Never formats a password.
//!
//! Servers count refusals and lock accounts or hosts (FAILED_LOGIN_ATTEMPTS, max_password_errors, fail2ban), so credentials with a
//! refused password are not sent again, over whatever transport and as whatever user.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_system::accounts;

use crate::error::{CredentialsError, LoginError};
use crate::own_files::{Defaults, FoundPassword, Login, OwnFiles, with_service};
use crate::passwords;
use crate::url::{ServerUrl, unescape};

/// User, password and database of a login; missing parts have the defaults of the server's own clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User; `None` for the name of the current user (MySQL, PostgreSQL) or the default user (Redis).
    pub user: Option<String>,
    /// Password; `None` if none is needed.
    pub password: Option<Secret>,
    /// Database or its number; `None` for no database (MySQL), the user's own (PostgreSQL) or 0 (Redis).
    pub database: Option<String>,
}

impl Credentials {
    /// Credentials in a URL for this endpoint. Missing parts come from MYSQL_PWD and `~/.my.cnf`, from
    /// PGUSER, PGPASSWORD, PGDATABASE and `~/.pgpass`, or from REDISCLI_AUTH. A text that is not a URL has no
    /// credentials of its own.
    ///
    /// # Errors
    /// When the URL is wrongly encoded, or `~/.my.cnf` contains a password and other users may read it.
    pub fn of(protocol: Protocol, text: &str, endpoint: &Endpoint) -> Result<Self, CredentialsError> {
        let url = ServerUrl::parse(text).transpose().map_err(CredentialsError::Url)?;
        Self::of_url(protocol, url.as_ref(), endpoint)
    }

    /// The same of a parsed URL; `None` for a text without one.
    ///
    /// # Errors
    /// As [`Credentials::of`].
    pub fn of_url(
        protocol: Protocol,
        url: Option<&ServerUrl>,
        endpoint: &Endpoint,
    ) -> Result<Self, CredentialsError> {
        match protocol {
            Protocol::Mysql => Ok(mysql(url, &Surroundings::of_process()?)?),
            Protocol::Postgres => {
                let files = OwnFiles::here();
                let url = url
                    .map(|url| with_service(url, &files))
                    .transpose()
                    .map_err(CredentialsError::Service)?;
                let mut found = postgres(url.as_ref(), &Defaults::here())?;
                if found.password.is_none() {
                    let host = url.as_ref().and_then(host_of);
                    found.password = found
                        .postgres_password(&files, endpoint, host.as_deref())
                        .map(|found| found.password);
                }
                Ok(found)
            }
            Protocol::Redis => redis(url, std::env::var("REDISCLI_AUTH").ok()),
            _ => Ok(Credentials::default()),
        }
    }

    /// The user of the login; by default the one who runs this.
    pub(crate) fn user(&self) -> String {
        match self.user.clone().or_else(accounts::own_name) {
            Some(user) => user,
            None => rustix::process::geteuid().as_raw().to_string(),
        }
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::reveal)
    }

    /// The password that a client of libpq finds by itself for this login of PostgreSQL. `host` is how the client has the
    /// host; `None` for the directory or the address of the endpoint.
    #[must_use]
    pub fn postgres_password(
        &self,
        files: &OwnFiles,
        endpoint: &Endpoint,
        host: Option<&str>,
    ) -> Option<FoundPassword> {
        let (of_endpoint, port) = match endpoint {
            Endpoint::Unix(path) => {
                let port =
                    path.file_name().and_then(|name| name.to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok());
                (path.parent().unwrap_or(Path::new("/")).display().to_string(), port)
            }
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } => (host.clone(), Some(*port)),
            _ => return None,
        };
        files.password(&Login {
            host: host.unwrap_or(&of_endpoint),
            port: port.unwrap_or(5432),
            database: self.database.as_deref()?,
            user: self.user.as_deref()?,
        })
    }

    /// The same for a login of this process's own. Who names the usual directory, in whatever spelling, has lines for
    /// `localhost` as well: nothing is said of another program by this.
    #[must_use]
    pub fn own_postgres_password(&self, endpoint: &Endpoint) -> Option<Secret> {
        let files = OwnFiles::here();
        let mut found = self.postgres_password(&files, endpoint, None);
        if found.is_none() && endpoint.path().and_then(Path::parent) == Some(Path::new("/run/postgresql")) {
            found = self.postgres_password(&files, endpoint, Some(""));
        }
        found.map(|found| found.password)
    }
}

/// Database in a URL's path.
fn database(url: Option<&ServerUrl>) -> Result<Option<String>, CredentialsError> {
    let Some((_, name)) = url.and_then(|url| url.place.split_once('/')) else { return Ok(None) };
    let name =
        unescape(name).ok_or_else(|| CredentialsError::Url("a wrong `%` in the database's name".into()))?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}

fn option(url: Option<&ServerUrl>, name: &str) -> Option<String> {
    url.and_then(|url| url.option(name)).map(str::to_owned)
}

fn mysql(url: Option<&ServerUrl>, around: &Surroundings) -> Result<Credentials, CredentialsError> {
    // JDBC has both among the options.
    let given = url.and_then(|url| url.password.clone()).or_else(|| option(url, "password"));
    let passwords = [given, around.environment.clone()];
    let own = Some(around.login_name.clone()).filter(|name| !name.is_empty());
    Ok(Credentials {
        user: url
            .and_then(|url| url.user.clone())
            .or_else(|| option(url, "user"))
            .or_else(|| around.file.user.clone())
            .or(own),
        password: passwords
            .into_iter()
            .flatten()
            .next()
            .or_else(|| around.file.password.clone())
            .map(Secret::new),
        database: database(url)?,
    })
}

fn postgres(url: Option<&ServerUrl>, defaults: &Defaults) -> Result<Credentials, CredentialsError> {
    let user = url
        .and_then(|url| url.user.clone())
        .or_else(|| option(url, "user"))
        .unwrap_or_else(|| defaults.user.clone());
    let database = database(url)?
        .or_else(|| option(url, "dbname"))
        .or_else(|| defaults.database.clone())
        .unwrap_or_else(|| user.clone());
    let password = url.and_then(|url| url.password.clone()).or_else(|| option(url, "password"));
    Ok(Credentials { user: Some(user), password: password.map(Secret::new), database: Some(database) })
}

/// The host of a URL of PostgreSQL as it is written, empty where it names none.
fn host_of(url: &ServerUrl) -> Option<String> {
    if url.option("socket").is_some() {
        return None;
    }
    let authority = url.place.split('/').next().unwrap_or_default();
    let written = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let host = unescape(written.map_or(authority, |(host, _)| host))?;
    Some(url.option("host").map_or(host, str::to_owned))
}

fn redis(url: Option<&ServerUrl>, from_environment: Option<String>) -> Result<Credentials, CredentialsError> {
    let is_socket = url.is_some_and(|url| url.scheme.ends_with("unix"));
    let database = if is_socket { option(url, "db").filter(|name| !name.is_empty()) } else { database(url)? };
    let from_environment = from_environment.filter(|password| !password.is_empty());
    let password = url.and_then(|url| url.password.clone()).or(from_environment);
    Ok(Credentials {
        user: url.and_then(|url| url.user.clone()),
        password: password.map(Secret::new),
        database,
    })
}

// Where a URL has no user or password for MySQL, they are found as its own clients find them: in the environment and in the group
// `[client]` of `~/.my.cnf`.

/// Options taken from the file.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
struct OptionFile {
    user: Option<String>,
    /// Password; never formatted.
    password: Option<String>,
}

impl OptionFile {
    /// Reads the file of the current user; empty if there is none.
    ///
    /// # Errors
    /// When it contains a password and other users may read it.
    fn of_user() -> Result<Self, CredentialsError> {
        let Some(home) = std::env::var_os("HOME") else { return Ok(OptionFile::default()) };
        let path = PathBuf::from(home).join(".my.cnf");
        let Ok((mode, text)) = passwords::read(&path) else { return Ok(OptionFile::default()) };
        let found = options(&text);
        let open = mode & 0o077 != 0;
        if open && found.password.is_some() {
            return Err(CredentialsError::Open { path });
        }
        Ok(found)
    }
}

/// Names may contain `-` or `_`; values may be quoted, and have the escapes of my.cnf; `#` starts a comment
/// outside quotes. Later lines win.
fn options(text: &str) -> OptionFile {
    let mut found = OptionFile::default();
    let mut in_client = false;
    for line in text.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[') {
            in_client = group.split(']').next().is_some_and(|name| name.trim() == "client");
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| in_client && !line.starts_with(['#', ';']))
        else {
            continue;
        };
        let value = Some(unquoted(value.trim()));
        match name.trim() {
            "user" => found.user = value,
            "password" => found.password = value,
            _ => {}
        }
    }
    found
}

fn unquoted(value: &str) -> String {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let mut out = String::with_capacity(value.len());
    let mut signs = value.chars().skip(usize::from(quote.is_some()));
    while let Some(sign) = signs.next() {
        match (sign, quote) {
            (sign, Some(quote)) if sign == quote => break,
            // A comment within a line starts after a blank.
            ('#', None) if out.is_empty() || out.ends_with([' ', '\t']) => break,
            ('\\', _) => match signs.next() {
                Some('s') => out.push(' '),
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('b') => out.push('\u{8}'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (sign, _) => out.push(sign),
        }
    }
    if quote.is_none() { out.trim_end().to_owned() } else { out }
}

/// Sources of user and password if a URL has none.
#[derive(Clone, Default)]
struct Surroundings {
    /// MYSQL_PWD.
    environment: Option<String>,
    /// `~/.my.cnf`.
    file: OptionFile,
    /// Name of the user who runs this program.
    login_name: String,
}

impl Surroundings {
    /// Reads those of this process.
    ///
    /// # Errors
    /// When other users may read the option file and it contains a password.
    fn of_process() -> Result<Self, CredentialsError> {
        let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let root = rustix::process::geteuid().is_root().then(|| "root".to_owned());
        Ok(Surroundings {
            environment: std::env::var("MYSQL_PWD").ok(),
            file: OptionFile::of_user()?,
            login_name: name.or(root).unwrap_or_default(),
        })
    }
}

/// Outcome of passwords, by keyed hashes of this process: no password is stored.
#[derive(Default)]
struct Tried {
    keys: RandomState,
    refused: Mutex<HashSet<u64>>,
    /// Passwords accepted before: a refusal elsewhere is then about the account.
    let_in: Mutex<HashSet<u64>>,
}

static TRIED: LazyLock<Tried> = LazyLock::new(Tried::default);

fn hash(protocol: Protocol, credentials: &Credentials) -> Option<u64> {
    let password = credentials.password()?;
    Some(TRIED.keys.hash_one((protocol.name(), credentials.user.as_deref(), password)))
}

/// Refuses a login with a password that was refused before.
pub(crate) fn refuse_again(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
) -> Result<(), LoginError> {
    let known = hash(protocol, credentials);
    let is_known = known.is_some_and(|known| TRIED.refused.lock().is_ok_and(|all| all.contains(&known)));
    if !is_known {
        return Ok(());
    }
    let user = credentials.user.as_deref().unwrap_or_default().escape_debug().to_string();
    Err(LoginError::Spent { endpoint: endpoint.to_string(), user })
}

/// Remembers the outcome of a login.
pub(crate) fn note_outcome(protocol: Protocol, credentials: &Credentials, error: Option<&LoginError>) {
    let Some(hash) = hash(protocol, credentials) else { return };
    let (Ok(mut refused), Ok(mut let_in)) = (TRIED.refused.lock(), TRIED.let_in.lock()) else { return };
    match error {
        None => {
            let_in.insert(hash);
        }
        // A refusal that may be about TLS is not about the password yet.
        Some(LoginError::Refused(why)) if why.by_password && !why.may_need_tls && !let_in.contains(&hash) => {
            refused.insert(hash);
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::Secret;

    use super::*;
    use crate::error::Refused;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap().unwrap()
    }

    fn expected(user: &str, password: &str, database: &str) -> Credentials {
        fn some(text: &str) -> Option<String> {
            Some(text.to_owned()).filter(|text| !text.is_empty())
        }
        Credentials { user: some(user), password: some(password).map(Secret::new), database: some(database) }
    }

    #[test]
    fn a_url_goes_before_the_surroundings() {
        let around = Surroundings {
            environment: Some("env".into()),
            file: OptionFile { user: Some("filed".into()), password: Some("file".into()) },
            login_name: "me".into(),
        };
        let given = url("mysql://bob:p%40s@localhost/shop?socket=/s");
        assert_eq!(mysql(Some(&given), &around).unwrap(), expected("bob", "p@s", "shop"));
        assert_eq!(mysql(None, &around).unwrap(), expected("filed", "env", ""));
        let given = url("jdbc:mariadb://127.0.0.1/shop?user=bob&password=p");
        assert_eq!(mysql(Some(&given), &around).unwrap(), expected("bob", "p", "shop"));
        let given = url("bob:p@unix(/run/m.sock)/shop");
        assert_eq!(mysql(Some(&given), &around).unwrap(), expected("bob", "p", "shop"));
        let defaults = Defaults { user: "me".into(), database: None };
        let given = url("postgres:///shop?host=/run/pg&user=bob");
        assert_eq!(postgres(Some(&given), &defaults).unwrap(), expected("bob", "", "shop"));
        assert_eq!(postgres(Some(&url("postgres://bob@h")), &defaults).unwrap(), expected("bob", "", "bob"));
        let given = url("redis+unix://:x@/run/r.sock?db=3");
        assert_eq!(redis(Some(&given), None).unwrap(), expected("", "x", "3"));
        let from_environment = redis(Some(&url("redis://h:1/2")), Some("env".into())).unwrap();
        assert_eq!(from_environment, expected("", "env", "2"));
    }

    #[test]
    fn nothing_shows_a_password() {
        let shown = format!("{:?}", expected("u", "hunter2", "d"));
        assert!(!shown.contains("hunter2"), "{shown}");
        let endpoint = "tcp:127.0.0.1:1".parse().unwrap();
        let error = Credentials::of(Protocol::Redis, "redis://:hunter2%zz@h", &endpoint).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn only_the_clients_group_counts_and_the_last_line_wins() {
        let text = "[mysqld]\nuser=mysql\n[client]\nuser = bob # who\npassword=first\npassword=\"p#a\\\"ss\"\n# password=no\n[mysql]\npassword=other\n";
        let expected = OptionFile { user: Some("bob".into()), password: Some("p#a\"ss".into()) };
        assert_eq!(options(text), expected);
        assert_eq!(options("user=x"), OptionFile::default());
        assert_eq!(unquoted("'a b' c"), "a b");
        assert_eq!(unquoted("a\\sb"), "a b");
        assert_eq!(unquoted("pa#ss"), "pa#ss");
    }

    fn refused(may_need_tls: bool) -> LoginError {
        LoginError::from(Box::new(Refused {
            protocol: Protocol::Mysql,
            endpoint: "unix:/s".into(),
            what: "the login".into(),
            code: Some("1045".into()),
            answer: "no".into(),
            try_next: String::new(),
            may_need_tls,
            by_password: true,
        }))
    }

    #[test]
    fn a_refused_password_is_not_sent_again_and_one_that_was_right_is() {
        let endpoint = "tcp:127.0.0.1:1".parse().unwrap();
        let of =
            |password: &str| Credentials { password: Some(Secret::new(password)), ..Credentials::default() };
        let may = |password: &str| refuse_again(Protocol::Mysql, &endpoint, &of(password)).is_ok();
        note_outcome(Protocol::Mysql, &of("wrong"), Some(&refused(true)));
        assert!(may("wrong"), "it may be the lack of TLS");
        note_outcome(Protocol::Mysql, &of("wrong"), Some(&refused(false)));
        assert!(!may("wrong") && may("another"));
        assert!(refuse_again(Protocol::Redis, &endpoint, &of("wrong")).is_ok(), "another kind of server");
        let message = refuse_again(Protocol::Mysql, &endpoint, &of("wrong")).unwrap_err().to_string();
        assert!(message.contains("servers count refusals") && !message.contains("wrong"), "{message}");
        note_outcome(Protocol::Mysql, &of("right"), None);
        note_outcome(Protocol::Mysql, &of("right"), Some(&refused(false)));
        assert!(may("right"), "the account is the matter, not the password");
    }
}
