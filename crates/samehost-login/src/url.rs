//! Parses server URLs: `scheme://user:password@place?option=value`. The password goes to the server only: a parsed URL has
//! no format.

use samehost_model::Protocol;
pub use samehost_model::{percent_decoded as unescape, percent_encoded as escape};
use samehost_services::{Localhost, localhost_in, plain_scheme};

use crate::dsn;

/// Why a text with `://` cannot be read. Shows no part of the text that may be secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("a `%` without two hexadecimal digits, or no UTF-8")]
    Login,
    #[error("a wrong `%` in {0}")]
    Part(&'static str),
    /// The value of the option with this name, escaped.
    #[error("a wrong `%` in the option {0}")]
    Option(String),
}

/// Parts of a URL, percent-decoded except for the place.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    pub scheme: String,
    /// Whether the driver that its scheme, or Go's `tcp(…)`, names takes `localhost` for a host like any other.
    pub is_localhost_a_host: bool,
    /// `None` if missing or empty.
    pub user: Option<String>,
    /// `None` if missing or empty.
    pub password: Option<String>,
    /// Between the login and `?`, as written.
    pub place: String,
    /// Part after `?`, as written; `None` without one.
    pub query: Option<String>,
    pub options: Vec<(String, String)>,
}

impl ServerUrl {
    /// Parses a URL, or what a driver takes in its place: `user:password@tcp(host:port)/db` of Go's for MySQL, and names with
    /// values ([`dsn::as_url`]). `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, UrlError>> {
        let is_gos = ["@unix(", "@tcp(", "@("].iter().any(|words| text.contains(words));
        let own = if text.contains("://") || is_gos { None } else { Some(dsn::as_url(text)?) };
        let url = own.as_deref().unwrap_or(text);
        let (scheme, rest) = url.split_once("://").unwrap_or(("mysql", url));
        let is_localhost_a_host = localhost_in(text) == Some(Localhost::Tcp);
        Some(Self::parts(scheme, rest).map(|url| ServerUrl { is_localhost_a_host, ..url }))
    }

    /// Value of an option; the last one counts.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().rfind(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn owned_option(&self, name: &str) -> Option<String> {
        self.option(name).map(str::to_owned)
    }

    /// Host and port of the place, as they are written.
    pub(crate) fn host_and_port(&self) -> (&str, Option<&str>) {
        let authority = self.place.split(['/', '#']).next().unwrap_or_default();
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        }
    }

    /// The path of a socket in the place of a host and a name, and the number behind it: `redis:///run/redis.sock/3` of Symfony.
    pub(crate) fn socket_and_number(&self) -> Option<(&str, Option<&str>)> {
        if !self.place.strip_prefix('/')?.trim_end_matches('/').contains('/') {
            return None;
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self.place.rsplit_once('/') {
            Some((path, number)) if is_number(number) => Some((path, Some(number))),
            _ => Some((&self.place, None)),
        }
    }

    fn parts(written: &str, rest: &str) -> Result<Self, UrlError> {
        let scheme = plain_scheme(written);
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        // In HTTP a path may contain `@`, and a login has no slash.
        let is_http = matches!(samehost_services::scheme(&scheme), Some((Protocol::Http, _)));
        let end = if is_http { rest.find('/').unwrap_or(rest.len()) } else { rest.len() };
        // Clients accept an `@` in a password: the last one ends the login.
        let (login, place) = match rest[..end].rfind('@') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let login = login.unwrap_or_default();
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let mut options = decoded_options(query.unwrap_or_default())?;
        let (place, socket) = out_of_brackets(place)?;
        if let Some(path) = socket {
            options.push(("socket".to_owned(), path));
        }
        Ok(ServerUrl {
            scheme,
            is_localhost_a_host: false,
            user: decoded_login(user)?,
            password: decoded_login(password)?,
            place,
            query: query.map(str::to_owned),
            options,
        })
    }
}

