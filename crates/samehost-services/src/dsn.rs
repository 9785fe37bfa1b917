//! What drivers take in place of a URL: names with values. libpq's `host=127.0.0.1 port=5432`, `mysql:host=…;port=…` of PDO and DBI,
//! ADO.NET's `Server=…;Uid=…`, `127.0.0.1:6379,defaultDatabase=5`, and what programs write: `{ host: '…', port: 6379 }`,
//! `connect(host="…")`, `['host' => '…']`.

use crate::{Kind, Protocol, languages};

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

/// Signs of which one kind stands between the names of a text, the likeliest last: of a query, of JDBC's descriptions, of libpq.
const BETWEEN: &[&[char]] = &[&['?', '&'], &['(', ')'], &[' '], &[','], &[';']];

/// The names and values of a text.
#[derive(Debug, Default)]
pub struct Dsn {
    values: Vec<(&'static str, String)>,
    /// Hosts whose names say so and nothing else: `host`, and not `DB_HOST`.
    pub hosts: Vec<String>,
    /// How many names say what their value is and nothing else.
    whole: usize,
    /// Options, as they are called.
    pub others: Vec<(String, String)>,
    /// What may call a driver: `mysql:` before a name, `redis.Redis(`, a command.
    before: String,
    pub is_of_libpq: bool,
}

impl Dsn {
    /// Reads a text by the signs with which the most is found.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = text.replace(" =", "=").replace("= ", "=");
        let found = BETWEEN.iter().map(|signs| Dsn::between(&text, signs));
        found.max_by_key(|dsn| (dsn.values.len(), dsn.whole)).unwrap_or_default()
    }

    /// The names and values of a text in which one of these signs stands between them.
    fn between(text: &str, signs: &[char]) -> Self {
        let mut parts = Dsn { is_of_libpq: signs == [' '], ..Dsn::default() };
        for part in split(text, signs) {
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
                Some(("port", false)) if !is_number => {}
                Some(("socket", _)) if !value.starts_with('/') => {}
                Some((what, is_whole)) => {
                    parts.whole += usize::from(is_whole);
                    parts.hosts.extend((what == "host" && is_whole).then(|| value.to_owned()));
                    parts.values.push((what, value.to_owned()));
                }
                // `127.0.0.1:6379` of StackExchange.Redis, whose options follow.
                None if text.contains('=') && is_host(name) && is_number => {
                    parts.values.extend([("host", name.to_owned()), ("port", value.to_owned())]);
                }
                None => parts.others.push((name.to_owned(), value.to_owned())),
            }
        }
        parts
    }

    /// The first value of a kind: `user`, `password`, `socket`, `database`, `host`, `port`, `driver`.
    #[must_use]
    pub fn value(&self, what: &str) -> Option<&str> {
        self.all(what).next()
    }

    pub fn all(&self, what: &str) -> impl Iterator<Item = &str> {
        self.values.iter().filter(move |(own, _)| *own == what).map(|(_, value)| value.as_str())
    }

    /// What is spoken there: as the driver says, or the words before a name; else at the usual port of a server.
    #[must_use]
    pub fn protocol(&self, port: Option<&str>) -> Option<Protocol> {
        let words = self.value("driver").unwrap_or_default().to_owned() + " " + &self.before;
        let named = words.split(|sign: char| !sign.is_ascii_alphanumeric()).find_map(called);
        let port: Option<u16> = port.and_then(|port| port.parse().ok());
        let at_port = || Kind::all().find(|kind| kind.descriptor().ports.first() == port.as_ref());
        let by_spelling = self.is_of_libpq.then_some(Protocol::Postgres);
        named.or(by_spelling).or_else(|| at_port()?.protocol())
    }
}

/// What the value of a name is, of [`NAMES`], and whether the name says nothing else.
fn what(name: &str) -> Option<(&'static str, bool)> {
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let is_called = |ends: &[&str]| ends.iter().any(|end| plain.ends_with(end));
    let (what, ends) = NAMES.iter().find(|(_, ends)| is_called(ends) && !is_host(name))?;
    Some((what, ends.contains(&plain.as_str())))
}

/// A name and its value: `host=`, `'host' =>`, `host:`.
fn pair(part: &str) -> Option<(&str, &str)> {
    let signs = ["=>", "=", ":"];
    signs.iter().find_map(|sign| part.split_once(sign))
}

/// The parts of a text between signs, where no quote is open.
fn split<'a>(text: &'a str, signs: &[char]) -> Vec<&'a str> {
    let mut quote = None;
    let is_between = |sign: char| {
        match quote {
            Some(open) if open == sign => quote = None,
            None if sign == '\'' || sign == '"' => quote = Some(sign),
            _ => {}
        }
        quote.is_none() && signs.contains(&sign)
    };
    text.split(is_between).map(str::trim).collect()
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
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
