//! Rails' config/database.yml: a connection for each environment. What an environment inherits (`<<: *default`) is
//! overridden in the environment itself, so that no other moves with it.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::languages::erb::Masked;
use crate::languages::url::{self, Url, is_plain_path, postgres_path};
use crate::languages::yaml::{Document, Node};
use crate::refusal::Refusal;
use crate::setting::{Reading, Role, Setting, Uptake};
use crate::spelling::Spelling;

mod inherit;
mod write;

/// The editor.
#[derive(Debug)]
pub struct DatabaseYml;

impl Editor for DatabaseYml {
    fn name(&self) -> &'static str {
        "database-yml"
    }

    fn about(&self) -> &'static str {
        "config/database.yml of Rails"
    }

    fn names(&self) -> &'static [&'static str] {
        &["config/database.yml"]
    }

    fn recognises(&self, path: &Path, _: &[u8]) -> bool {
        path.file_name().is_some_and(|name| name == "database.yml" || name == "database.yaml")
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading, Refusal> {
        let yml = Yml::open(file, files)?;
        let environments = yml.environments();
        Ok(environments.iter().filter_map(|environment| yml.setting(environment).transpose()).collect())
    }

    fn edit(
        &self,
        file: &Path,
        files: &dyn Files,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>, Refusal> {
        let yml = Yml::open(file, files)?;
        let environments = yml.environments();
        let environment = environments.iter().find(|one| one.name == setting.name);
        let environment = environment.ok_or_else(|| setting.gone())?;
        let now = yml.setting(environment)?.ok_or_else(|| setting.gone())?;
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        yml.write(environment, &now, &goal.endpoint)
    }

    fn uptake(&self) -> Uptake {
        Uptake::RestartApplication
    }
}

/// The libraries that take a socket beside a host: which of the two counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adapter {
    /// A host that is not localhost counts before a socket.
    Mysql2,
    /// A socket counts before a host.
    Trilogy,
    Postgres,
}

impl Adapter {
    fn protocol(self) -> Protocol {
        if self == Adapter::Postgres { Protocol::Postgres } else { Protocol::Mysql }
    }
}

/// A connection: `production`, or `production.replica`.
struct Environment<'a> {
    name: String,
    map: &'a Node,
}

/// A value as an environment has it.
#[derive(Clone, Copy)]
struct Value<'a> {
    node: &'a Node,
    /// Whether it stands in the environment itself.
    own: bool,
}

struct Yml<'a> {
    file: &'a Path,
    text: String,
    masked: Masked,
    document: Document,
    /// Whether .env beside the application sets DATABASE_URL, which counts before this file.
    overridden: bool,
}

impl<'a> Yml<'a> {
    fn open(file: &'a Path, files: &dyn Files) -> Result<Self, Refusal> {
        let whole = |line: u32, reason: String| {
            Refusal {
            file: file.to_owned(),
            line,
            reason,
            by_hand: "in the environment: socket: /run/mysqld/mysqld.sock and host: localhost (mysql2), or host: /run/postgresql (postgresql)".into(),
        }
        };
        let bytes = files.read(file).map_err(|error| whole(0, format!("it cannot be read: {error}")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| whole(0, "it is not UTF-8, which Ruby does not take either".into()))?;
        if text.starts_with('\u{feff}') {
            return Err(whole(0, "it begins with a byte order mark".into()));
        }
        let masked = Masked::new(&text).map_err(|(line, why)| whole(line, why.into()))?;
        let document = Document::parse(&masked.text)
            .map_err(|(line, why)| whole(line, format!("it is not understood as YAML: {why}")))?;
        let root = file.parent().and_then(Path::parent);
        let variables = root.and_then(|root| files.read(&root.join(".env")).ok()).unwrap_or_default();
        let twice = document.root.pairs().iter().find(|(key, value)| {
            let again = |node: &Node, key: &Node| key.text().is_some_and(|name| node.twice(name));
            again(&document.root, key) || value.pairs().iter().any(|(inner, _)| again(value, inner))
        });
        if let Some((key, _)) = twice {
            return Err(whole(key.line, "a key stands in it twice".into()));
        }
        let overridden = String::from_utf8_lossy(&variables)
            .lines()
            .any(|line| line.trim_start().trim_start_matches("export ").starts_with("DATABASE_URL="));
        Ok(Yml { file, text, masked, document, overridden })
    }

    fn refusal(&self, line: u32, reason: &str, by_hand: &str) -> Refusal {
        Refusal { file: self.file.to_owned(), line, reason: reason.to_owned(), by_hand: by_hand.to_owned() }
    }

    /// The environments in the order of the text. A map that is there for others to inherit is none, but for the names
    /// that Rails itself uses.
    fn environments(&self) -> Vec<Environment<'_>> {
        let mut found = Vec::new();
        for (key, value) in self.document.root.pairs() {
            let Some(name) = key.text() else { continue };
            let usual = ["production", "staging", "development", "test"].contains(&name);
            if value.anchor != 0 && !usual {
                continue;
            }
            let value = self.document.resolve(value);
            // An environment may have several connections; variables of the database server are none.
            let mut several = value.pairs().iter().filter_map(|(key, value)| {
                let (inner, map) = (key.text().filter(|inner| *inner != "<<")?, self.document.resolve(value));
                let has = |key: &str| self.value(map, key).is_ok_and(|value| value.is_some());
                let is_one = !map.pairs().is_empty() && (has("adapter") || has("url"));
                is_one.then(|| Environment { name: format!("{name}.{inner}"), map })
            });
            match several.next() {
                Some(first) => found.extend(std::iter::once(first).chain(several)),
                None => found.push(Environment { name: name.to_owned(), map: value }),
            }
        }
        found
    }

