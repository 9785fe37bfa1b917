//! Credentials of a login: from a URL, completed from the environment and the user's own files, as the
//! server's own clients do. Never formats a password.
//!
//! Servers count refusals and lock accounts or hosts (FAILED_LOGIN_ATTEMPTS, max_password_errors, fail2ban), so credentials with a
//! refused password are not sent again, over whatever transport and as whatever user.
//!
//! Code that shows a server's messages redacts the passwords that were sent, since a server may repeat what it received. A
//! process that sends passwords writes no core dump, and no other process of its user may read its memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once, RwLock};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::{Leads, scheme};
use samehost_system::accounts;

use crate::error::{CredentialsError, LoginError};
use crate::own_files::{self, Defaults, FoundPassword, Login, OwnFiles, with_service};
use crate::url::{ServerUrl, UrlError, unescape};

/// User, password and database of a login; missing parts have the defaults of the server's own clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// `None` for the name of the current user (MySQL, PostgreSQL) or the default user (Redis).
    pub user: Option<String>,
    /// `None` if none is needed.
    pub password: Option<Secret>,
    /// Name or number; `None` for no database (MySQL), the user's own (PostgreSQL) or 0 (Redis).
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
        let url = ServerUrl::parse(text).transpose()?;
        Self::of_url(protocol, url.as_ref(), endpoint)
    }

    /// The same of a parsed URL; `None` for a text without one.
    ///
    /// # Errors
    /// As [`Credentials::of`]; also when no file has the service of libpq that the URL names.
    pub fn of_url(
        protocol: Protocol,
        url: Option<&ServerUrl>,
        endpoint: &Endpoint,
    ) -> Result<Self, CredentialsError> {
        match protocol {
            Protocol::Mysql => mysql(url, &Surroundings::of_process()?),
            Protocol::Postgres => Self::of_postgres_url(url, endpoint),
            Protocol::Redis => redis(url, std::env::var("REDISCLI_AUTH").ok()),
            _ => Ok(Credentials::default()),
        }
    }

    fn of_postgres_url(url: Option<&ServerUrl>, endpoint: &Endpoint) -> Result<Self, CredentialsError> {
        let files = OwnFiles::here();
        let url = match url {
            Some(url) => Some(with_service(url, &files)?),
            None => None,
        };
        let mut credentials = postgres(url.as_ref(), &Defaults::of(&files))?;
        if credentials.password.is_none() {
            let host = url.as_ref().and_then(host_of);
            if let Some(found) = credentials.postgres_password(&files, endpoint, host.as_deref()) {
                credentials.password = Some(found.password);
            }
        }
        Ok(credentials)
    }

    /// The user of the login; by default the one who runs this, by number if it has no name.
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
    /// host; `None` for the directory or the address of the endpoint. The port of a Unix socket is in its name. `None` also
    /// where user or database is not known yet, because a line of the password file is for both.
    #[must_use]
    pub fn postgres_password(
        &self,
        files: &OwnFiles,
        endpoint: &Endpoint,
        host: Option<&str>,
    ) -> Option<FoundPassword> {
        let (endpoint_host, port) = match endpoint {
            Endpoint::Unix(path) => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                (directory.display().to_string(), socket_port(path))
            }
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } => (host.clone(), Some(*port)),
            _ => return None,
        };
        files.password(&Login {
            host: host.unwrap_or(&endpoint_host),
            port: port.unwrap_or(5432),
            database: self.database.as_deref()?,
            user: self.user.as_deref()?,
        })
    }

    /// The same for a login of this process's own. Whoever names the usual directory, in whatever spelling, gets the lines
    /// for `localhost` as well: this process may choose how it writes the host. A program under examination has chosen
    /// already, so [`Credentials::postgres_password`] takes its spelling as it is.
    #[must_use]
    pub fn own_postgres_password(&self, endpoint: &Endpoint) -> Option<Secret> {
        let files = OwnFiles::here();
        let mut found = self.postgres_password(&files, endpoint, None);
        let is_usual = endpoint.path().and_then(Path::parent) == Some(Path::new("/run/postgresql"));
        if found.is_none() && is_usual {
            found = self.postgres_password(&files, endpoint, Some(""));
        }
        Some(found?.password)
    }
}

