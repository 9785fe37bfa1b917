//! The URL of a server in a configuration, split without decoding: unchanged parts are written back byte for byte.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Redactor, Secret, percent_decoded};

use crate::asked::{LIBPQ_WORDS, Word};
use crate::lines::has_only;
use crate::refusal::Reason;

/// The parts of a URL as written, with percent signs.
/// The `url` crate was rejected: it breaks passwords with `/` and `@`, which clients accept. This is not the reader of
/// `samehost-login` either, since an editor has to know where each byte stands and to write back what it does
/// not change (docs/decisions/0087).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// `user:password`, without the @.
    pub(crate) login: Option<String>,
    /// With brackets for an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: Option<String>,
    /// With its leading slash; empty if there is none.
    pub(crate) path: String,
    /// Without the question mark.
    pub(crate) query: Option<String>,
}

impl Url {
    /// Splits a text; `None` if it is not a URL with `://`, or has a fragment, several hosts or unusual characters.
    pub(crate) fn parse(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        let mut letters = scheme.bytes();
        let is_scheme = letters.next()?.is_ascii_alphabetic()
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte));
        if !is_scheme || rest.contains(['#', ' ', '\t', '\'', '"', '\\', '<', '>']) {
            return None;
        }
        let (before_query, query) = match rest.split_once('?') {
            Some((before, query)) => (before, Some(query.to_owned())),
            None => (rest, None),
        };
        let slash = before_query.find('/').unwrap_or(before_query.len());
        let (authority, path) = before_query.split_at(slash);
        // An @ in the path would be a password with an unencoded slash.
        if path.contains('@') {
            return None;
        }
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login.to_owned()), place),
            None => (None, authority),
        };
        // Programs disagree on where a login with a second @ ends.
        if login.as_ref().is_some_and(|login| login.contains('@')) {
            return None;
        }
        let (host, port) = split_port(place)?;
        Some(Url { scheme: scheme.to_owned(), login, host, port, path: path.to_owned(), query })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}://", self.scheme);
        if let Some(login) = &self.login {
            text += &format!("{login}@");
        }
        text += &self.host;
        if let Some(port) = &self.port {
            text += &format!(":{port}");
        }
        text += &self.path;
        if let Some(query) = &self.query {
            text += &format!("?{query}");
        }
        text
    }

    /// The text without its password and, of the query, only the endpoint: the query may contain a password too.
    pub(crate) fn shown(&self) -> String {
        const PLACES: &[&str] = &["unix_socket", "socket", "host", "db", "virtual_host"];
        let mut places = Vec::new();
        for (key, value) in self.parameters() {
            if PLACES.contains(&key) && !value.contains(['@', ':', '?']) {
                places.push(format!("{key}={value}"));
            }
        }
        let query = if places.is_empty() { None } else { Some(places.join("&")) };
        Redactor::default().word(&Url { query, ..self.clone() }.text())
    }

    pub(crate) fn protocol(&self) -> Option<Protocol> {
        protocol(&self.scheme)
    }

    /// The port as a number, or the protocol's default.
    pub(crate) fn port_or(&self, usual: u16) -> Option<u16> {
        self.port.as_ref().map_or(Some(usual), |port| port.parse().ok())
    }

    pub(crate) fn tcp(&self, usual: u16) -> Option<Endpoint> {
        let bare = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        tcp(bare.unwrap_or(&self.host), self.port_or(usual)?)
    }

    pub(crate) fn place(&mut self, host: &str, port: u16) {
        self.host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        self.port = Some(port.to_string());
    }

    /// Value of a parameter; `None` if it is missing, an error if it appears twice.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<&str>, Reason> {
        let mut found = self.parameters().filter(|(key, _)| *key == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err("a parameter stands in it twice".into()),
            (first, None) => Ok(first.map(|(_, value)| value)),
        }
    }

    pub(crate) fn words(&self, file: &Path, line: u32) -> Vec<Word> {
        let mut words = Vec::new();
        for (name, value) in self.parameters() {
            let is_libpqs = LIBPQ_WORDS.iter().any(|(parameter, _)| *parameter == name);
            if is_libpqs || matches!(name, "ssl" | "sslkey") {
                words.push(Word::new(name, percent_decoded(value).unwrap_or_default(), file, line));
            }
        }
        words
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query.as_deref().unwrap_or_default();
        query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Sets a parameter: in place, or at the end.
    pub(crate) fn set_parameter(&mut self, name: &str, value: &str) {
        let pair = format!("{name}={value}");
        let Some(query) = self.query.as_deref().filter(|query| !query.is_empty()) else {
            self.query = Some(pair);
            return;
        };
        let mut pairs: Vec<&str> = query.split('&').collect();
        match pairs.iter_mut().find(|one| one.split('=').next() == Some(name)) {
            Some(one) => *one = &pair,
            None => pairs.push(&pair),
        }
        self.query = Some(pairs.join("&"));
    }

    /// Removes a parameter, and the question mark with the last one.
    pub(crate) fn drop_parameter(&mut self, name: &str) {
        let Some(query) = &self.query else { return };
        let kept: Vec<&str> = query.split('&').filter(|pair| pair.split('=').next() != Some(name)).collect();
        self.query = if kept.is_empty() { None } else { Some(kept.join("&")) };
    }

    /// User of the login; `None` if it may be a lone password, as some libraries accept for Redis.
    pub(crate) fn user(&self) -> Option<String> {
        let login = self.login.as_ref()?;
        match login.split_once(':') {
            Some((user, _)) => text_of(user),
            None if self.protocol() == Some(Protocol::Redis) => None,
            None => text_of(login),
        }
    }

    pub(crate) fn password(&self) -> Option<Secret> {
        let (_, password) = self.login.as_ref()?.split_once(':')?;
        text_of(password).map(Secret::new)
    }

    /// Password of the login, for a library that reads a login without a colon as one.
    pub(crate) fn password_alone(&self) -> Option<Secret> {
        let login = self.login.as_ref()?;
        if login.is_empty() || login.contains([':', '$']) {
            return None;
        }
        percent_decoded(login).map(Secret::new)
    }

    pub(crate) fn database(&self) -> Option<String> {
        text_of(self.path.strip_prefix('/')?)
    }
}

