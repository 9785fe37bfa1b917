//! Rails' config/database.yml: one connection per environment. What an environment inherits (`<<: *default`) is merged as Ruby
//! does it, and overridden in the environment itself, so that no other moves with it.

mod write;

use std::ops::Range;
use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::budget::Metered;
use crate::editor::{Editor, asks_for};
use crate::files::{Edit, Files};
use crate::languages::url::{self, Url, is_plain_path, postgres_path};
use crate::languages::yaml::{self, Document, Kind, Node};
use crate::lines;
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};
use crate::spelling::Spelling;

#[derive(Debug)]
pub struct DatabaseYml;

const BY_HAND: &str = "in the environment: socket: /run/mysqld/mysqld.sock and host: localhost (mysql2), or host: /run/postgresql (postgresql)";

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

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let yml = Yml::open(file, files)?;
        let mut found = Vec::new();
        for environment in yml.environments() {
            found.extend(yml.setting(&environment).transpose());
        }
        Ok(found.into_iter().collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
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

    /// Rails takes DATABASE_URL before the file for its first database, and NAME_DATABASE_URL for each other.
    fn is_beaten_by(&self, text: &str, variable: &str) -> bool {
        variable == "DATABASE_URL" || variable.ends_with("_DATABASE_URL") || asks_for(text, variable)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartApplication
    }
}

/// The library of an environment, by what it makes of a socket beside a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adapter {
    /// A host other than localhost wins over a socket.
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

struct Environment<'a> {
    name: String,
    map: &'a Node,
}

#[derive(Clone, Copy)]
struct Value<'a> {
    node: &'a Node,
    own: bool,
}

struct Yml<'a> {
    file: &'a Path,
    text: String,
    masked: Masked,
    document: Document,
    /// Whether .env beside the application sets DATABASE_URL, which wins over this file.
    overridden: bool,
}

fn has_twice(map: &Node, key: &Node) -> bool {
    key.text().is_some_and(|name| map.twice(name))
}

impl<'a> Yml<'a> {
    fn open(file: &'a Path, files: &Metered<'_>) -> Result<Self> {
        Self::parse(file, files).map_err(|refusal| refusal.in_file(file).by_hand(BY_HAND))
    }

    fn parse(file: &'a Path, files: &Metered<'_>) -> Result<Self> {
        let text = lines::read_text(file, files, "it is not UTF-8, which Ruby does not take either")?;
        let masked = Masked::new(&text)?;
        let document = Document::parse(&masked.text)?;
        let root = file.parent().and_then(Path::parent);
        let overridden = match root.map(|root| files.read(&root.join(".env"))) {
            Some(Ok(variables)) => sets_url(&variables),
            Some(Err(_)) | None => false,
        };
        for (key, value) in document.root.pairs() {
            if has_twice(&document.root, key)
                || value.pairs().iter().any(|(inner, _)| has_twice(value, inner))
            {
                return Err(Refusal::at(key.line, "a key stands in it twice"));
            }
        }
        Ok(Yml { file, text, masked, document, overridden })
    }

