//! The edits that move a connection: in the environment itself, never in what it shares.

use std::ops::Range;

use samehost_model::{Endpoint, Protocol};

use super::{Adapter, Environment, Value, Yml, spelling};
use crate::files::{Edit, minimal};
use crate::languages::url::{self, Url, is_plain_path, postgres_directory};
use crate::languages::yaml::{self, Kind, Node};
use crate::refusal::{Reason, Result};
use crate::setting::Setting;

impl Yml<'_> {
    pub(super) fn write(
        &self,
        environment: &Environment<'_>,
        now: &Setting,
        to: &Endpoint,
    ) -> Result<Vec<Edit>> {
        let map = environment.map;
        let refuse =
            |why: Reason| self.wrong(environment, now.line, &why.to_string(), &by_hand(now.protocol, to));
        let url = match map.text() {
            Some(text) => Some((text, Value { node: map, own: true })),
            None => self.literal(map, "url")?,
        };
        if let Some((text, value)) = url {
            return self.write_url(text, value, to).map_err(refuse);
        }
        let adapter = self.adapter(map)?.ok_or_else(|| refuse("it has no adapter".into()))?;
        let mut dropped = None;
        let host = self.literal(map, "host")?.map(|(text, _)| text);
        let port = match self.literal(map, "port")? {
            Some((text, _)) => text.to_owned(),
            None => url::usual_port(adapter.protocol()).to_string(),
        };
        let wanted = match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                let path = path.ok_or_else(|| refuse("such a path is not written here".into()))?;
                at_socket(adapter, host, &port, path).map_err(refuse)?
            }
            Endpoint::Tcp { host: goal, port: number } if url::tcp(goal, *number).is_some() => {
                let wanted = at_port(adapter, host, &port, (goal, *number)).map_err(refuse)?;
                dropped = self.literal(map, "socket")?.map(|(_, value)| value);
                wanted
            }
            _ => return Err(refuse("only a Unix socket or plain TCP can be written here".into())),
        };
        self.edits(map, &wanted, dropped, adapter).map_err(refuse)
    }

    fn write_url(&self, text: &str, value: Value<'_>, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
        let parsed = Url::parse(text).ok_or("its URL is unusual")?;
        let spelling = spelling(&parsed).ok_or("its URL is unusual")?;
        let written = spelling.write(&parsed, to)?;
        let inside = value
            .node
            .inside()
            .filter(|_| value.own)
            .ok_or("its URL stands where it is inherited from, or goes over several lines")?;
        let edit = minimal(self.file, inside.start, text, &written.text());
        Ok(edit.into_iter().collect())
    }

    /// The edits that give an environment these values of its own, and remove its socket.
    fn edits(
        &self,
        map: &Node,
        wanted: &[(&str, String)],
        dropped: Option<Value<'_>>,
        adapter: Adapter,
    ) -> Result<Vec<Edit>, Reason> {
        const SHARED: &str = "it is shared with others";
        if map.anchor != 0 && self.document.root.pairs().iter().any(|(_, value)| inherits(value, map.anchor))
        {
            return Err(SHARED.into());
        }
        let mut edits = Vec::new();
        let mut lines = String::new();
        // A removed line cannot hold another edit.
        let place = self.place(map, if dropped.is_some() { "" } else { "socket" });
        for (key, value) in wanted {
            match map.get(key) {
                Some((_, node)) if matches!(node.kind, Kind::Alias(_)) => return Err(SHARED.into()),
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
                            return Err("an empty value has a comment beside it".into());
                        }
                        edits.push(Edit::new(self.file, colon..colon, format!(" {value}")));
                    }
                    None => return Err("its value goes over several lines or has escapes".into()),
                },
                None => {
                    let (_, start) = place.as_ref().ok_or("it is written on one line")?;
                    lines += &format!("{start}{key}: {value}");
                }
            }
        }
        if !lines.is_empty()
            && let Some((at, _)) = place
        {
            edits.push(Edit::new(self.file, at..at, lines));
        }
        if let Some(value) = dropped {
            match self.whole_line(map, "socket").filter(|_| value.own) {
                Some(range) => edits.push(Edit::new(self.file, range, "")),
                // mysql2 prefers the host to the socket in any case.
                None if adapter == Adapter::Mysql2 => {}
                None => return Err("its socket is inherited".into()),
            }
        }
        Ok(edits)
    }

    /// Where an environment gets a new line, and what that begins with: below the host, or whatever else names the server.
    fn place(&self, map: &Node, socket: &str) -> Option<(usize, String)> {
        for name in ["port", "host", socket, "adapter", "<<", "database"] {
            let Some((key, value)) = map.get(name) else { continue };
            let line = yaml::line_at(&self.text, key.range.start);
            let indent = &self.text[line.start..key.range.start];
            let is_one_line = value.range.end <= line.end
                && (value.text().is_some() || matches!(value.kind, Kind::Alias(_)));
            let end = value.range.end.max(key.range.end);
            let Some(rest) = self.text.get(end..line.end) else { continue };
            let rest = rest.trim_start();
            let is_alone =
                indent.bytes().all(|byte| byte == b' ') && (rest.is_empty() || rest.starts_with('#'));
            if is_one_line && is_alone && !self.masked.touches(&line) {
                let newline = yaml::newline_at(&self.text, line.end);
                return Some((line.end, format!("{newline}{indent}")));
            }
        }
        None
    }

    /// Line of a key, with its line break, if nothing else is in it.
    fn whole_line(&self, map: &Node, name: &str) -> Option<Range<usize>> {
        let (key, value) = map.get(name)?;
        let line = yaml::line_at(&self.text, key.range.start);
        let before = self.text[line.start..key.range.start].trim().is_empty();
        let after = self.text.get(value.range.end..line.end)?.trim().is_empty();
        let next = self.text[line.end..].find('\n').map(|newline| line.end + newline + 1)?;
        (before && after && map.pairs().len() > 1).then_some(line.start..next)
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

type Pair = (&'static str, String);

fn at_socket(adapter: Adapter, host: Option<&str>, port: &str, path: &str) -> Result<Vec<Pair>, Reason> {
    let mut wanted = Vec::new();
    if adapter == Adapter::Postgres {
        let (directory, number) = postgres_directory(path)?;
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
    Ok(wanted)
}

fn at_port(
    adapter: Adapter,
    host: Option<&str>,
    port: &str,
    (goal, number): (&str, u16),
) -> Result<Vec<Pair>, Reason> {
    if adapter != Adapter::Postgres && goal == "localhost" {
        return Err("`localhost` is a socket to the MySQL library: 127.0.0.1 is not".into());
    }
    let mut wanted = Vec::new();
    if host != Some(goal) {
        wanted.push(("host", if goal.contains(':') { format!("\"{goal}\"") } else { goal.to_owned() }));
    }
    if number.to_string() != port {
        wanted.push(("port", number.to_string()));
    }
    Ok(wanted)
}