/// Text of a part; `None` if it is empty or contains a variable, which begins with an unescaped `$`.
fn text_of(part: &str) -> Option<String> {
    if part.is_empty() || part.contains('$') { None } else { percent_decoded(part) }
}

pub(crate) fn protocol(scheme: &str) -> Option<Protocol> {
    Some(match scheme {
        "mysql" | "mysql2" | "mysqli" | "mariadb" | "trilogy" | "pdo-mysql" | "pdo_mysql" | "mysqlgis" => {
            Protocol::Mysql
        }
        "postgres" | "postgresql" | "pgsql" | "pdo-pgsql" | "pdo_pgsql" | "postgis" | "psql" => {
            Protocol::Postgres
        }
        "redis" | "unix" | "redis+socket" | "rediss" => Protocol::Redis,
        "memcached" => Protocol::Memcached,
        _ => return None,
    })
}

/// The number of a database in a URL of Redis, where it is not the first: in its path, or in one of the parameters that libraries have
/// for it.
pub(crate) fn redis_number(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = place.split('#').next()?.split_once('/').map(|(_, path)| path);
    let of_query = query.split('&').filter_map(|pair| pair.split_once('='));
    let named = of_query.filter(|(name, _)| matches!(*name, "db" | "database" | "dbindex" | "virtual_host"));
    let mut all = path.into_iter().chain(named.map(|(_, value)| value));
    all.find(|text| !text.is_empty() && *text != "0" && text.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(crate) fn usual_port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Mysql => 3306,
        Protocol::Postgres => 5432,
        Protocol::Memcached => 11211,
        _ => 6379,
    }
}

pub(crate) fn tcp(host: &str, port: u16) -> Option<Endpoint> {
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == 0 || !has_only(host, ".-_:") {
        return None;
    }
    format!("tcp:{bracketed}:{port}").parse().ok()
}

pub(crate) fn is_local(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host == "::1" || host.starts_with("127.") || host.starts_with('/')
}

/// A path that every reader of every such format takes literally; others are refused.
pub(crate) fn is_plain_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= samehost_model::UNIX_PATH_MAX
        && !path.contains("//")
        && has_only(path, "._-/")
}