    /// The environments in the order of the text. A map that others inherit is not one, except under the names that
    /// Rails itself uses.
    fn environments(&self) -> Vec<Environment<'_>> {
        let mut found = Vec::new();
        for (key, value) in self.document.root.pairs() {
            let Some(name) = key.text() else { continue };
            let usual = ["production", "staging", "development", "test"].contains(&name);
            if value.anchor != 0 && !usual {
                continue;
            }
            let value = self.document.resolve(value);
            // An environment may have several connections; the database server's variables are not connections.
            let before = found.len();
            for (key, value) in value.pairs() {
                let Some(inner) = key.text().filter(|inner| *inner != "<<") else { continue };
                let map = self.document.resolve(value);
                let is_one = self.has(map, "adapter") || self.has(map, "url");
                if is_one && !map.pairs().is_empty() {
                    found.push(Environment { name: format!("{name}.{inner}"), map });
                }
            }
            if found.len() == before {
                found.push(Environment { name: name.to_owned(), map: value });
            }
        }
        found
    }

    fn adapter(&self, map: &Node) -> Result<Option<Adapter>> {
        Ok(match self.literal(map, "adapter")?.map(|(text, _)| text) {
            Some("mysql2") => Some(Adapter::Mysql2),
            Some("trilogy") => Some(Adapter::Trilogy),
            Some("postgresql" | "postgis") => Some(Adapter::Postgres),
            _ => None,
        })
    }

    /// The endpoint of an environment; `None` if it is not a known server.
    fn setting(&self, environment: &Environment<'_>) -> Result<Option<Setting>> {
        let map = environment.map;
        // A whole environment may be a URL.
        let url = match map.text() {
            Some(text) => Some((text, Value { node: map, own: true })),
            None => self.literal(map, "url")?,
        };
        let adapter = if map.pairs().is_empty() { None } else { self.adapter(map)? };
        let is_production = environment.name.starts_with("production");
        if self.overridden && is_production && (url.is_some() || adapter.is_some()) {
            let reason = "DATABASE_URL in .env counts before it";
            return Err(self.wrong(environment, map.line, reason, "in .env: DATABASE_URL="));
        }
        if let Some((text, value)) = url {
            return self.by_url(environment, text, value.node.line);
        }
        match adapter {
            None => Ok(None),
            Some(Adapter::Postgres) => self.postgres(environment).map(Some),
            Some(adapter) => self.mysql(environment, adapter).map(Some),
        }
    }

    fn wrong(&self, environment: &Environment<'_>, line: u32, reason: &str, by_hand: &str) -> Refusal {
        Refusal::new(self.file, line, format!("{}: {reason}", environment.name), by_hand)
    }

    fn connection(
        &self,
        environment: &Environment<'_>,
        protocol: Protocol,
        endpoint: Endpoint,
        written: String,
        line: u32,
    ) -> Setting {
        let map = environment.map;
        let is_postgres = protocol == Protocol::Postgres;
        let mut words = Vec::new();
        if is_postgres {
            for (name, _) in LIBPQ_WORDS {
                words.extend(self.plain(map, name).map(|value| Word::new(*name, value, self.file, line)));
            }
        }
        Setting {
            library: if is_postgres { Library::Libpq } else { Library::Unknown },
            words,
            user: self.plain(map, "username"),
            password: self.plain(map, "password").map(Secret::new),
            database: self.plain(map, "database"),
            ..Setting::connects(environment.name.clone(), protocol, written, endpoint).at(self.file, line)
        }
    }

    fn by_url(&self, environment: &Environment<'_>, text: &str, line: u32) -> Result<Option<Setting>> {
        let map = environment.map;
        let wrong = |reason: &str, by_hand: &str| self.wrong(environment, line, reason, by_hand);
        let parsed = Url::parse(text)
            .ok_or_else(|| wrong("its URL is unusual", "url: with its password percent-encoded"))?;
        let Some(spelling) = spelling(&parsed) else { return Ok(None) };
        if self.has(map, "host") || self.has(map, "socket") {
            return Err(wrong("it has a URL and a host or socket beside it", "url: alone"));
        }
        let target = spelling
            .read(&parsed)
            .map_err(|why| wrong(&why.to_string(), "url: with one host and one path"))?;
        let protocol = parsed.protocol().unwrap_or(Protocol::Plain);
        let beside = self.connection(environment, protocol, target.endpoint, parsed.shown(), line);
        Ok(Some(Setting {
            words: [parsed.words(self.file, line), beside.words].concat(),
            user: parsed.user().or(beside.user),
            password: parsed.password().or(beside.password),
            database: parsed.database().or(beside.database),
            ..beside
        }))
    }

    /// The port of an environment, or the usual one.
    fn port(&self, environment: &Environment<'_>, protocol: Protocol) -> Result<u16> {
        let usual = url::usual_port(protocol);
        let Some((text, value)) = self.literal(environment.map, "port")? else { return Ok(usual) };
        text.parse().map_err(|_| {
            self.wrong(environment, value.node.line, "its port is not a number", &format!("port: {usual}"))
        })
    }

    fn postgres(&self, environment: &Environment<'_>) -> Result<Setting> {
        const BY_HAND: &str = "host: /run/postgresql";
        let map = environment.map;
        let host = self.literal(map, "host")?;
        // libpq has no such key, but an unknown value may be meant for another adapter.
        self.literal(map, "socket")?;
        let port = self.port(environment, Protocol::Postgres)?;
        let Some((text, _)) = host else {
            let reason = "without a host it is libpq's own socket already";
            return Err(self.wrong(environment, map.line, reason, BY_HAND));
        };
        let line = own_line(map, host);
        let endpoint = if text.starts_with('/') { postgres_path(text, port) } else { url::tcp(text, port) };
        let endpoint =
            endpoint.ok_or_else(|| self.wrong(environment, line, "its host is unusual", BY_HAND))?;
        Ok(self.connection(environment, Protocol::Postgres, endpoint, format!("host: {text}"), line))
    }

    fn mysql(&self, environment: &Environment<'_>, adapter: Adapter) -> Result<Setting> {
        let map = environment.map;
        let (host, socket) = (self.literal(map, "host")?, self.literal(map, "socket")?);
        let port = self.port(environment, Protocol::Mysql)?;
        let local = host.is_none_or(|(text, _)| text == "localhost");
        let by_socket = socket.filter(|_| local || adapter == Adapter::Trilogy);
        let (endpoint, written, line) = match (by_socket, host) {
            (Some((path, _)), _) => {
                let endpoint = if is_plain_path(path) { Some(Endpoint::Unix(path.into())) } else { None };
                (endpoint, format!("socket: {path}"), own_line(map, socket))
            }
            (None, Some((text, _))) if !local || adapter == Adapter::Trilogy => {
                (url::tcp(text, port), format!("host: {text}"), own_line(map, host))
            }
            _ => {
                let reason = "`localhost` without a socket is the MySQL library's own socket already";
                let by_hand = "socket: /run/mysqld/mysqld.sock";
                return Err(self.wrong(environment, own_line(map, host), reason, by_hand));
            }
        };
        let endpoint = endpoint.ok_or_else(|| {
            let by_hand = "host: localhost and socket: /run/mysqld/mysqld.sock";
            self.wrong(environment, line, "its host or socket is unusual", by_hand)
        })?;
        Ok(self.connection(environment, Protocol::Mysql, endpoint, written, line))
    }

    /// A text of the login: `None` also where it is not understood, as no edit depends on it.
    fn plain(&self, map: &Node, name: &str) -> Option<String> {
        self.literal(map, name).ok().flatten().map(|(text, _)| text.to_owned())
    }

    fn has(&self, map: &Node, name: &str) -> bool {
        matches!(self.value(map, name), Ok(Some(_)))
    }

    /// A value of an environment: its own, or the one that it inherits.
    fn value<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<Value<'b>>, Reason> {
        self.value_below(map, name, 0)
    }

    /// The same of a map that is inherited over this many others; one may inherit itself.
    fn value_below<'b>(
        &'b self,
        map: &'b Node,
        name: &str,
        depth: usize,
    ) -> Result<Option<Value<'b>>, Reason> {
        if map.twice(name) || map.twice("<<") {
            return Err("a key stands in it twice".into());
        }
        let inherited = match map.get("<<") {
            None => None,
            Some((_, from)) => self.inherited(from, name, depth)?,
        };
        let [merge, own] = ["<<", name].map(|key| map.place(key));
        match (map.get(name), inherited) {
            // In Ruby an inherited value wins if << is below the key.
            (Some(_), Some(_)) if merge > own => Err("<< stands below a key that it overrides".into()),
            (Some((_, node)), _) => Ok(Some(Value {
                node: self.document.resolve(node),
                own: node.text().is_some() || !matches!(node.kind, Kind::Alias(_)),
            })),
            (None, inherited) => Ok(inherited.map(|node| Value { node, own: false })),
        }
    }

    fn inherited<'b>(&'b self, from: &'b Node, name: &str, depth: usize) -> Result<Option<&'b Node>, Reason> {
        if depth > 8 {
            return Err("it inherits too deep".into());
        }
        let from = self.document.resolve(from);
        match &from.kind {
            Kind::Map(_) => {
                if from.twice(name) || from.twice("<<") {
                    return Err("a key stands twice in what it inherits".into());
                }
                if let Some((_, node)) = from.get(name) {
                    return if from.get("<<").is_none() {
                        Ok(Some(self.document.resolve(node)))
                    } else {
                        Ok(self.value_below(from, name, depth + 1)?.map(|value| value.node))
                    };
                }
                match from.value("<<") {
                    Some(deeper) => self.inherited(deeper, name, depth + 1),
                    None => Ok(None),
                }
            }
            _ => Err("what it inherits is not a map".into()),
        }
    }

    /// Text of a value; `None` if it is missing.
    fn literal<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<(&'b str, Value<'b>)>> {
        let wrong = |line: u32, why: &str| {
            Refusal::new(self.file, line, why, format!("{name}: in the environment itself, once"))
        };
        let value = self.value(map, name).map_err(|why| wrong(map.line, &why.to_string()))?;
        let Some(value) = value else { return Ok(None) };
        if self.masked.touches(&value.node.range) {
            let code = &self.text[yaml::line_at(&self.text, value.node.range.start)];
            let variable = code.split(['"', '\'']).nth(1).unwrap_or("the variable");
            let reason = format!("Ruby's code makes its {name}");
            let by_hand = format!(
                "in the environment of the application, where {variable} is set; or {name}: /run/… here (mysql2: socket: and host: localhost)"
            );
            return Err(Refusal::new(self.file, value.node.line, reason, by_hand));
        }
        match &value.node.kind {
            Kind::Scalar { .. } => Ok(value.node.text().map(|text| (text, value))),
            _ => Err(wrong(value.node.line, &format!("its {name} is not text"))),
        }
    }
}