fn decoded_login(part: &str) -> Result<Option<String>, UrlError> {
    if part.is_empty() {
        return Ok(None);
    }
    match unescape(part) {
        Some(decoded) => Ok(Some(decoded)),
        None => Err(UrlError::Login),
    }
}

fn decoded_options(query: &str) -> Result<Vec<(String, String)>, UrlError> {
    let mut options = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded_name = unescape(name).ok_or(UrlError::Part("an option's name"))?;
        let Some(value) = unescape(value) else {
            return Err(UrlError::Option(name.escape_debug().to_string()));
        };
        options.push((decoded_name, value));
    }
    Ok(options)
}

/// The place in the usual form, and the path of a socket in it. Go's driver for MySQL has its own form: `unix(/path)/db` is
/// `localhost/db` with a socket, and `tcp(host:port)/db` is `host:port/db`.
fn out_of_brackets(place: &str) -> Result<(String, Option<String>), UrlError> {
    if let Some((path, rest)) = in_brackets(place, "unix(") {
        let path = unescape(path).ok_or(UrlError::Part("the path"))?;
        return Ok((format!("localhost{rest}"), Some(path)));
    }
    Ok(match of_go(place) {
        Some((address, rest)) => (format!("{address}{rest}"), None),
        None => (place.to_owned(), None),
    })
}

/// `tcp(host:port)/db`, and without a protocol, which is TCP.
fn of_go(place: &str) -> Option<(&str, &str)> {
    in_brackets(place, "tcp(").or_else(|| in_brackets(place, "("))
}

fn in_brackets<'a>(place: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    place.strip_prefix(start)?.split_once(')')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_told_apart() {
        let url = ServerUrl::parse("mysql://bob:p%40s@s:x@h:1/db?socket=/run/a%20b&x").unwrap().unwrap();
        assert_eq!((url.scheme.as_str(), url.place.as_str()), ("mysql", "h:1/db"));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("bob"), Some("p@s@s:x")));
        assert_eq!(url.options, [("socket".into(), "/run/a b".into()), ("x".into(), String::new())]);
        let url = ServerUrl::parse("x:///p?mail=a@b").unwrap().unwrap();
        assert_eq!((url.user, url.place.as_str()), (None, "/p"));
        assert!(ServerUrl::parse("unix:/run/x").is_none());
    }

    #[test]
    fn what_drivers_spell_in_their_own_ways_is_the_same_server() {
        for (text, scheme, place) in [
            ("jdbc:mysql://h:1/db", "mysql", "h:1/db"),
            ("jdbc:postgresql://h/db", "postgresql", "h/db"),
            ("mysql+pymysql://u@h/db", "mysql", "h/db"),
            ("postgresql+psycopg2://h/db", "postgresql", "h/db"),
            ("mysql2://h/db", "mysql", "h/db"),
            ("mysql://u:p@tcp(h:1)/db", "mysql", "h:1/db"),
            ("redis+unix:///run/r.sock", "redis+unix", "/run/r.sock"),
            ("odd+driver://h", "odd+driver", "h"),
            ("db+postgresql://h/db", "postgresql", "h/db"),
            ("pdo-pgsql://h/db", "postgres", "h/db"),
        ] {
            let url = ServerUrl::parse(text).unwrap().unwrap();
            assert_eq!((url.scheme.as_str(), url.place.as_str()), (scheme, place), "{text}");
        }
        let url = ServerUrl::parse("mysql://u:p@unix(/run/m.sock)/db").unwrap().unwrap();
        assert_eq!((url.place.as_str(), url.option("socket")), ("localhost/db", Some("/run/m.sock")));
        let url = ServerUrl::parse("u:p@unix(/run/m.sock)/db").unwrap().unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.user.as_deref(), url.place.as_str()),
            ("mysql", Some("u"), "localhost/db")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z]{1,3}://.{0,30}") {
            let _ = ServerUrl::parse(&text);
        }
    }
}
