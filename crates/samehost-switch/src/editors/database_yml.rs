//! Rails' config/database.yml: a connection for each environment. What an environment inherits (`<<: *default`) is
//! overridden in the environment itself, so that no other moves with it.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use super::erb::Masked;
use super::spelling::Spelling;
use super::url::{self, Url, is_plain_path, postgres_path, postgres_socket};
use super::yaml::{self, Document, Kind, Node};
use crate::{Edit, Editor, Files, Goal, Reading, Refusal, Role, Setting, Uptake};

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
        let mut reading = Reading::default();
        for environment in yml.environments() {
            match yml.setting(&environment) {
                Ok(Some(setting)) => reading.settings.push(setting),
                Ok(None) => {}
                Err(refusal) => reading.refused.push(refusal),
            }
        }
        Ok(reading)
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
        let gone =
            || yml.refusal(setting.line, "it is not there any more", "look at the file, and switch again");
        let environment = environments.iter().find(|one| one.name == setting.name).ok_or_else(gone)?;
        let now = yml.setting(environment)?.ok_or_else(gone)?;
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        yml.write(environment, &now, &goal.endpoint)
    }

    fn check(&self, file: &Path) -> Option<Vec<String>> {
        let script =
            "require 'yaml'; require 'erb'; YAML.load(ERB.new(File.read(ARGV[0])).result, aliases: true)";
        Some(vec!["ruby".into(), "-e".into(), script.into(), file.to_str()?.into()])
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

    /// A value of an environment: its own, or the one that it inherits.
    fn value<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<Value<'b>>, &'static str> {
        if map.twice(name) || map.twice("<<") {
            return Err("a key stands in it twice");
        }
        let inherited = match map.get("<<") {
            None => None,
            Some((_, from)) => self.inherited(from, name, 0)?,
        };
        let place = |key: &str| map.pairs().iter().position(|(one, _)| one.text() == Some(key));
        match (map.get(name), inherited) {
            // Ruby lets what is inherited count where << stands below the key.
            (Some(_), Some(_)) if place("<<") > place(name) => Err("<< stands below a key that it overrides"),
            (Some((_, node)), _) => Ok(Some(Value {
                node: self.document.resolve(node),
                own: node.text().is_some() || !matches!(node.kind, Kind::Alias(_)),
            })),
            (None, inherited) => Ok(inherited.map(|node| Value { node, own: false })),
        }
    }

    fn inherited<'b>(
        &'b self,
        from: &'b Node,
        name: &str,
        depth: usize,
    ) -> Result<Option<&'b Node>, &'static str> {
        if depth > 8 {
            return Err("it inherits too deep");
        }
        let from = self.document.resolve(from);
        match &from.kind {
            Kind::Map(_) => {
                if from.twice(name) || from.twice("<<") {
                    return Err("a key stands twice in what it inherits");
                }
                if let Some((_, node)) = from.get(name) {
                    return if from.get("<<").is_none() {
                        Ok(Some(self.document.resolve(node)))
                    } else {
                        self.value(from, name).map(|value| value.map(|value| value.node))
                    };
                }
                from.get("<<").map_or(Ok(None), |(_, deeper)| self.inherited(deeper, name, depth + 1))
            }
            _ => Err("what it inherits is no map"),
        }
    }

    /// The text of a value; none where there is none.
    fn literal<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<(&'b str, Value<'b>)>, Refusal> {
        let wrong = |line: u32, why: &str| {
            self.refusal(line, why, &format!("{name}: in the environment itself, once"))
        };
        let value = self.value(map, name).map_err(|why| wrong(map.line, why))?;
        let Some(value) = value else { return Ok(None) };
        if self.masked.touches(&value.node.range) {
            let code = &self.text[yaml::line_at(&self.text, value.node.range.start)];
            let variable = code.split(['"', '\'']).nth(1).unwrap_or("the variable");
            let reason = format!("Ruby's code makes its {name}");
            let by_hand = format!(
                "in the environment of the application, where {variable} is set; or {name}: /run/… here (mysql2: socket: and host: localhost)"
            );
            return Err(self.refusal(value.node.line, &reason, &by_hand));
        }
        match &value.node.kind {
            Kind::Scalar { .. } => Ok(value.node.text().map(|text| (text, value))),
            _ => Err(wrong(value.node.line, &format!("its {name} is no text"))),
        }
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

    fn write(
        &self,
        environment: &Environment<'_>,
        now: &Setting,
        to: &Endpoint,
    ) -> Result<Vec<Edit>, Refusal> {
        let map = environment.map;
        let refuse = |why: &str| {
            self.refusal(now.line, &format!("{}: {why}", environment.name), &by_hand(now.protocol, to))
        };
        let url = match map.text() {
            Some(text) => Some((text, Value { node: map, own: true })),
            None => self.literal(map, "url")?,
        };
        if let Some((text, value)) = url {
            return self.write_url(text, value, to).map_err(refuse);
        }
        let adapter = self.adapter(map)?.ok_or_else(|| refuse("it has no adapter"))?;
        let mut wanted: Vec<(&str, String)> = Vec::new();
        let mut dropped = None;
        let host = self.literal(map, "host")?.map(|(text, _)| text);
        let port = self
            .literal(map, "port")?
            .map_or(url::usual_port(adapter.protocol()).to_string(), |(text, _)| text.to_owned());
        match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                let path = path.ok_or_else(|| refuse("such a path is not written here"))?;
                if adapter == Adapter::Postgres {
                    let (directory, number) = postgres_socket(path).ok_or_else(|| {
                        refuse(
                            "PostgreSQL's clients take a directory: the socket must be called .s.PGSQL.PORT",
                        )
                    })?;
                    wanted.push(("host", directory.to_owned()));
                    if number.to_string() != port {
                        wanted.push(("port", number.to_string()));
                    }
                } else {
                    if adapter == Adapter::Mysql2 && host.is_some_and(|host| host != "localhost") {
                        wanted.push(("host", "localhost".into()));
                    }
                    wanted.push(("socket", path.to_owned()));
                }
            }
            Endpoint::Tcp { host: goal, port: number } if url::tcp(goal, *number).is_some() => {
                if adapter != Adapter::Postgres && goal == "localhost" {
                    return Err(refuse("`localhost` is a socket to the MySQL library: 127.0.0.1 is not"));
                }
                if host != Some(goal) {
                    wanted.push((
                        "host",
                        if goal.contains(':') { format!("\"{goal}\"") } else { goal.clone() },
                    ));
                }
                if number.to_string() != port {
                    wanted.push(("port", number.to_string()));
                }
                if let Some((_, value)) = self.literal(map, "socket")? {
                    dropped = Some(value);
                }
            }
            _ => return Err(refuse("only a Unix socket or plain TCP can be written here")),
        }
        self.edits(map, &wanted, dropped, adapter).map_err(refuse)
    }

    fn write_url(&self, text: &str, value: Value<'_>, to: &Endpoint) -> Result<Vec<Edit>, &'static str> {
        let parsed = Url::parse(text).ok_or("its URL is unusual")?;
        let spelling = spelling(&parsed).ok_or("its URL is unusual")?;
        let written = spelling.write(&parsed, to)?;
        let inside = value
            .node
            .inside()
            .filter(|_| value.own)
            .ok_or("its URL stands where it is inherited from, or goes over several lines")?;
        let edit = super::splice::minimal(self.file, inside.start, text, &written.text());
        Ok(edit.into_iter().collect())
    }

    /// The edits that give an environment these values of its own, and take its socket away.
    fn edits(
        &self,
        map: &Node,
        wanted: &[(&str, String)],
        dropped: Option<Value<'_>>,
        adapter: Adapter,
    ) -> Result<Vec<Edit>, &'static str> {
        const SHARED: &str = "it is shared with others";
        if map.anchor != 0 && self.document.root.pairs().iter().any(|(_, value)| inherits(value, map.anchor))
        {
            return Err(SHARED);
        }
        let mut edits = Vec::new();
        let mut lines = String::new();
        // A line that goes is no place for another.
        let place = self.place(map, if dropped.is_some() { "" } else { "socket" });
        for (key, value) in wanted {
            match map.get(key) {
                Some((_, node)) if matches!(node.kind, Kind::Alias(_)) => return Err(SHARED),
                Some((_, node)) => match node.inside() {
                    // Inside of quotes the address needs none of its own.
                    Some(inside) => {
                        let quoted = inside != node.range;
                        let value = if quoted { value.trim_matches('"') } else { value };
                        edits.push(Edit::new(self.file, inside, value));
                    }
                    None if node.text().is_none() => {
                        let (key_node, _) = map.get(key).ok_or(SHARED)?;
                        let colon =
                            self.text[key_node.range.end..].find(':').ok_or(SHARED)? + key_node.range.end + 1;
                        if !self.text[yaml::line_at(&self.text, colon)].trim_end().ends_with(':') {
                            return Err("an empty value has a comment beside it");
                        }
                        edits.push(Edit::new(self.file, colon..colon, format!(" {value}")));
                    }
                    None => return Err("its value goes over several lines or has escapes"),
                },
                None => {
                    let (indent, newline, _) = place.as_ref().ok_or("it is written on one line")?;
                    lines += &format!("{newline}{indent}{key}: {value}");
                }
            }
        }
        if let (false, Some((_, _, at))) = (lines.is_empty(), &place) {
            edits.push(Edit::new(self.file, *at..*at, lines));
        }
        if let Some(value) = dropped {
            match self.whole_line(map, "socket").filter(|_| value.own) {
                Some(range) => edits.push(Edit::new(self.file, range, "")),
                // mysql2 takes the host before the socket in any case.
                None if adapter == Adapter::Mysql2 => {}
                None => return Err("its socket is inherited"),
            }
        }
        Ok(edits)
    }

    /// The indentation of an environment's lines, their line break, and where a new one goes: below the host, or what
    /// else names the server.
    fn place(&self, map: &Node, socket: &str) -> Option<(String, &'static str, usize)> {
        let order = ["port", "host", socket, "adapter", "<<", "database"];
        order.iter().find_map(|name| {
            let (key, value) = map.get(name)?;
            let line = yaml::line_at(&self.text, key.range.start);
            let indent = &self.text[line.start..key.range.start];
            let one_line =
                value.range.end <= line.end && value.text().is_some() | matches!(value.kind, Kind::Alias(_));
            let rest = self.text.get(value.range.end.max(key.range.end)..line.end)?.trim_start();
            let alone = indent.bytes().all(|byte| byte == b' ') && (rest.is_empty() || rest.starts_with('#'));
            (one_line && alone && !self.masked.touches(&line))
                .then(|| (indent.to_owned(), yaml::newline_at(&self.text, line.end), line.end))
        })
    }

    /// The line of a key, with its line break, where nothing else stands in it.
    fn whole_line(&self, map: &Node, name: &str) -> Option<std::ops::Range<usize>> {
        let (key, value) = map.get(name)?;
        let line = yaml::line_at(&self.text, key.range.start);
        let before = self.text[line.start..key.range.start].trim().is_empty();
        let after = self.text.get(value.range.end..line.end)?.trim().is_empty();
        let next = self.text[line.end..].find('\n').map(|newline| line.end + newline + 1)?;
        (before && after && map.pairs().len() > 1).then_some(line.start..next)
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

fn inherits(node: &Node, anchor: usize) -> bool {
    match &node.kind {
        Kind::Alias(other) => *other == anchor,
        Kind::Map(pairs) => pairs.iter().any(|(_, value)| inherits(value, anchor)),
        Kind::List(values) => values.iter().any(|value| inherits(value, anchor)),
        Kind::Scalar { .. } => false,
    }
}

fn by_hand(protocol: Protocol, to: &Endpoint) -> String {
    match (protocol, to) {
        (Protocol::Postgres, Endpoint::Unix(path)) => {
            let folder = path.parent().unwrap_or(path).display().to_string();
            format!("in the environment: host: {folder}")
        }
        (_, Endpoint::Unix(path)) => {
            format!("in the environment: host: localhost, socket: {}", path.display())
        }
        (_, Endpoint::Tcp { host, port }) => {
            format!("in the environment: host: {host}, port: {port}, and no socket")
        }
        _ => "in the environment: host: 127.0.0.1".into(),
    }
}