fn sets_url(variables: &[u8]) -> bool {
    for line in String::from_utf8_lossy(variables).lines() {
        if line.trim_start().trim_start_matches("export ").starts_with("DATABASE_URL=") {
            return true;
        }
    }
    false
}

/// How ActiveRecord reads a URL.
fn spelling(url: &Url) -> Option<Spelling> {
    match url.protocol()? {
        Protocol::Mysql => Some(Spelling::Parameter("socket")),
        Protocol::Postgres => Some(Spelling::EncodedHost),
        _ => None,
    }
}

/// Line of a value if it is the environment's own, else that of the environment.
fn own_line(map: &Node, value: Option<(&str, Value<'_>)>) -> u32 {
    match value {
        Some((_, value)) if value.own => value.node.line,
        _ => map.line,
    }
}

/// A text with Ruby's code in it masked, of the same length, so that the rest can be read; what the code gives is unknown.
struct Masked {
    text: String,
    code: Vec<Range<usize>>,
}

impl Masked {
    /// Masks code that produces a value (`<%=`) or a comment (`<%#`); code that controls the rest of the file is not
    /// understood.
    fn new(text: &str) -> Result<Masked> {
        let mut masked = text.as_bytes().to_owned();
        let mut code = Vec::new();
        let (mut from, mut line) = (0, 1);
        while let Some(start) = text[from..].find("<%").map(|at| from + at) {
            line += u32::try_from(text[from..start].matches('\n').count()).unwrap_or(u32::MAX);
            let end = text[start..].find("%>").map(|at| start + at + 2);
            let end = end.ok_or_else(|| Refusal::at(line, "its <% is never closed"))?;
            let tag = &text[start..end];
            if !tag.starts_with("<%=") && !tag.starts_with("<%#") {
                return Err(Refusal::at(line, "Ruby's code decides what is in the file"));
            }
            if tag.contains('\n') || tag.ends_with("-%>") {
                return Err(Refusal::at(line, "Ruby's code goes over the end of its line"));
            }
            masked[start..end].fill(b'x');
            code.push(start..end);
            from = end;
        }
        // Only whole characters were masked.
        let text = String::from_utf8(masked).map_err(|_| Refusal::at(0, "it is not UTF-8"))?;
        Ok(Masked { text, code })
    }

    fn touches(&self, range: &Range<usize>) -> bool {
        let next = self.code.partition_point(|code| code.end <= range.start);
        self.code.get(next).is_some_and(|code| code.start < range.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::files::{Overlay, TestDisk};

    #[test]
    fn the_mask_is_as_long_as_the_code() {
        let text = "a: <%= ENV[\"ü\"] %>\nb: c\n";
        let masked = Masked::new(text).unwrap();
        assert_eq!(masked.text.len(), text.len());
        assert!(masked.text.ends_with("\nb: c\n") && !masked.text.contains('<'));
        assert!(masked.touches(&(3..5)) && !masked.touches(&(0..2)));
        assert!(Masked::new("<% if x %>").is_err());
        assert!(Masked::new("<%= x").is_err());
    }

    #[test]
    fn what_inherits_itself_is_refused() {
        let file = Path::new("/app/config/database.yml");
        let text = "production: &own\n  <<: *own\n  adapter: mysql2\n  host: 127.0.0.1\n";
        let files = Overlay::new(&TestDisk, BTreeMap::from([(file.to_owned(), text.into())]));
        let editor: &dyn Editor = &DatabaseYml;
        let reading = editor.read(file, &files).unwrap();
        assert!(reading.settings.is_empty());
        assert!(reading.refused[0].reason.contains("it inherits too deep"), "{:?}", reading.refused);
    }
}