/// The port in the name of a PostgreSQL socket: 5432 of `.s.PGSQL.5432`.
fn socket_port(path: &Path) -> Option<u16> {
    path.file_name()?.to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok()
}

fn database(url: Option<&ServerUrl>) -> Result<Option<String>, UrlError> {
    let Some(url) = url else { return Ok(None) };
    let Some((_, name)) = url.place.split_once('/') else { return Ok(None) };
    let name = unescape(name).ok_or(UrlError::Part("the database's name"))?;
    Ok(if name.is_empty() { None } else { Some(name) })
}

/// Of a URL; JDBC and libpq have it as an option.
fn url_user(url: &ServerUrl) -> Option<String> {
    url.user.clone().or_else(|| url.owned_option("user"))
}

fn url_password(url: &ServerUrl) -> Option<String> {
    url.password.clone().or_else(|| url.owned_option("password"))
}

fn mysql(url: Option<&ServerUrl>, around: &Surroundings) -> Result<Credentials, CredentialsError> {
    let mut user = url.and_then(url_user).or_else(|| around.file.user.clone());
    if user.is_none() && !around.login_name.is_empty() {
        user = Some(around.login_name.clone());
    }
    let mut password = url.and_then(url_password);
    if password.is_none() {
        password = around.environment.clone().or_else(|| around.file.password.clone());
    }
    Ok(Credentials { user, password: password.map(Secret::new), database: database(url)? })
}

fn postgres(url: Option<&ServerUrl>, defaults: &Defaults) -> Result<Credentials, CredentialsError> {
    let user = match url.and_then(url_user) {
        Some(user) => user,
        None => defaults.user.clone(),
    };
    let mut named = database(url)?;
    if named.is_none() {
        named = url.and_then(|url| url.owned_option("dbname"));
    }
    // libpq takes the user's name where nothing names the database.
    let database = match named.or(defaults.database.clone()) {
        Some(database) => database,
        None => user.clone(),
    };
    let password = url.and_then(url_password).map(Secret::new);
    Ok(Credentials { user: Some(user), password, database: Some(database) })
}

/// The host of a URL of PostgreSQL as it is written, empty where it names none.
fn host_of(url: &ServerUrl) -> Option<String> {
    if url.option("socket").is_some() {
        return None;
    }
    let host = unescape(url.host_and_port().0)?;
    Some(match url.option("host") {
        Some(option) => option.to_owned(),
        None => host,
    })
}

fn redis(url: Option<&ServerUrl>, from_environment: Option<String>) -> Result<Credentials, CredentialsError> {
    let from_environment = from_environment.filter(|password| !password.is_empty());
    let Some(url) = url else {
        return Ok(Credentials { password: from_environment.map(Secret::new), ..Credentials::default() });
    };
    let is_socket = matches!(scheme(&url.scheme), Some((_, Leads::Socket)));
    let database = match url.socket_and_number() {
        // Celery's word for it is another one.
        _ if is_socket => url.owned_option("db").or(url.owned_option("virtual_host")),
        Some((_, number)) => number.map(str::to_owned),
        None => database(Some(url))?,
    };
    let database = database.filter(|name| !name.is_empty());
    let password = url.password.clone().or(from_environment).map(Secret::new);
    Ok(Credentials { user: url.user.clone(), password, database })
}

