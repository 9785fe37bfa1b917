//! What drivers take in place of a URL: names with values. libpq's `host=127.0.0.1 port=5432`, `mysql:host=…;port=…` of PDO and DBI,
//! ADO.NET's `Server=…;Uid=…`, `127.0.0.1:6379,defaultDatabase=5`, and what programs write: `{ host: '…', port: 6379 }`,
//! `connect(host="…")`, `['host' => '…']`. Each is rewritten as the URL that says the same.

use samehost_model::percent_encoded as escape;
use samehost_services::{Kind, Protocol, languages, scheme};

/// What a value is, and how the names end that have it, in small letters and without signs.
const NAMES: &[(&str, &[&str])] = &[
    ("user", &["user", "username", "userid", "uid"]),
    ("password", &["password", "passwd", "pwd", "pass"]),
    ("socket", &["socket", "socketpath"]),
    ("database", &["database", "dbname", "databasename", "catalog", "db"]),
    ("host", &["host", "hostname", "hostaddr", "server", "datasource", "address", "addr"]),
    ("port", &["port"]),
    ("driver", &["driver", "dialect", "adapter", "engine", "client", "connection"]),
];

#[derive(Default)]
struct Parts {
    values: Vec<(&'static str, String)>,
    /// Options, as they are called.
    others: Vec<(String, String)>,
    /// What may call a driver: `mysql:` before a name, `redis.Redis(`, a command.
    before: String,
    is_of_libpq: bool,
}

/// The URL of the same server, database and login; `None` where no name says the server.
pub(crate) fn as_url(text: &str) -> Option<String> {
    let found = [';', ',', ' '].map(|sign| Parts::of(text, sign));
    let parts = found.into_iter().rev().max_by_key(|parts| parts.values.len())?;
    let hosts: Vec<&str> =
        parts.values.iter().filter(|(what, _)| *what == "host").map(|(_, host)| host.as_str()).collect();
    let several = hosts.join(",");
    let (host, own_port) = match hosts[..] {
        [written] => host_and_port(written),
        [] => (parts.value("socket")?, None),
        _ => (several.as_str(), None),
    };
    let port = own_port.or(parts.value("port"));
    let protocol = parts.protocol(port);
    let name = protocol.map(Protocol::name).filter(|name| scheme(name).is_some()).unwrap_or("tcp");
    let login = match (parts.value("user"), parts.value("password")) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", escape(user?)),
        (user, Some(password)) => format!("{}:{}@", escape(user.unwrap_or_default()), escape(password)),
    };
    let database = escape(parts.value("database").unwrap_or_default());
    // The others are a driver's own.
    let mut options = if parts.is_of_libpq { parts.others.clone() } else { Vec::new() };
    let mut place = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    if let Some(path) = parts.value("socket").or(Some(host).filter(|host| host.starts_with('/'))) {
        let own = format!("{name}+unix");
        match protocol {
            Some(Protocol::Mysql) => options.push(("socket".into(), path.into())),
            Some(Protocol::Postgres) => {
                options.push(("host".into(), path.into()));
                options.extend(port.map(|port| ("port".into(), port.into())));
            }
            _ if scheme(&own).is_some() => return Some(format!("{own}://{login}{path}?db={database}")),
            _ => return Some(format!("unix://{path}")),
        }
        place = if protocol == Some(Protocol::Mysql) { "localhost".into() } else { String::new() };
    }
    let mut url = format!("{name}://{login}{place}/{database}");
    for (at, (name, value)) in options.iter().enumerate() {
        let sign = if at == 0 { '?' } else { '&' };
        url += &format!("{sign}{}={}", escape(name), escape(value));
    }
    Some(url)
}

impl Parts {
    /// The names and values of a text in which this sign stands between them.
    fn of(text: &str, between: char) -> Self {
        let mut parts = Parts { is_of_libpq: between == ' ', ..Parts::default() };
        for part in split(text, between) {
            let Some((name, value)) = pair(part) else {
                parts.before = format!("{} {part}", parts.before);
                continue;
            };
            let (before, name) = name.rsplit_once(['(', '{', '[', ':']).unwrap_or(("", name));
            let value = value.trim_matches(|sign: char| " '\"{}[]()".contains(sign));
            let name = name.trim_matches(|sign: char| " '\"".contains(sign));
            parts.before = format!("{} {before}", parts.before);
            let is_number = value.parse::<u16>().is_ok();
            match what(name) {
                _ if value.is_empty() => {}
                Some("port") if !is_number => {}
                Some("socket") if !value.starts_with('/') => {}
                Some(what) => parts.values.push((what, value.to_owned())),
                // `127.0.0.1:6379` of StackExchange.Redis, whose options follow.
                None if text.contains('=') && is_host(name) && is_number => {
                    parts.values.extend([("host", name.to_owned()), ("port", value.to_owned())]);
                }
                None => parts.others.push((name.to_owned(), value.to_owned())),
            }
        }
        parts
    }

    fn value(&self, what: &str) -> Option<&str> {
        Some(self.values.iter().find(|(own, _)| *own == what)?.1.as_str())
    }

    /// What is spoken there: as the driver says, or the words before a name; else at the usual port of a server.
    fn protocol(&self, port: Option<&str>) -> Option<Protocol> {
        let words = self.value("driver").unwrap_or_default().to_owned() + " " + &self.before;
        let named = words.split(|sign: char| !sign.is_ascii_alphanumeric()).find_map(called);
        let port: Option<u16> = port.and_then(|port| port.parse().ok());
        let at_port = || Kind::all().find(|kind| kind.descriptor().ports.first() == port.as_ref());
        let by_spelling = self.is_of_libpq.then_some(Protocol::Postgres);
        named.or(by_spelling).or_else(|| at_port()?.protocol())
    }
}

