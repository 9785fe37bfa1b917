//! How a client in a container names its database server.

use std::collections::BTreeMap;

use samehost_model::{Endpoint, Protocol, Secret, percent_decoded};

use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::languages::url::{self, Url, is_plain_path};
use crate::lines::has_only;
use crate::refusal::Reason;
use crate::setting::Setting;
use crate::spelling::Spelling;

/// What a container's program gets: its image without registry and tag, and its variables.
#[derive(Debug, Default)]
pub(super) struct Client {
    image: Option<String>,
    /// No value where that is filled in elsewhere.
    values: Vec<Option<String>>,
    named: BTreeMap<String, Vec<usize>>,
}

impl Client {
    pub(super) fn new<'a>(
        image: Option<&str>,
        variables: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Self {
        let mut client = Client { image: image.map(str::to_owned), ..Client::default() };
        for (name, value) in variables {
            client.named.entry(name.to_owned()).or_default().push(client.values.len());
            client.values.push(value.map(str::to_owned));
        }
        client
    }

    /// The place of a variable that is set once.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        match self.named.get(name)?.as_slice() {
            [place] => Some(*place),
            _ => None,
        }
    }

    /// The value of a variable that is set once.
    fn value(&self, name: &str) -> Option<Option<&str>> {
        Some(self.values[self.place(name)?].as_deref())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.value(name).flatten().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn has_any(&self, prefix: &str) -> bool {
        let mut from = self.named.range(prefix.to_owned()..);
        from.next().is_some_and(|(name, _)| name.starts_with(prefix))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// WordPress: `db:3306`, or `localhost:/path`.
    WordPress,
    /// A variable for the socket beside the host, which stays.
    Beside(&'static Beside),
    /// PostgreSQL's directory instead of the host, with the name of the port's variable.
    Directory(&'static str),
    Url(Spelling),
}

/// Variables beside that of a host, of a program that takes the socket where both are set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Beside {
    port: &'static str,
    socket: &'static str,
    login: [&'static str; 3],
}

const LARAVEL: &Beside =
    &Beside { port: "DB_PORT", socket: "DB_SOCKET", login: ["DB_USERNAME", "DB_PASSWORD", "DB_DATABASE"] };
/// Ghost passes all of `database__connection__*` on to mysql2, which prefers `socketPath`.
const GHOST: &Beside = &Beside {
    port: "database__connection__port",
    socket: "database__connection__socketPath",
    login: ["database__connection__user", "database__connection__password", "database__connection__database"],
};

impl Words {
    fn login(self) -> [&'static str; 3] {
        match self {
            Words::WordPress => ["WORDPRESS_DB_USER", "WORDPRESS_DB_PASSWORD", "WORDPRESS_DB_NAME"],
            Words::Beside(beside) => beside.login,
            Words::Directory("PGPORT") => ["PGUSER", "PGPASSWORD", "PGDATABASE"],
            Words::Directory(_) => LARAVEL.login,
            Words::Url(_) => [""; 3],
        }
    }
}

/// The host in a value: of a URL, of `host:port`, or the value itself; a path if it names a socket.
pub(super) fn host_of(value: &str) -> Option<String> {
    if let Some(url) = Url::parse(value) {
        let mut names = ["socket", "unix_socket", "host"].iter();
        let named = names.find_map(|name| url.parameter(name).ok().flatten());
        let host = percent_decoded(&url.host)?;
        return match named {
            Some(path) if path.starts_with('/') => Some(path.to_owned()),
            _ => Some(host),
        };
    }
    if let Some(path) = value.strip_prefix("localhost:").filter(|path| path.starts_with('/')) {
        return Some(path.to_owned());
    }
    if value.starts_with('/') {
        return Some(value.to_owned());
    }
    let host = value.split(':').next().unwrap_or(value);
    if host.is_empty() || !has_only(host, "._-") { None } else { Some(host.to_owned()) }
}

/// A connection with what its value, and the variables beside it, say of the login and of encryption.
pub(super) fn with_login(client: &Client, words: Words, setting: Setting) -> Setting {
    let url = Url::parse(&setting.written).filter(|_| matches!(words, Words::Url(_)));
    let (user, password, database) = match &url {
        Some(url) => (url.user(), url.password(), url.database()),
        None => {
            let [user, password, database] = words.login().map(|name| client.text(name));
            (user, password.map(Secret::new), database)
        }
    };
    let library = match words {
        Words::WordPress => Library::Mysqlnd,
        Words::Beside(beside) if beside == LARAVEL => Library::Mysqlnd,
        Words::Directory("DB_PORT") | Words::Url(Spelling::EncodedHost) => Library::Libpq,
        _ => Library::Unknown,
    };
    let mut names: Vec<&str> = vec!["MYSQL_ATTR_SSL_CA"];
    if setting.protocol == Protocol::Postgres {
        names = LIBPQ_WORDS.iter().map(|(_, variable)| *variable).collect();
    }
    let mut asked = url.as_ref().map(|url| url.words(&setting.file, setting.line)).unwrap_or_default();
    for name in names {
        asked.extend(client.text(name).map(|value| Word::new(name, value, &setting.file, setting.line)));
    }
    let shown = url.map_or(setting.written, |url| url.shown());
    Setting { written: shown, user, password, database, library, words: asked, ..setting }
}

/// How a client reads a variable; `None` if that is not known.
pub(super) fn words(client: &Client, name: &str, value: &str, protocol: Protocol) -> Option<Words> {
    let mysql = protocol == Protocol::Mysql;
    let image = client.image.as_deref();
    match name {
        "WORDPRESS_DB_HOST" if mysql && image == Some("wordpress") => Some(Words::WordPress),
        "PGHOST" if !mysql && client.value("PGHOSTADDR").is_none() => Some(Words::Directory("PGPORT")),
        "DB_HOST" => match client.value("DB_CONNECTION").flatten() {
            Some("mysql" | "mariadb") if mysql => Some(Words::Beside(LARAVEL)),
            Some("pgsql") if !mysql => Some(Words::Directory("DB_PORT")),
            _ => None,
        },
        "database__connection__host" if mysql && image == Some("ghost") => {
            let with = client.value("database__client").flatten();
            matches!(with, Some("mysql" | "mysql2")).then_some(Words::Beside(GHOST))
        }
        "DATABASE_URL" => {
            // Only Rails has these schemes, or its own variables beside it.
            let scheme = Url::parse(value)?.scheme;
            let rails = client.has_any("RAILS_");
            match scheme.as_str() {
                "mysql2" | "trilogy" if mysql => Some(Words::Url(Spelling::Parameter("socket"))),
                "postgres" | "postgresql" if rails && !mysql => Some(Words::Url(Spelling::EncodedHost)),
                _ => None,
            }
        }
        _ => None,
    }
}

pub(super) fn endpoint(
    client: &Client,
    words: Words,
    value: &str,
    protocol: Protocol,
) -> Result<Endpoint, Reason> {
    const UNUSUAL: &str = "its host or port is unusual";
    let usual = url::usual_port(protocol);
    let path = |path: &str| if is_plain_path(path) { Some(Endpoint::Unix(path.into())) } else { None };
    let endpoint = match words {
        Words::WordPress => match value.strip_prefix("localhost:").filter(|rest| rest.starts_with('/')) {
            Some(socket) => path(socket),
            None => {
                let (host, port) = value.split_once(':').unwrap_or((value, "3306"));
                url::tcp(host, port.parse().map_err(|_| UNUSUAL)?)
            }
        },
        Words::Beside(beside) => {
            let socket = client.value(beside.socket);
            if socket == Some(None) {
                return Err("the variable of its socket is filled in".into());
            }
            let port = port(client, beside.port, usual)?;
            match socket.flatten().filter(|socket| !socket.is_empty()) {
                Some(socket) => path(socket),
                None => url::tcp(value, port),
            }
        }
        Words::Directory(name) => {
            let port = port(client, name, usual)?;
            if value.starts_with('/') { url::postgres_path(value, port) } else { url::tcp(value, port) }
        }
        Words::Url(spelling) => Some(spelling.read(&Url::parse(value).ok_or(UNUSUAL)?)?.endpoint),
    };
    endpoint.ok_or(UNUSUAL.into())
}

/// The variables that lead a client to an endpoint as it sees it, with their values; `name` and `value` are those of the
/// variable that leads it there now.
pub(super) fn written<'a>(
    client: &Client,
    words: Words,
    (name, value): (&'a str, &str),
    protocol: Protocol,
    to: &Endpoint,
) -> Result<Vec<(&'a str, String)>, Reason> {
    let usual = url::usual_port(protocol);
    Ok(match (words, to) {
        (Words::WordPress, Endpoint::Unix(path)) => vec![(name, format!("localhost:{}", path.display()))],
        (Words::WordPress, Endpoint::Tcp { host, port }) => vec![(name, format!("{host}:{port}"))],
        (Words::Beside(beside), Endpoint::Unix(path)) => vec![(beside.socket, path.display().to_string())],
        (Words::Beside(_), Endpoint::Tcp { .. }) => {
            return Err("the variable of its socket counts before the host: take that line away".into());
        }
        (Words::Directory(of_port), Endpoint::Unix(path)) => {
            let path = path.display().to_string();
            let directory = path.strip_suffix(&format!("/.s.PGSQL.{}", port(client, of_port, usual)?));
            let directory = directory.ok_or("its port is a part of the socket's name, and another one")?;
            vec![(name, directory.to_owned())]
        }
        (Words::Directory(of_port), Endpoint::Tcp { host, port: wanted }) => {
            let mut both = vec![(name, host.clone())];
            if port(client, of_port, usual)? != *wanted {
                both.push((of_port, wanted.to_string()));
            }
            both
        }
        (Words::Url(spelling), _) => {
            let url = Url::parse(value).ok_or("its URL is unusual")?;
            vec![(name, spelling.write(&url, to)?.text())]
        }
        _ => return Err("only a Unix socket or plain TCP can be written here".into()),
    })
}

pub(super) fn port(client: &Client, name: &str, usual: u16) -> Result<u16, Reason> {
    match client.value(name) {
        Some(value) => {
            let text = value.ok_or("its port is filled in")?;
            text.parse().map_err(|_| "its port is not a number".into())
        }
        None if client.named.contains_key(name) => Err("its port stands there twice".into()),
        None => Ok(usual),
    }
}
