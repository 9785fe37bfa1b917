//! Django's settings.py, if its databases, caches and brokers (Celery's) are literals, or defaults of variables. Other code is not
//! examined.

mod literal;

use std::ops::Range;
use std::path::Path;

use literal::{OF_A_URL, Source, Value, line};
use samehost_model::{Endpoint, Protocol, Secret};
use tree_sitter::Node;

use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::budget::Metered;
use crate::editor::{Editor, asks_for};
use crate::files::{Edit, Files, minimal};
use crate::formats::dotenv;
use crate::languages::url::{self, Url, is_plain_path, postgres_directory, postgres_path};
use crate::lines;
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};
use crate::spelling::{Spelling, of_one};

#[derive(Debug)]
pub struct Django;

/// Settings of Celery that are one URL.
const BROKERS: &[&str] = &["CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "BROKER_URL"];

const DATABASE_BY_HAND: &str = "'HOST': '/run/mysqld/mysqld.sock' (PostgreSQL: 'HOST': '/run/postgresql')";

impl Editor for Django {
    fn name(&self) -> &'static str {
        "django"
    }

    fn about(&self) -> &'static str {
        "Django's settings.py, where it is written out"
    }

    fn names(&self) -> &'static [&'static str] {
        &[
            "settings.py",
            "config/settings.py",
            "config/settings/production.py",
            "config/settings/base.py",
            "project/settings.py",
            "local_settings.py",
        ]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let is_python = path.extension().is_some_and(|extension| extension == "py");
        let mut names = ["DATABASES", "CACHES"].iter().chain(BROKERS);
        is_python && names.any(|name| text.windows(name.len()).any(|window| window == name.as_bytes()))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let settings = Settings::open(file, files)?;
        let (found, refused) = settings.found();
        Ok(Reading { settings: found.into_iter().map(|found| found.setting).collect(), refused })
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let settings = Settings::open(file, files)?;
        let found = setting.find(settings.found().0, |found| &found.setting)?;
        if found.setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        settings.write(&found, &goal.endpoint).map_err(|why| {
            let reason = format!("{}: {why}", found.setting.name);
            let by_hand = by_hand(&found.setting, &goal.endpoint);
            Refusal::new(file, found.setting.line, reason, by_hand)
        })
    }

    fn is_beaten_by(&self, text: &str, variable: &str) -> bool {
        variable == "DATABASE_URL" && text.contains(OF_A_URL) || asks_for(text, variable)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartApplication
    }
}

struct Found {
    setting: Setting,
    how: How,
}

enum How {
    /// HOST and PORT: the range inside the host's quotes, the port's range and whether it exists, and the position for
    /// a new port.
    Host {
        host: Range<usize>,
        port: Option<Range<usize>>,
        after: usize,
        quote: char,
    },
    Url(Spelling, String, Range<usize>),
    Memcached(&'static str, Range<usize>),
    Option(Range<usize>),
}

struct Settings<'a> {
    file: &'a Path,
    files: &'a Metered<'a>,
    source: Source,
}

impl<'a> Settings<'a> {
    fn open(file: &'a Path, files: &'a Metered<'a>) -> Result<Self> {
        let text = lines::read(file, files).map_err(|refusal| refusal.by_hand(DATABASE_BY_HAND))?;
        let source = Source::parse(text)
            .map_err(|line| Refusal::new(file, line, "it is not understood as Python", DATABASE_BY_HAND))?;
        Ok(Settings { file, files, source })
    }

    fn found(&self) -> (Vec<Found>, Vec<Refusal>) {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        let mut take = |result: Result<Option<Found>>| match result {
            Ok(one) => found.extend(one),
            Err(refusal) => refused.push(refusal.in_file(self.file)),
        };
        for name in ["DATABASES", "CACHES"] {
            match self.aliases(name) {
                Err(refusal) => take(Err(refusal)),
                Ok(aliases) => {
                    for (alias, value) in aliases {
                        take(match name {
                            "CACHES" => self.cache(&alias, value),
                            _ => self.database(&alias, value),
                        });
                    }
                }
            }
        }
        for name in BROKERS {
            take(self.broker(name));
        }
        found.sort_by_key(|found| found.setting.line);
        refused.sort_by_key(|refusal| refusal.line);
        (found, refused)
    }