/// User and password of the group `[client]` in `~/.my.cnf`, where the clients of MySQL look for what no URL says.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
struct OptionFile {
    user: Option<String>,
    /// Never formatted outside of tests.
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
        let Ok((mode, text)) = own_files::read(&path) else { return Ok(OptionFile::default()) };
        let found = options(&text);
        let is_open = mode & 0o077 != 0;
        if is_open && found.password.is_some() {
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
            let name = group.split(']').next().unwrap_or_default();
            in_client = name.trim() == "client";
            continue;
        }
        if !in_client || line.starts_with(['#', ';']) {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
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

/// Where user and password of MySQL come from if a URL has none.
#[derive(Clone, Default)]
struct Surroundings {
    /// MYSQL_PWD.
    environment: Option<String>,
    file: OptionFile,
    /// Empty if neither USER nor LOGNAME is set, except for root.
    login_name: String,
}

impl Surroundings {
    /// # Errors
    /// When other users may read the option file and it contains a password.
    fn of_process() -> Result<Self, CredentialsError> {
        let login_name = match std::env::var("USER").or_else(|_| std::env::var("LOGNAME")) {
            Ok(name) => name,
            Err(_) if rustix::process::geteuid().is_root() => "root".to_owned(),
            Err(_) => String::new(),
        };
        Ok(Surroundings {
            environment: std::env::var("MYSQL_PWD").ok(),
            file: OptionFile::of_user()?,
            login_name,
        })
    }
}

/// Outcome of passwords, by keyed hashes of this process: no password is stored.
#[derive(Default)]
struct Tried {
    keys: RandomState,
    /// Whether a password was accepted: a refusal elsewhere is then about the account.
    were_let_in: Mutex<HashMap<u64, bool>>,
}

static TRIED: LazyLock<Tried> = LazyLock::new(Tried::default);

fn hash(protocol: Protocol, credentials: &Credentials) -> Option<u64> {
    let password = credentials.password()?;
    Some(TRIED.keys.hash_one((protocol.name(), credentials.user.as_deref(), password)))
}

pub(crate) fn refuse_again(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
) -> Result<(), LoginError> {
    let Some(hash) = hash(protocol, credentials) else { return Ok(()) };
    let Ok(were_let_in) = TRIED.were_let_in.lock() else { return Ok(()) };
    if were_let_in.get(&hash) != Some(&false) {
        return Ok(());
    }
    let user = credentials.user.as_deref().unwrap_or_default().escape_debug().to_string();
    Err(LoginError::Spent { endpoint: endpoint.to_string(), user })
}

/// Remembers whether the password of a login was refused; `error` is `None` after a login that succeeded.
pub(crate) fn note_outcome(protocol: Protocol, credentials: &Credentials, error: Option<&LoginError>) {
    let Some(hash) = hash(protocol, credentials) else { return };
    let Ok(mut were_let_in) = TRIED.were_let_in.lock() else { return };
    match error {
        None => drop(were_let_in.insert(hash, true)),
        // A refusal that may be about TLS is not about the password yet.
        Some(LoginError::Refused(why)) if why.by_password && !why.may_need_tls => {
            were_let_in.entry(hash).or_insert(false);
        }
        Some(_) => {}
    }
}

static SENT: RwLock<Vec<Secret>> = RwLock::new(Vec::new());

/// All passwords that a login of this process has sent so far, wherever they came from.
/// A server may repeat the password that it was given, in its version or in an error, and that went into
/// JSON, HTML and stored results. Masking only passwords of the command line was rejected: one from an
/// option file or a prompt was not known.
#[must_use]
pub fn sent_passwords() -> Vec<Secret> {
    match SENT.read() {
        Ok(all) => all.clone(),
        Err(_) => Vec::new(),
    }
}

/// Adds a password to [`sent_passwords`]; called just before it, or a proof of it, is sent.
pub(crate) fn remember_sent(password: &str) {
    let Ok(mut all) = SENT.write() else { return };
    if !all.iter().any(|known| known.reveal() == password) {
        all.push(Secret::new(password));
    }
}

/// Protects the memory of this process from here on; only the first call has an effect. If the kernel refuses, nothing
/// else can be done.
pub(crate) fn guard_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    });
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
        for celerys_or_symfonys in
            ["redis+socket://:x@/run/r.sock?virtual_host=3", "redis://:x@/run/r.sock/3"]
        {
            assert_eq!(redis(Some(&url(celerys_or_symfonys)), None).unwrap(), expected("", "x", "3"));
        }
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
        let refused = Refused::new(Protocol::Mysql, &"unix:/s".parse().unwrap(), "the login", "no");
        Refused { code: Some("1045".into()), may_need_tls, by_password: true, ..refused }.into()
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

    #[test]
    fn each_is_known_once() {
        for password in ["of-this-test", "of-this-test"] {
            remember_sent(password);
        }
        assert_eq!(sent_passwords().iter().filter(|one| one.reveal() == "of-this-test").count(), 1);
    }

    #[test]
    fn no_memory_image_is_left() {
        guard_memory();
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
