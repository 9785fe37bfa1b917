//! Parses the address of an HTTP server and the request target from a URL or a plain endpoint.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use samehost_login::Destination;
use samehost_login::url::{ServerUrl, unescape};
use samehost_model::{Endpoint, Protocol, Transport};

use crate::error::BenchError;
use crate::workloads::foreign::require_transport;

const FORMS: &str = "write http://127.0.0.1:8080/page, http+unix://%2Frun%2Fapp.sock/page or a plain endpoint (tcp:127.0.0.1:8080, unix:/run/app.sock) with --path";

/// A server and a request target.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) endpoint: Endpoint,
    /// Path and query; `None` for a plain endpoint.
    pub(crate) target: Option<String>,
    /// Value of the Host field.
    pub(crate) host: String,
    /// Value of the Authorization field if the URL contains a login.
    pub(crate) authorization: Option<String>,
}

impl Address {
    /// Parses what the command line gave for a transport.
    ///
    /// # Errors
    /// When it is not an address, or has another transport.
    pub(crate) fn given(transport: Transport, text: &str) -> Result<Self, BenchError> {
        let address = parse(text)?;
        require_transport(transport, &address.endpoint)?;
        Ok(address)
    }

    /// Parses any URL or endpoint.
    pub(crate) fn read(text: &str) -> Result<Self, BenchError> {
        parse(text)
    }

    /// Address of one of our servers.
    pub(crate) fn own(endpoint: Endpoint) -> Self {
        Address { endpoint, target: None, host: "localhost".into(), authorization: None }
    }
}

fn parse(text: &str) -> Result<Address, BenchError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(Address::own(text.parse()?));
    };
    let (authority, target) = match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => (&rest[..at], rest[at..].to_owned()),
        Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
        None => (rest, "/".to_owned()),
    };
    let target = target.split('#').next().unwrap_or_default().to_owned();
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("the path has blanks or bytes that are not ASCII: percent-encode them"));
    }
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let authorization = match login {
        None => None,
        Some(login) => {
            let login = unescape(login).ok_or_else(|| wrong("a wrong `%` in the login"))?;
            Some(format!("Basic {}", STANDARD.encode(login)))
        }
    };
    if place.is_empty() {
        return Err(wrong("the URL names no host; a socket's path stands there with %2F for each `/`"));
    }
    let url = ServerUrl::parse(text).transpose().map_err(|reason| wrong(&reason))?;
    let found =
        url.map(|url| Destination::of(&url)).transpose().map_err(|error| wrong(&error.to_string()))?;
    match found.filter(|found| found.protocol == Protocol::Http) {
        Some(Destination { endpoint, .. }) => {
            let host = if endpoint.path().is_some() { "localhost" } else { place };
            Ok(Address { endpoint, target: Some(target), host: host.to_owned(), authorization })
        }
        None => Err(wrong(&format!("`{}://` is not a URL of HTTP", scheme.escape_debug()))),
    }
}

fn wrong(reason: &str) -> BenchError {
    BenchError::Usage(format!("{reason}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    #[test]
    fn urls_and_endpoints() {
        for (text, endpoint, target, host) in [
            ("http://127.0.0.1:8080/a?b=c#d", "tcp:127.0.0.1:8080", Some("/a?b=c"), "127.0.0.1:8080"),
            ("http://localhost", "tcp:localhost:80", Some("/"), "localhost"),
            ("http://[::1]:81?x", "tcp:[::1]:81", Some("/?x"), "[::1]:81"),
            ("http+unix://%2Frun%2Fa.sock/p", "unix:/run/a.sock", Some("/p"), "localhost"),
            ("unix:/run/a.sock", "unix:/run/a.sock", None, "localhost"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.endpoint.to_string(), endpoint);
            assert_eq!((address.target.as_deref(), address.host.as_str()), (target, host));
        }
        let login = parse("http://bob:p%40w@h:1/").unwrap().authorization;
        assert_eq!(login.as_deref(), Some("Basic Ym9iOnBAdw=="));
        for text in ["http:///x", "http+unix:///run/a.sock", "https://h/", "ftp://h/", "http://h/ü", "h:80"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(Address::given(Transport::Unix, "http://h:1/").is_err());
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| parse(text).map(|address| address.endpoint.to_string());
        assert_leads_everywhere(&["http"], read);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(http|http\\+unix)://.{0,30}") {
            let _ = parse(&text);
        }
    }
}
