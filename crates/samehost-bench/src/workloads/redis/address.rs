//! Address and login of a Redis server, from a URL or a plain endpoint. The password goes to the server only;
//! formatting an address never shows it.

use std::fmt;

use samehost_login::Destination;
use samehost_login::url::{ServerUrl, escape, login};
use samehost_model::{Endpoint, Protocol, Transport};

use crate::error::BenchError;
use crate::private_servers::PrivateServer;
use crate::workloads::foreign::require_transport;

const FORMS: &str = "write redis://[USER:PASSWORD@]127.0.0.1:6379[/DB], redis+unix:///path[?db=DB] or a plain endpoint (tcp:127.0.0.1:6379, unix:/path)";

/// A server and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        if self.database > 0 { write!(f, " db {}", self.database) } else { Ok(()) }
    }
}

impl Address {
    /// An endpoint without a login.
    pub(super) fn open(endpoint: Endpoint) -> Self {
        Address { endpoint, user: None, password: None, database: 0 }
    }

    /// Address of a private server.
    pub(super) fn private(endpoint: &Endpoint, server: &PrivateServer) -> Self {
        let password = Some(server.password().to_owned()).filter(|password| !password.is_empty());
        Address { password, ..Address::open(endpoint.clone()) }
    }

    /// What the command line gave for a transport. A password that the URL lacks comes from REDISCLI_AUTH, as it
    /// does for redis-cli.
    pub(super) fn given(
        transport: Transport,
        text: &str,
        from_environment: Option<String>,
    ) -> Result<Self, BenchError> {
        let mut address = parse(text)?;
        require_transport(transport, &address.endpoint)?;
        if address.password.is_none() {
            address.password = from_environment.filter(|password| !password.is_empty());
        }
        Ok(address)
    }

    /// This address as a URL with its secrets: for use inside this program only.
    pub(super) fn to_url(&self) -> String {
        let login = login(self.user.as_deref(), self.password.as_deref());
        match &self.endpoint {
            Endpoint::Unix(path) => {
                format!("redis+unix://{login}{}?db={}", escape(&path.display().to_string()), self.database)
            }
            Endpoint::Tcp { host, port } if host.contains(':') => {
                format!("redis://{login}[{host}]:{port}/{}", self.database)
            }
            Endpoint::Tcp { host, port } => format!("redis://{login}{host}:{port}/{}", self.database),
            other => other.to_string(),
        }
    }
}

fn parse(text: &str) -> Result<Address, BenchError> {
    let Some(url) = ServerUrl::parse(text) else {
        return Ok(Address::open(text.parse()?));
    };
    let url = url.map_err(|reason| wrong(&reason))?;
    let place = url.place.as_str();
    let number = |text: &str| match text {
        "" => Ok(0),
        text => text.parse::<u32>().map_err(|_| wrong(&format!("`{text}` is not a database number"))),
    };
    let found = Destination::of(&url).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(found.protocol, Protocol::Redis | Protocol::Plain) {
        return Err(wrong(&format!("`{}://` is not a URL of Redis", url.scheme.escape_debug())));
    }
    let mut database = 0;
    if found.endpoint.path().is_none() {
        database = number(place.split_once('/').map_or("", |(_, name)| name))?;
    } else {
        for (name, value) in &url.options {
            match name.as_str() {
                "db" => database = number(value)?,
                _ => return Err(wrong("the only option after `?` is db")),
            }
        }
    }
    Ok(Address { endpoint: found.endpoint, user: url.user, password: url.password, database })
}

fn wrong(reason: &str) -> BenchError {
    BenchError::Usage(format!("{reason}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn address(endpoint: &str, user: Option<&str>, password: Option<&str>, database: u32) -> Address {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Address {
            endpoint: endpoint.parse().unwrap(),
            user: owned(user),
            password: owned(password),
            database,
        }
    }

    #[test]
    fn urls_are_read_as_clients_read_them() {
        let tcp = "tcp:127.0.0.1:6379";
        for (text, expected) in [
            ("redis://127.0.0.1:6379", address(tcp, None, None, 0)),
            ("redis://127.0.0.1", address(tcp, None, None, 0)),
            ("redis://127.0.0.1:6379/3", address(tcp, None, None, 3)),
            ("redis://bob:p%40ss:w%2Fd@127.0.0.1/2", address(tcp, Some("bob"), Some("p@ss:w/d"), 2)),
            ("redis://:secret@[::1]:7000/", address("tcp:[::1]:7000", None, Some("secret"), 0)),
            ("redis://[::1]", address("tcp:[::1]:6379", None, None, 0)),
            ("redis+unix:///run/redis.sock?db=4", address("unix:/run/redis.sock", None, None, 4)),
            ("unix://bob:x@/run/redis.sock", address("unix:/run/redis.sock", Some("bob"), Some("x"), 0)),
            ("unix:/run/redis.sock", address("unix:/run/redis.sock", None, None, 0)),
            (tcp, address(tcp, None, None, 0)),
        ] {
            assert!(parse(text).unwrap() == expected, "{text}");
        }
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| parse(text).map(|address| address.endpoint.to_string());
        assert_leads_everywhere(&["redis"], read);
    }

    #[test]
    fn wrong_ones_are_refused_without_their_secrets() {
        for text in [
            "http://h",
            "redis://:hunter2@127.0.0.1/x",
            "rediss://:hunter2@h",
            "redis+unix://:hunter2@run/s",
            "redis+unix:///s?password=hunter2",
            "redis://:hunter2%zz@h",
            "hunter:6379",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error =
            Address::given(Transport::Unix, "redis://:hunter2@127.0.0.1", None).unwrap_err().to_string();
        assert!(error.contains("--unix") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn the_environment_gives_a_password_and_nothing_shows_it() {
        let given = |text: &str| Address::given(Transport::Tcp, text, Some("from-env".into())).unwrap();
        assert_eq!(given("redis://127.0.0.1").password.as_deref(), Some("from-env"));
        assert_eq!(given("redis://:own@127.0.0.1").password.as_deref(), Some("own"));
        let shown = format!("{:?} {}", given("redis://127.0.0.1/2"), given("redis://127.0.0.1/2"));
        assert_eq!(shown, "tcp:127.0.0.1:6379 db 2 tcp:127.0.0.1:6379 db 2");
    }

    proptest! {
        #[test]
        fn a_url_comes_back(user in ".{0,6}", password in ".{0,9}", database in 0_u32..16, path in "/[^\0]{1,20}") {
            let some = |text: String| Some(text).filter(|text| !text.is_empty());
            let address = Address {
                endpoint: Endpoint::Unix(path.into()), user: some(user), password: some(password), database,
            };
            prop_assume!(!address.endpoint.to_string().contains("unix:@"));
            prop_assert!(parse(&address.to_url()).unwrap() == address);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(redis|redis\\+unix)://.{0,30}") {
            let _ = parse(&text);
        }
    }
}