    fn adapter(&self, map: &Node) -> Result<Option<Adapter>, Refusal> {
        Ok(match self.literal(map, "adapter")?.map(|(text, _)| text) {
            Some("mysql2") => Some(Adapter::Mysql2),
            Some("trilogy") => Some(Adapter::Trilogy),
            Some("postgresql" | "postgis") => Some(Adapter::Postgres),
            _ => None,
        })
    }

    /// What an environment says; none where it is no server that we know.
    fn setting(&self, environment: &Environment<'_>) -> Result<Option<Setting>, Refusal> {
        let map = environment.map;
        let name = &environment.name;
        let refused = |line: u32, reason: String, by_hand: &str| {
            Err(self.refusal(line, &format!("{name}: {reason}"), by_hand))
        };
        // A whole environment may be a URL.
        let url = match map.text() {
            Some(text) => Some((text, Value { node: map, own: true })),
            None => self.literal(map, "url")?,
        };
        let adapter = if map.pairs().is_empty() { None } else { self.adapter(map)? };
        let setting = |protocol, endpoint, spelled: String, line| Setting {
            name: name.clone(),
            role: Role::Connects,
            protocol,
            endpoint,
            spelled,
            file: self.file.to_owned(),
            line,
            user: self.plain(map, "username"),
            password: self.plain(map, "password").map(Secret::new),
            database: self.plain(map, "database"),
            backlog: None,
        };
        if self.overridden && name.starts_with("production") && (url.is_some() || adapter.is_some()) {
            return refused(
                map.line,
                "DATABASE_URL in .env counts before it".into(),
                "in .env: DATABASE_URL=",
            );
        }
        if let Some((text, value)) = url {
            let Some(parsed) = Url::parse(text) else {
                return refused(
                    value.node.line,
                    "its URL is unusual".into(),
                    "url: with its password percent-encoded",
                );
            };
            let Some(spelling) = spelling(&parsed) else { return Ok(None) };
            if ["host", "socket"].iter().any(|key| self.value(map, key).ok().flatten().is_some()) {
                return refused(
                    value.node.line,
                    "it has a URL and a host or socket beside it".into(),
                    "url: alone",
                );
            }
            return match spelling.read(&parsed) {
                Ok(said) => Ok(Some(Setting {
                    user: parsed.user().or_else(|| self.plain(map, "username")),
                    password: parsed.password().or_else(|| self.plain(map, "password").map(Secret::new)),
                    database: parsed.database().or_else(|| self.plain(map, "database")),
                    ..setting(
                        parsed.protocol().unwrap_or(Protocol::Plain),
                        said.endpoint,
                        parsed.shown(),
                        value.node.line,
                    )
                })),
                Err(why) => refused(value.node.line, why.into(), "url: with one host and one path"),
            };
        }
        let Some(adapter) = adapter else { return Ok(None) };
        let (host, socket, port) =
            (self.literal(map, "host")?, self.literal(map, "socket")?, self.literal(map, "port")?);
        let usual = url::usual_port(adapter.protocol());
        let port = match port {
            None => usual,
            Some((text, value)) => match text.parse() {
                Ok(port) => port,
                Err(_) => {
                    return refused(
                        value.node.line,
                        "its port is no number".into(),
                        &format!("port: {usual}"),
                    );
                }
            },
        };
        let line = |value: Option<(&str, Value<'_>)>| {
            value.filter(|(_, value)| value.own).map_or(map.line, |(_, value)| value.node.line)
        };
        if adapter == Adapter::Postgres {
            let Some((text, _)) = host else {
                return refused(
                    map.line,
                    "without a host it is libpq's own socket already".into(),
                    "host: /run/postgresql",
                );
            };
            let endpoint =
                if text.starts_with('/') { postgres_path(text, port) } else { url::tcp(text, port) };
            return match endpoint {
                Some(endpoint) => {
                    Ok(Some(setting(Protocol::Postgres, endpoint, format!("host: {text}"), line(host))))
                }
                None => refused(line(host), "its host is unusual".into(), "host: /run/postgresql"),
            };
        }
        let local = host.is_none_or(|(text, _)| text == "localhost");
        let by_socket = socket.filter(|_| local || adapter == Adapter::Trilogy);
        let (endpoint, spelled, line) = match (by_socket, host) {
            (Some((path, _)), _) => {
                let endpoint = is_plain_path(path).then(|| Endpoint::Unix(path.into()));
                (endpoint, format!("socket: {path}"), line(socket))
            }
            (None, Some((text, _))) if !local || adapter == Adapter::Trilogy => {
                (url::tcp(text, port), format!("host: {text}"), line(host))
            }
            _ => {
                let reason = "`localhost` without a socket is the MySQL library's own socket already";
                return refused(line(host), reason.into(), "socket: /run/mysqld/mysqld.sock");
            }
        };
        match endpoint {
            Some(endpoint) => Ok(Some(setting(Protocol::Mysql, endpoint, spelled, line))),
            None => refused(
                line,
                "its host or socket is unusual".into(),
                "host: localhost and socket: /run/mysqld/mysqld.sock",
            ),
        }
    }

    /// A text that is there for the login only.
    fn plain(&self, map: &Node, name: &str) -> Option<String> {
        self.literal(map, name).ok().flatten().map(|(text, _)| text.to_owned())
    }
}

/// How ActiveRecord reads a URL.
fn spelling(url: &Url) -> Option<Spelling> {
    match url.protocol()? {
        Protocol::Mysql => Some(Spelling::Parameter("socket")),
        Protocol::Postgres => Some(Spelling::EncodedHost),
        _ => None,
    }
}
