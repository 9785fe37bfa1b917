//! Address and login of a PostgreSQL server, from a URL or a plain endpoint. The password goes to the server
//! only; formatting an address never shows it.

use std::fmt;
use std::path::Path;

use samehost_login::Destination;
use samehost_login::postgres::{Defaults, Login, SslMode, password_for};
use samehost_login::url::{ServerUrl, escape, login, unescape};
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_services::scheme;

use crate::error::BenchError;
use crate::workloads::foreign::require_transport;

const FORMS: &str = "write postgres://[USER[:PASSWORD]@]127.0.0.1:5432[/DB], postgres:///DB?host=/DIRECTORY[&port=5432][&user=USER] or a plain endpoint (tcp:127.0.0.1:5432, unix:/DIRECTORY/.s.PGSQL.5432)";
const DEFAULT_PORT: u16 = 5432;

/// A server and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) sslmode: SslMode,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} database {}", self.endpoint, self.database)
    }
}

impl Address {
    /// Parses what the command line gave for a transport. A password that is missing in the URL comes from
    /// PGPASSWORD or the password file, as in libpq.
    pub(super) fn given(transport: Transport, text: &str, defaults: &Defaults) -> Result<Self, BenchError> {
        let mut address = parse(text, defaults)?;
        if address.endpoint.transport() == Transport::Tcp && transport == Transport::TcpTls {
            address = address.over_tls();
        }
        require_transport(transport, &address.endpoint)?;
        if address.password.is_none() {
            let (host, port) = address.host_and_port();
            address.password =
                password_for(&Login { host: &host, port, database: &address.database, user: &address.user });
        }
        Ok(address)
    }

    /// The same server over TLS.
    pub(super) fn over_tls(&self) -> Self {
        let endpoint = match &self.endpoint {
            Endpoint::Tcp { host, port } => Endpoint::TcpTls { host: host.clone(), port: *port },
            other => other.clone(),
        };
        Address { endpoint, sslmode: SslMode::Require, ..self.clone() }
    }

    /// Host or directory, and port, as in password files.
    fn host_and_port(&self) -> (String, u16) {
        match &self.endpoint {
            Endpoint::Unix(path) => {
                let directory = path.parent().unwrap_or(Path::new("/")).display().to_string();
                (directory, socket_port(path).unwrap_or(DEFAULT_PORT))
            }
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } => (host.clone(), *port),
            _ => (String::new(), DEFAULT_PORT),
        }
    }

    /// This address as a URL with its secrets: for use inside this program only.
    pub(super) fn to_url(&self) -> String {
        let login = login(Some(&self.user), self.password.as_deref());
        let database = escape(&self.database).replace('/', "%2F");
        match &self.endpoint {
            Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                format!("postgres://{login}{host}:{port}/{database}?sslmode={}", self.sslmode.name())
            }
            // The full path of the socket, whatever its name.
            Endpoint::Unix(path) => {
                format!("postgres://{login}/{database}?socket={}", escape(&path.display().to_string()))
            }
            other => other.to_string(),
        }
    }
}

/// Port in the name of a socket.
fn socket_port(path: &Path) -> Option<u16> {
    path.file_name()?.to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok()
}

fn socket_in(directory: &str, port: u16) -> String {
    format!("unix:{}/.s.PGSQL.{port}", directory.trim_end_matches('/'))
}

fn wrong(reason: &str) -> BenchError {
    BenchError::Usage(format!("{reason}; {FORMS}"))
}

fn parse(text: &str, defaults: &Defaults) -> Result<Address, BenchError> {
    let database = || defaults.database.clone().unwrap_or_else(|| defaults.user.clone());
    let Some(url) = ServerUrl::parse(text) else {
        let mut endpoint: Endpoint = text.parse()?;
        if let Endpoint::Unix(path) = &endpoint
            && path.is_dir()
        {
            endpoint = socket_in(&path.display().to_string(), DEFAULT_PORT).parse()?;
        }
        return Ok(Address {
            endpoint,
            sslmode: SslMode::default(),
            user: defaults.user.clone(),
            password: None,
            database: database(),
        });
    };
    let url = url.map_err(|reason| wrong(&reason))?;
    if !matches!(scheme(&url.scheme), Some((Protocol::Postgres, _))) {
        return Err(wrong(&format!("`{}://` is not a URL of PostgreSQL", url.scheme.escape_debug())));
    }
    let options = Options::read(&url.options)?;
    let endpoint = Destination::of(&url).map_err(|error| wrong(&error.to_string()))?.endpoint;
    let (_, named) = url.place.split_once('/').unwrap_or_default();
    let named = unescape(named).ok_or_else(|| wrong("a wrong `%` in the database's name"))?;
    let user = url.user.or(options.user).unwrap_or_else(|| defaults.user.clone());
    let database = Some(named)
        .filter(|name| !name.is_empty())
        .or(options.database)
        .or_else(|| defaults.database.clone())
        .unwrap_or_else(|| user.clone());
    Ok(Address { endpoint, sslmode: options.sslmode, user, password: url.password, database })
}

