//! Credentials of a login: from a URL, completed from the environment and the user's own files, as the
//! server's own clients do. Never formats a password.
//!
//! Servers count refusals and lock accounts or hosts (FAILED_LOGIN_ATTEMPTS, max_password_errors, fail2ban), so credentials with a
//! refused password are not sent again, over whatever transport and as whatever user.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use samehost_model::{Endpoint, Protocol, Secret};

use crate::error::{CredentialsError, LoginError};
use crate::mysql::Surroundings;
use crate::postgres::{Defaults, FoundPassword, Login, OwnFiles, with_service};
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
        match protocol {
            Protocol::Mysql => Ok(mysql(url.as_ref(), &Surroundings::of_process()?)?),
            Protocol::Postgres => {
                let files = OwnFiles::here();
                let url = url
                    .map(|url| with_service(&url, &files))
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
            Protocol::Redis => redis(url.as_ref(), std::env::var("REDISCLI_AUTH").ok()),
            _ => Ok(Credentials::default()),
        }
    }
}

impl Credentials {
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
    let database = if is_socket { option(url, "db") } else { database(url)? };
    let from_environment = from_environment.filter(|password| !password.is_empty());
    let password = url.and_then(|url| url.password.clone()).or(from_environment);
    Ok(Credentials {
        user: url.and_then(|url| url.user.clone()),
        password: password.map(Secret::new),
        database,
    })
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
    let password = credentials.password.as_ref()?.reveal();
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
    use crate::mysql::OptionFile;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap().unwrap()
    }

    fn expected(user: &str, password: &str, database: &str) -> Credentials {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
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