    fn aliases(&self, name: &str) -> Result<Vec<(String, Node<'_>)>> {
        let Some(value) = self.only(name)? else { return Ok(Vec::new()) };
        match self.source.value(value) {
            Value::Dict(aliases) => Ok(aliases),
            _ => self.code(name, value),
        }
    }

    /// The refusal of a value that code computes, by the words in it.
    fn code<T>(&self, name: &str, value: Node<'_>) -> Result<T> {
        let written = self.source.written(value);
        let from_environment =
            ["env", "config(", "getenv", "dj_database_url"].iter().any(|word| written.contains(word));
        let (reason, by_hand) = if from_environment {
            (
                format!("{name} comes from the environment"),
                if name.ends_with("HOST") {
                    "there, or as the default here: the path of the socket (PostgreSQL: the socket's directory)"
                } else {
                    "in the environment of the application, or its .env: the URL there"
                }
                .to_owned(),
            )
        } else {
            (format!("{name} is made by code"), format!("{name} written out: {DATABASE_BY_HAND}"))
        };
        Err(Refusal::at(line(value), reason).by_hand(by_hand))
    }

    /// What counts of a value that is a variable's default: the default, where no `.env` of the project sets the variable. What the
    /// application's own environment sets is asked of it (`Editor::is_beaten_by`).
    fn or_default<'n>(&'n self, name: &str, node: Node<'n>) -> Result<Node<'n>> {
        let Some((variable, default)) = self.source.given(node) else { return Ok(node) };
        for file in self.file.ancestors().skip(1).take(3).map(|folder| folder.join(".env")) {
            let Ok(text) = self.files.read(&file) else { continue };
            let set = dotenv::variables(&text);
            if set.is_none_or(|set| set.iter().any(|(own, _)| *own == variable)) {
                let reason = format!("{name}: {variable} in .env counts before its default");
                let what = if name.ends_with("HOST") {
                    "the directory of the socket (PostgreSQL) or its path (MySQL)"
                } else {
                    "the socket in its words"
                };
                return Err(
                    Refusal::at(line(node), reason).by_hand(format!("in .env: {variable}= with {what}"))
                );
            }
        }
        Ok(default)
    }

    fn port(&self, name: &str, port: Node<'_>, usual: u16) -> Result<(u16, Option<Range<usize>>)> {
        let port = self.or_default(&format!("{name} PORT"), port)?;
        match self.source.value(port) {
            Value::Text(text, range) if text.is_empty() => Ok((usual, Some(range))),
            Value::Text(text, range) | Value::Number(text, range) => match text.parse() {
                Ok(number) => Ok((number, Some(range))),
                Err(_) => Err(database_refused(name, port, "its PORT is not a number")),
            },
            _ => self.code(&format!("{name} PORT"), port),
        }
    }