#[derive(Default)]
struct Options {
    user: Option<String>,
    database: Option<String>,
    sslmode: SslMode,
}

impl Options {
    fn read(given: &[(String, String)]) -> Result<Self, BenchError> {
        let mut options = Options::default();
        for (name, value) in given {
            match name.as_str() {
                // Belong to the address, which is parsed elsewhere.
                "host" | "socket" | "port" => {}
                "user" => options.user = Some(value.clone()),
                "dbname" => options.database = Some(value.clone()),
                "sslmode" => {
                    options.sslmode = match value.as_str() {
                        "disable" => SslMode::Disable,
                        "allow" | "prefer" => SslMode::Prefer,
                        "require" => SslMode::Require,
                        _ => {
                            return Err(wrong(
                                "sslmode is disable, prefer or require: certificates of servers on this machine are not verified",
                            ));
                        }
                    }
                }
                "password" => {
                    return Err(wrong(
                        "a password among the options would stand in the report; write USER:PASSWORD@, or use PGPASSWORD or ~/.pgpass",
                    ));
                }
                // Options for other clients that have no effect here.
                "application_name" | "connect_timeout" | "client_encoding" => {}
                _ => return Err(wrong("options after `?` are host, port, user, dbname and sslmode")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn parsed(text: &str) -> Result<Address, BenchError> {
        parse(text, &Defaults { user: "me".into(), database: None })
    }

    fn address(endpoint: &str, user: &str, password: Option<&str>, database: &str) -> Address {
        Address {
            endpoint: endpoint.parse().unwrap(),
            sslmode: SslMode::Disable,
            user: user.into(),
            password: password.map(str::to_owned),
            database: database.into(),
        }
    }

    #[test]
    fn urls_say_what_their_users_mean() {
        for (text, expected) in [
            ("postgres://127.0.0.1", address("tcp:127.0.0.1:5432", "me", None, "me")),
            ("postgresql://bob:p%40s@[::1]:6000/shop", address("tcp:[::1]:6000", "bob", Some("p@s"), "shop")),
            (
                "postgres:///shop?host=/run/pg&port=6000&user=bob",
                address("unix:/run/pg/.s.PGSQL.6000", "bob", None, "shop"),
            ),
            ("postgres://bob@%2Frun%2Fpg:6000/", address("unix:/run/pg/.s.PGSQL.6000", "bob", None, "bob")),
            ("postgres://bob@/shop?host=127.0.0.1", address("tcp:127.0.0.1:5432", "bob", None, "shop")),
            ("unix:/run/pg/.s.PGSQL.6000", address("unix:/run/pg/.s.PGSQL.6000", "me", None, "me")),
            ("tcp:127.0.0.1:6000", address("tcp:127.0.0.1:6000", "me", None, "me")),
        ] {
            assert!(parsed(text).unwrap() == expected, "{text}: {:?}", parsed(text));
        }
        let required = parsed("postgres://h/d?sslmode=require").unwrap();
        assert_eq!(required.sslmode, SslMode::Require);
        assert_eq!(required.over_tls().endpoint.to_string(), "tcp+tls:h:5432");
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| parsed(text).map(|address| address.endpoint.to_string());
        assert_leads_everywhere(&["postgres"], read);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, word) in [
            ("mysql://:hunter2@h/", "not a URL of PostgreSQL"),
            ("postgres://u:hunter2@h:x/", "not a port number"),
            ("postgres://u:hunter2@h/?sslmode=verify-full", "sslmode"),
            ("postgres://u@h/?password=hunter2", "PGPASSWORD"),
            ("postgres://u:hunter2@a,b/", "one host"),
            ("postgres://u:hunter2@h/?what=1", "options"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("hunter2"), "{error}");
        }
        let defaults = Defaults { user: "me".into(), database: None };
        let error = Address::given(Transport::Unix, "postgres://h", &defaults).unwrap_err().to_string();
        assert!(error.contains("--unix names"), "{error}");
    }

    #[test]
    fn nothing_shows_a_password() {
        let address = address("tcp:127.0.0.1:5432", "u", Some("hunter2"), "d");
        assert_eq!(format!("{address:?} {address}"), [address.to_string(), address.to_string()].join(" "));
        assert!(!address.to_string().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn a_url_comes_back(
            user in "[^\0]{1,6}",
            password in "[^\0]{0,9}",
            database in "[^\0]{1,9}",
            path in "/[a-z%?&= @]{1,20}",
            is_unix in any::<bool>(),
        ) {
            let endpoint = if is_unix { format!("unix:{path}") } else { "tcp:[::1]:7".into() };
            let password = Some(password.as_str()).filter(|password| !password.is_empty());
            let address = address(&endpoint, &user, password, &database);
            prop_assert!(parsed(&address.to_url()).unwrap() == address);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(postgres|postgresql)://.{0,30}") {
            let _ = parsed(&text);
        }
    }
}