/// Directory and port of PostgreSQL's socket: `/run/postgresql/.s.PGSQL.5432`.
pub(crate) fn postgres_socket(path: &str) -> Option<(&str, u16)> {
    let (directory, name) = path.rsplit_once('/')?;
    let port = name.strip_prefix(".s.PGSQL.")?;
    let number: u16 = port.parse().ok()?;
    if number.to_string() != port || directory.is_empty() {
        return None;
    }
    Some((directory, number))
}

/// The same, or why its clients cannot be given this socket.
pub(crate) fn postgres_directory(path: &str) -> Result<(&str, u16), Reason> {
    let why = "PostgreSQL's clients take a directory: the socket must be called .s.PGSQL.PORT";
    postgres_socket(path).ok_or(why.into())
}

pub(crate) fn postgres_path(directory: &str, port: u16) -> Option<Endpoint> {
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    let path = format!("{directory}/.s.PGSQL.{port}");
    if is_plain_path(&path) { Some(Endpoint::Unix(path.into())) } else { None }
}

fn split_port(place: &str) -> Option<(String, Option<String>)> {
    let end = match place.starts_with('[') {
        true => place.find(']')? + 1,
        false => place.find(':').unwrap_or(place.len()),
    };
    let (host, rest) = place.split_at(end);
    let port = match rest.strip_prefix(':') {
        Some(port) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.to_owned())
        }
        None if rest.is_empty() => None,
        _ => return None,
    };
    // Several hosts are for clusters.
    if host.contains(',') { None } else { Some((host.to_owned(), port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        for text in [
            "mysql://user:pa%40ss@127.0.0.1:3306/app?serverVersion=8.0&charset=utf8mb4",
            "redis://localhost",
            "redis://:secret@[::1]:6379/2",
            "unix:///run/redis.sock?db=1",
            "postgresql://u:p@%2Frun%2Fpostgresql:5433/db",
            "postgres://u@/db?",
            "postgres://u@:5432/db?host=/run/postgresql",
        ] {
            assert_eq!(Url::parse(text).unwrap().text(), text);
        }
        for text in [
            "mysql:host=x", "://x", "redis://a,b/0", "redis://u@p@h/0", "a://h:x/", "redis://h/0#1",
            "mysql://u:p/q@h/d",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_escaped_dollar_is_text_and_a_bare_one_a_variable() {
        let parsed = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.user(), url.password().map(|password| password.reveal().to_owned()), url.database())
        };
        fn some(text: &str) -> Option<String> {
            Some(text.to_owned())
        }
        assert_eq!(parsed("mysql://a%24b:c%24@h/d%24"), (some("a$b"), some("c$"), some("d$")));
        assert_eq!(parsed("mysql://$USER:$PASS@h/$DB"), (None, None, None));
    }

    #[test]
    fn parameters_change_in_their_place() {
        let mut url = Url::parse("mysql://h/d?a=1&unix_socket=/x&b=2").unwrap();
        url.set_parameter("unix_socket", "/y");
        assert_eq!(url.text(), "mysql://h/d?a=1&unix_socket=/y&b=2");
        url.drop_parameter("unix_socket");
        assert_eq!(url.text(), "mysql://h/d?a=1&b=2");
        assert_eq!(
            Url::parse("a://h?x=1&x=2").unwrap().parameter("x"),
            Err("a parameter stands in it twice".into())
        );
    }

    #[test]
    fn no_password_is_shown() {
        let url = Url::parse("mysql://user:hunter2@127.0.0.1:3306/app").unwrap();
        assert_eq!(url.shown(), "mysql://user:***@127.0.0.1:3306/app");
        assert_eq!(url.password().unwrap().reveal(), "hunter2");
        let alone = Url::parse("redis://hunter%32@h").unwrap();
        assert_eq!((alone.user(), alone.password()), (None, None));
        assert_eq!(alone.password_alone().unwrap().reveal(), "hunter2");
        assert!(
            url.password_alone().is_none() && Url::parse("redis://h").unwrap().password_alone().is_none()
        );
        assert_eq!(Url::parse("mysql://u@h").unwrap().user().as_deref(), Some("u"));
        let url = Url::parse("redis://h/0?password=hunter2&db=1").unwrap();
        assert_eq!(url.shown(), "redis://h/0?db=1");
        assert_eq!(Url::parse("redis://hunter2@h").unwrap().shown(), "redis://***@h");
    }
}