    fn socket_option<'n>(
        &'n self,
        name: &str,
        protocol: Protocol,
        options: Node<'n>,
    ) -> Result<Option<Node<'n>>> {
        const BEFORE_HOST: &[&str] =
            &["host", "port", "read_default_file", "service", "hostaddr", "unix_socket", "named_pipe"];
        let Value::Dict(pairs) = self.source.value(options) else {
            return Err(database_refused(name, options, "its OPTIONS are made by code"));
        };
        let mut socket = None;
        for (key, value) in pairs {
            if key == "unix_socket" && protocol == Protocol::Mysql {
                socket = Some(value);
            } else if BEFORE_HOST.contains(&key.as_str()) {
                let reason = format!("{key} in its OPTIONS counts before HOST");
                return Err(database_refused(name, value, &reason));
            }
        }
        Ok(socket)
    }

    fn database(&self, alias: &str, node: Node<'_>) -> Result<Option<Found>> {
        let name = format!("DATABASES {alias}");
        if self.source.is_of_a_url(node) {
            return self.database_url(&name, self.or_default(&name, node)?);
        }
        let Value::Dict(pairs) = self.source.value(node) else { return self.code(&name, node) };
        let protocol = match (value_of(&pairs, "ENGINE"), self.text_of(&pairs, "ENGINE")) {
            (None, _) => return Ok(None),
            (Some(_), None) => return Err(database_refused(&name, node, "its ENGINE is made by code")),
            (Some(_), Some(engine)) => protocol_of(&engine),
        };
        let Some(protocol) = protocol else { return Ok(None) };
        let found = self.database_of(protocol, &name, node, &pairs).map_err(|refusal| {
            let by_hand = of_one(&refusal.by_hand, protocol);
            refusal.by_hand(by_hand)
        })?;
        Ok(Some(found))
    }

    fn database_of(
        &self,
        protocol: Protocol,
        name: &str,
        node: Node<'_>,
        pairs: &[(String, Node<'_>)],
    ) -> Result<Found> {
        let options = value_of(pairs, "OPTIONS");
        let socket = match options {
            Some(options) => self.socket_option(name, protocol, options)?,
            None => None,
        };
        let host_at = value_of(pairs, "HOST");
        let host_at = host_at.map(|host| self.or_default(&format!("{name} HOST"), host)).transpose()?;
        let host = match host_at {
            None => String::new(),
            Some(host) => match self.source.value(host) {
                Value::Text(text, _) => text,
                Value::Nothing => String::new(),
                _ => return self.code(&format!("{name} HOST"), host),
            },
        };
        let (endpoint, written, at, how) = match socket {
            Some(option) => {
                let Value::Text(path, range) = self.source.value(option) else {
                    return self.code(&format!("{name} unix_socket"), option);
                };
                if !(host.is_empty() || host == "localhost") || !is_plain_path(&path) {
                    let reason = "it has a HOST and a unix_socket, or an unusual path";
                    return Err(database_refused(name, option, reason));
                }
                let written = format!("unix_socket: {path}");
                (Endpoint::Unix(path.into()), written, option, How::Option(range))
            }
            None => {
                let at = host_at.unwrap_or(node);
                let (endpoint, how) = self.by_host(name, protocol, pairs, &host, at)?;
                (endpoint, format!("HOST: {host}"), at, how)
            }
        };
        let login = |key: &str| self.text_of(pairs, key).filter(|text| !text.is_empty());
        let setting = Setting {
            // Django connects to PostgreSQL by psycopg, which is libpq.
            library: if protocol == Protocol::Postgres { Library::Libpq } else { Library::Unknown },
            words: self.words(options),
            user: login("USER"),
            password: login("PASSWORD").map(Secret::new),
            database: login("NAME"),
            ..Setting::connects(name, protocol, written, endpoint).at(self.file, line(at))
        };
        Ok(Found { setting, how })
    }

    /// dj_database_url's default: the directory is the host of PostgreSQL's URL, percent-encoded.
    fn database_url(&self, name: &str, at: Node<'_>) -> Result<Option<Found>> {
        let Value::Text(text, range) = self.source.value(at) else { return self.code(name, at) };
        let by_hand = "DATABASE_URL=postgres://USER:PASSWORD@%2Frun%2Fpostgresql/NAME in its environment";
        let refused = |why: &str| Refusal::at(line(at), format!("{name}: {why}")).by_hand(by_hand);
        let parsed = Url::parse(&text).ok_or_else(|| refused("its URL is unusual"))?;
        let (spelling, protocol) = match parsed.protocol() {
            Some(Protocol::Postgres) => (Spelling::EncodedHost, Protocol::Postgres),
            Some(Protocol::Mysql) => (Spelling::Parameter("unix_socket"), Protocol::Mysql),
            _ => return Ok(None),
        };
        let target = spelling.read(&parsed).map_err(|why| refused(&why.to_string()))?;
        let setting = Setting {
            library: if protocol == Protocol::Postgres { Library::Libpq } else { Library::Unknown },
            words: parsed.words(self.file, line(at)),
            user: parsed.user(),
            password: spelling.password(&parsed),
            database: target.database,
            ..Setting::connects(name, protocol, parsed.shown(), target.endpoint).at(self.file, line(at))
        };
        Ok(Some(Found { setting, how: How::Url(spelling, text, range) }))
    }

    /// Where a database's HOST and PORT lead; `at` is the HOST, or the whole entry if it has none.
    fn by_host(
        &self,
        name: &str,
        protocol: Protocol,
        pairs: &[(String, Node<'_>)],
        host: &str,
        at: Node<'_>,
    ) -> Result<(Endpoint, How)> {
        if host.is_empty() || (protocol == Protocol::Mysql && host == "localhost") {
            let reason =
                "without a host (or with `localhost` for MySQL) it is the library's own socket already";
            let own = if protocol == Protocol::Mysql { "/run/mysqld/mysqld.sock" } else { "/run/postgresql" };
            let by_hand = format!("'HOST': '{own}'");
            return Err(Refusal::at(line(at), format!("{name}: {reason}")).by_hand(by_hand));
        }
        let usual = url::usual_port(protocol);
        let (port, port_range) = match value_of(pairs, "PORT") {
            Some(port) => self.port(name, port, usual)?,
            None => (usual, None),
        };
        let Some(endpoint) = endpoint(protocol, host, port) else {
            return Err(database_refused(name, at, "its HOST is unusual"));
        };
        let quote = if self.source.bytes(at).starts_with(b"\"") { '"' } else { '\'' };
        let range = at.start_byte() + 1..at.end_byte() - 1;
        Ok((endpoint, How::Host { host: range, port: port_range, after: at.end_byte(), quote }))
    }

    fn words(&self, options: Option<Node<'_>>) -> Vec<Word> {
        let Some(Value::Dict(pairs)) = options.map(|options| self.source.value(options)) else {
            return Vec::new();
        };
        let mut words = Vec::new();
        for (key, value) in pairs {
            let is_one = key == "ssl" || LIBPQ_WORDS.iter().any(|(parameter, _)| *parameter == key);
            if let Some(text) = self.text(value).filter(|_| is_one) {
                words.push(Word::new(key, text, self.file, line(value)));
            }
        }
        words
    }

    fn text_of(&self, pairs: &[(String, Node<'_>)], key: &str) -> Option<String> {
        self.text(value_of(pairs, key)?)
    }

    fn text(&self, node: Node<'_>) -> Option<String> {
        match self.source.value(node) {
            Value::Text(text, _) => Some(text),
            _ => None,
        }
    }

    fn write(&self, found: &Found, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
        let path = match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                Some(path.ok_or("a path with such characters is not written here")?)
            }
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() => None,
            _ => return Err("only a Unix socket or plain TCP can be written here".into()),
        };
        let edit = |range: &Range<usize>, with: String| Edit::new(self.file, range.clone(), with);
        match (&found.how, to) {
            (How::Url(spelling, text, range), _) => {
                let parsed = Url::parse(text).ok_or("its URL is unusual")?;
                let written = spelling.write(&parsed, to)?.text();
                Ok(minimal(self.file, range.start, text, &written).into_iter().collect())
            }
            (How::Memcached(_, range), Endpoint::Tcp { host, port }) if !host.contains(':') => {
                Ok(vec![edit(range, format!("{host}:{port}"))])
            }
            (How::Memcached(prefix, range), _) => {
                let path = path.ok_or("an IPv6 address is not written here")?;
                Ok(vec![edit(range, format!("{prefix}{path}"))])
            }
            (How::Option(range), _) => {
                let path =
                    path.ok_or("its socket stands in OPTIONS: 'HOST': '127.0.0.1' would count beside it")?;
                Ok(vec![edit(range, path.to_owned())])
            }
            (How::Host { host, port, after, quote }, _) => {
                let protocol = found.setting.protocol;
                let (written, number) = host_and_port(protocol, to, path)?;
                let mut edits = vec![edit(host, written)];
                let Some(number) = number.map(|number| number.to_string()) else { return Ok(edits) };
                let usual = url::usual_port(protocol).to_string();
                match port {
                    Some(range) => {
                        let now = self.source.text.get(range.clone()).unwrap_or_default();
                        let same = now == number.as_bytes() || (now.is_empty() && number == usual);
                        if !same {
                            edits.push(edit(range, number));
                        }
                    }
                    None if number != usual => {
                        let pair = format!(", {quote}PORT{quote}: {quote}{number}{quote}");
                        edits.push(Edit::new(self.file, *after..*after, pair));
                    }
                    None => {}
                }
                Ok(edits)
            }
        }
    }

    fn cache(&self, alias: &str, node: Node<'_>) -> Result<Option<Found>> {
        let name = format!("CACHES {alias}");
        let Value::Dict(pairs) = self.source.value(node) else { return self.code(&name, node) };
        let backend = self.text_of(&pairs, "BACKEND").unwrap_or_default();
        let Some(location) = value_of(&pairs, "LOCATION") else { return Ok(None) };
        let (redis, prefix) = match backend.rsplit('.').next().unwrap_or_default() {
            "RedisCache" if backend.starts_with("django.core.") || backend.starts_with("django_redis.") => {
                (true, "")
            }
            "PyLibMCCache" => (false, ""),
            "PyMemcacheCache" | "MemcachedCache" => (false, "unix:"),
            _ => return Ok(None),
        };
        let value = match self.source.value(location) {
            Value::List(values) => match values.as_slice() {
                [one] => *one,
                _ => {
                    return Err(Refusal::at(line(location), format!("{name} has several servers"))
                        .by_hand("a LOCATION of one server"));
                }
            },
            _ => location,
        };
        let Value::Text(text, range) = self.source.value(value) else {
            return self.code(&format!("{name} LOCATION"), value);
        };
        if redis {
            return self.url(&name, &text, range, Spelling::UnixScheme, value);
        }
        let path = text.strip_prefix("unix:").unwrap_or(&text);
        let endpoint = if path.starts_with('/') {
            is_plain_path(path).then(|| Endpoint::Unix(path.into()))
        } else {
            let (host, port) = text.rsplit_once(':').unwrap_or((&text, "11211"));
            port.parse().ok().and_then(|port| url::tcp(host.trim_matches(['[', ']']), port))
        };
        let Some(endpoint) = endpoint else {
            let by_hand = format!("'LOCATION': '{prefix}/run/memcached/memcached.sock'");
            return Err(Refusal::at(line(value), format!("{name}: its LOCATION is unusual")).by_hand(by_hand));
        };
        let setting = Setting::connects(name, Protocol::Memcached, text, endpoint).at(self.file, line(value));
        Ok(Some(Found { setting, how: How::Memcached(prefix, range) }))
    }

    fn broker(&self, name: &str) -> Result<Option<Found>> {
        let Some(value) = self.only(name)? else { return Ok(None) };
        match self.source.value(value) {
            Value::Text(text, range) if text.starts_with("redis") => {
                self.url(name, &text, range, Spelling::Celery, value)
            }
            // RabbitMQ, the database, and so on.
            Value::Text(..) | Value::Nothing => Ok(None),
            _ => self.code(name, value),
        }
    }

    fn url(
        &self,
        name: &str,
        text: &str,
        range: Range<usize>,
        spelling: Spelling,
        at: Node<'_>,
    ) -> Result<Option<Found>> {
        let refused = |why: &str| {
            let by_hand = format!("'{}'", spelling.at_usual_socket(text));
            Err(Refusal::at(line(at), format!("{name}: {why}")).by_hand(by_hand))
        };
        let Some(parsed) = Url::parse(text) else { return refused("its URL is unusual") };
        match spelling.read(&parsed) {
            Ok(target) => {
                let setting = Setting {
                    user: parsed.user(),
                    password: parsed.password(),
                    database: target.database,
                    ..Setting::connects(name, Protocol::Redis, parsed.shown(), target.endpoint)
                        .at(self.file, line(at))
                };
                Ok(Some(Found { setting, how: How::Url(spelling, text.to_owned(), range) }))
            }
            Err(why) => refused(&why.to_string()),
        }
    }
}

fn value_of<'n>(pairs: &[(String, Node<'n>)], key: &str) -> Option<Node<'n>> {
    pairs.iter().find(|(one, _)| one == key).map(|(_, value)| *value)
}