/// What the value of a name is, of [`NAMES`].
fn what(name: &str) -> Option<&'static str> {
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let is_called = |ends: &[&str]| ends.iter().any(|end| plain.ends_with(end));
    let found = NAMES.iter().find(|(_, ends)| is_called(ends) && !is_host(name));
    found.map(|(what, _)| *what)
}

/// A name and its value: `host=`, `'host' =>`, `host:`.
fn pair(part: &str) -> Option<(&str, &str)> {
    let signs = ["=>", "=", ":"];
    signs.iter().find_map(|sign| part.split_once(sign))
}

/// The parts of a text between a sign, where no quote is open.
fn split(text: &str, between: char) -> Vec<&str> {
    let mut quote = None;
    let is_between = |sign: char| {
        match quote {
            Some(open) if open == sign => quote = None,
            None if sign == '\'' || sign == '"' => quote = Some(sign),
            _ => {}
        }
        quote.is_none() && sign == between
    };
    text.split(is_between).map(str::trim).collect()
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// A host, and the port behind it: `127.0.0.1:3306`, ADO.NET's `127.0.0.1,3306`.
fn host_and_port(written: &str) -> (&str, Option<&str>) {
    match written.rsplit_once([':', ',']) {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => (host, Some(port)),
        _ => (written, None),
    }
}

/// What is spoken by what a word calls: a service, or a client of one protocol alone.
fn called(word: &str) -> Option<Protocol> {
    if let Some(kind) = Kind::called(&word.to_ascii_lowercase()) {
        return kind.protocol();
    }
    let clients = languages().iter().flat_map(|language| &language.clients);
    let mut found = clients.filter(|client| client.is_called(word)).map(|client| client.protocol);
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_take_is_the_url_that_says_the_same() {
        for (text, url) in [
            (
                "host=127.0.0.1 port=5499 dbname=shop user=fern connect_timeout=5",
                "postgres://fern@127.0.0.1:5499/shop?connect_timeout=5",
            ),
            ("host=/run/cases/pg port=5499 dbname=shop", "postgres:///shop?host=/run/cases/pg&port=5499"),
            ("mysql:host=127.0.0.1;port=3399;dbname=ledger", "mysql://127.0.0.1:3399/ledger"),
            ("mysql:unix_socket=/run/m.sock;dbname=ledger", "mysql://localhost/ledger?socket=/run/m.sock"),
            (
                "pgsql:host=127.0.0.1;dbname=shop;user=fern;password=a b",
                "postgres://fern:a%20b@127.0.0.1/shop",
            ),
            ("DBI:mysql:database=ledger;host=127.0.0.1;port=3399", "mysql://127.0.0.1:3399/ledger"),
            (
                "Server=127.0.0.1;Port=3306;Database=ledger;Uid=moss;Pwd=x;SslMode=none",
                "mysql://moss:x@127.0.0.1:3306/ledger",
            ),
            (
                "Data Source=127.0.0.1,3306;Initial Catalog=ledger;User Id=moss",
                "mysql://moss@127.0.0.1:3306/ledger",
            ),
            (
                "Host=127.0.0.1;Port=5432;Username=fern;Database=shop;Pooling=true",
                "postgres://fern@127.0.0.1:5432/shop",
            ),
            ("Server=127.0.0.1;Port=3399;Database=ledger", "tcp://127.0.0.1:3399/ledger"),
            ("127.0.0.1:6379,defaultDatabase=5,password=x", "redis://:x@127.0.0.1:6379/5"),
            ("{ host: '127.0.0.1', port: 6379, db: 5 }", "redis://127.0.0.1:6379/5"),
            (
                "{\"client\": \"pg\", \"host\": \"127.0.0.1\", \"port\": 5499, \"database\": \"shop\"}",
                "postgres://127.0.0.1:5499/shop",
            ),
            ("redis.Redis(host=\"127.0.0.1\", port=6390, db=5)", "redis://127.0.0.1:6390/5"),
            (
                "pymysql.connect(host='127.0.0.1', port=3399, user='moss', db='a,b')",
                "mysql://moss@127.0.0.1:3399/a%2Cb",
            ),
            (
                "['ENGINE' => 'django.db.backends.mysql', 'HOST' => '127.0.0.1', 'PORT' => '3399']",
                "mysql://127.0.0.1:3399/",
            ),
            (
                "DB_CONNECTION=mysql DB_HOST=127.0.0.1 DB_PORT=3399 DB_DATABASE=ledger",
                "mysql://127.0.0.1:3399/ledger",
            ),
            ("127.0.0.1:6379,127.0.0.1:6380,defaultDatabase=5", "redis://127.0.0.1,127.0.0.1:6379/5"),
            ("mysql --host=127.0.0.1 --port=3399 --user=moss ledger", "mysql://moss@127.0.0.1:3399/"),
        ] {
            assert_eq!(as_url(text).as_deref(), Some(url), "{text}");
        }
        for text in
            ["127.0.0.1:6379", "unix:/run/a=b", "localhost:11211,localhost:11212", "nginx", "", "a=b c=d"]
        {
            assert_eq!(as_url(text), None, "{text}");
        }
    }
}