fn database_refused(name: &str, node: Node<'_>, reason: &str) -> Refusal {
    Refusal::at(line(node), format!("{name}: {reason}")).by_hand(DATABASE_BY_HAND)
}

/// Protocol of a database's ENGINE; `None` if it is not known here.
fn protocol_of(engine: &str) -> Option<Protocol> {
    match engine {
        "django.db.backends.mysql" | "django.contrib.gis.db.backends.mysql" => Some(Protocol::Mysql),
        "django.db.backends.postgresql"
        | "django.db.backends.postgresql_psycopg2"
        | "django.contrib.gis.db.backends.postgis" => Some(Protocol::Postgres),
        _ => None,
    }
}

fn endpoint(protocol: Protocol, host: &str, port: u16) -> Option<Endpoint> {
    match protocol {
        Protocol::Mysql if host.starts_with('/') => {
            is_plain_path(host).then(|| Endpoint::Unix(host.to_owned().into()))
        }
        _ if host.starts_with('/') => postgres_path(host, port),
        _ => url::tcp(host, port),
    }
}

fn by_hand(setting: &Setting, to: &Endpoint) -> String {
    match (setting.protocol, to) {
        (Protocol::Postgres, Endpoint::Unix(path)) => {
            format!("'HOST': '{}'", path.parent().unwrap_or(path).display())
        }
        (Protocol::Mysql, Endpoint::Unix(path)) => format!("'HOST': '{}'", path.display()),
        (Protocol::Redis, Endpoint::Unix(path)) => {
            let number = setting.database.as_deref().unwrap_or("0");
            format!("'LOCATION': 'unix://{}?db={number}'", path.display())
        }
        (Protocol::Memcached, Endpoint::Unix(path)) => format!("'LOCATION': 'unix:{}'", path.display()),
        (_, Endpoint::Tcp { host, port }) => {
            format!("'HOST': '{host}', 'PORT': '{port}', and no unix_socket")
        }
        _ => "'HOST': '127.0.0.1'".into(),
    }
}

fn host_and_port(
    protocol: Protocol,
    to: &Endpoint,
    path: Option<&str>,
) -> Result<(String, Option<u16>), Reason> {
    match (to, path) {
        (Endpoint::Tcp { host, .. }, _) if protocol == Protocol::Mysql && host == "localhost" => {
            Err("`localhost` is a socket to the MySQL library: 127.0.0.1 is not".into())
        }
        (Endpoint::Tcp { host, port }, _) => Ok((host.clone(), Some(*port))),
        (_, Some(path)) if protocol == Protocol::Postgres => {
            let (directory, port) = postgres_directory(path)?;
            Ok((directory.to_owned(), Some(port)))
        }
        (_, Some(path)) => Ok((path.to_owned(), None)),
        _ => Err("only a Unix socket or plain TCP can be written here".into()),
    }
}

/// The files that a manage.py may have its settings in: of `"DJANGO_SETTINGS_MODULE", "shop.settings"` shop/settings.py, and that of a
/// package.
#[must_use]
pub fn settings_of(manage: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(manage);
    let Some((_, behind)) = text.split_once("DJANGO_SETTINGS_MODULE") else { return Vec::new() };
    let mut names = behind.split(['"', '\'']).skip(1);
    let is_module = |name: &&str| {
        name.contains(|one: char| one.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
    };
    match names.find(is_module) {
        Some(name) => ["", "/__init__"].map(|end| format!("{}{end}.py", name.replace('.', "/"))).to_vec(),
        None => Vec::new(),
    }
}
