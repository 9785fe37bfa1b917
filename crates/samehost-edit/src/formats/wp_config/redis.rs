//! `WP_REDIS_*` of the plugin Redis Object Cache: a scheme (default `tcp`), a host and a port for it, and a path for
//! the scheme `unix`.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use super::{Known, constant, literal, write};
use crate::files::Edit;
use crate::languages::php::{Outcome, Place};
use crate::lines::{around, has_only};
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Setting};

/// The setting.
pub(super) const NAME: &str = "WP_REDIS_HOST";

/// What to write.
pub(super) const BY_HAND: &str =
    "define( 'WP_REDIS_SCHEME', 'unix' ); define( 'WP_REDIS_PATH', '/run/redis/redis-server.sock' );";

/// The plugin's constants.
pub(super) struct Found {
    scheme: Option<Known>,
    host: Option<Known>,
    port: Option<Known>,
    path: Option<Known>,
    endpoint: Endpoint,
}

impl Found {
    fn all(&self) -> impl Iterator<Item = &Known> {
        [&self.host, &self.scheme, &self.path, &self.port].into_iter().flatten()
    }

    /// The main position of the connection: new constants go below.
    fn place(&self) -> Option<&Place> {
        self.all().flat_map(|known| &known.places).next()
    }

    /// The connection.
    pub(super) fn setting(&self, outcome: &Outcome) -> Setting {
        let place = self.place();
        let written = match &self.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            _ => self
                .host
                .as_ref()
                .map_or_else(|| "127.0.0.1".into(), |host| String::from_utf8_lossy(&host.text).into_owned()),
        };
        Setting {
            password: literal(outcome, "WP_REDIS_PASSWORD").map(Secret::new),
            database: literal(outcome, "WP_REDIS_DATABASE"),
            ..Setting::connects(NAME, Protocol::Redis, written, self.endpoint.clone())
                .at(place.map_or(Path::new(""), |place| &place.file), place.map_or(0, |place| place.line))
        }
    }
}

/// The plugin's constants; `None` if the file has none of them.
pub(super) fn read(file: &Path, outcome: &Outcome) -> Result<Option<Found>> {
    let defined = &outcome.state.constants;
    let names = ["WP_REDIS_SCHEME", "WP_REDIS_HOST", "WP_REDIS_PORT", "WP_REDIS_PATH"];
    if !names.iter().any(|name| defined.contains_key(name.as_bytes())) {
        return Ok(None);
    }
    let [scheme, host, port, path] = names.map(|name| constant(file, outcome, name));
    let (scheme, host, port, path) = (scheme?, host?, port?, path?);
    let mut found =
        Found { scheme, host, port, path, endpoint: Endpoint::Tcp { host: "127.0.0.1".into(), port: 6379 } };
    let refusal = |reason: &str| {
        let place = found.place();
        let (file, line) = place.map_or((file, 0), |place| (place.file.as_path(), place.line));
        Refusal::new(file, line, reason, BY_HAND)
    };
    let many = ["WP_REDIS_SERVERS", "WP_REDIS_CLUSTER", "WP_REDIS_SHARDS", "WP_REDIS_SENTINEL"];
    if many.iter().any(|name| defined.contains_key(name.as_bytes())) {
        return Err(refusal("WP_REDIS_HOST is one of several Redis servers here"));
    }
    if !found.all().all(|known| known.text.iter().all(u8::is_ascii_graphic)) {
        return Err(refusal("the WP_REDIS_* constants have characters that no server's name has"));
    }
    let [scheme, host, port, path] = [&found.scheme, &found.host, &found.port, &found.path]
        .map(|known| String::from_utf8(known.as_ref()?.text.clone()).ok());
    let scheme = scheme.unwrap_or_else(|| "tcp".into()).to_ascii_lowercase();
    let host = host.unwrap_or_else(|| "127.0.0.1".into());
    let port = port.unwrap_or_else(|| "6379".into());
    let endpoint = match scheme.as_str() {
        "unix" => path.filter(|path| path.starts_with('/')).map(|path| Endpoint::Unix(path.into())),
        "tcp" | "tls" if host.is_empty() || host.contains([':', '/']) => None,
        "tcp" => port.parse().ok().map(|port| Endpoint::Tcp { host, port }),
        "tls" => port.parse().ok().map(|port| Endpoint::TcpTls { host, port }),
        _ => None,
    };
    let endpoint =
        endpoint.ok_or_else(|| refusal("the WP_REDIS_* constants are not understood as one server"))?;
    found.endpoint = endpoint;
    Ok(Some(found))
}

/// The constants with another server in them.
pub(super) fn edit(found: &Found, outcome: &Outcome, goal: &Goal) -> Result<Vec<Edit>> {
    if found.endpoint == goal.endpoint {
        return Ok(Vec::new());
    }
    let Some(anchor) = found.place() else { return Ok(Vec::new()) };
    let here = At { file: &anchor.file, line: anchor.line };
    let wanted: Vec<(&str, &Option<Known>, String, &str)> = match &goal.endpoint {
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or_else(|| here.refusal("the path is not text", BY_HAND))?;
            vec![
                ("WP_REDIS_SCHEME", &found.scheme, "unix".into(), "tcp"),
                ("WP_REDIS_PATH", &found.path, path.into(), ""),
            ]
        }
        Endpoint::Tcp { host, port } if !host.contains(':') => vec![
            ("WP_REDIS_SCHEME", &found.scheme, "tcp".into(), "tcp"),
            ("WP_REDIS_HOST", &found.host, host.clone(), "127.0.0.1"),
            ("WP_REDIS_PORT", &found.port, port.to_string(), "6379"),
        ],
        _ => return Err(here.refusal(format!("WP_REDIS_* is not written for {}", goal.endpoint), BY_HAND)),
    };
    let mut edits = Vec::new();
    let mut lines = Vec::new();
    for (name, known, value, default) in wanted {
        match known {
            Some(known) if known.text == value.as_bytes() => {}
            Some(known) => {
                for place in &known.places {
                    // A port is a number, and stays one.
                    let number = name == "WP_REDIS_PORT"
                        && place.quoting == crate::languages::php::Quoting::Expression;
                    if number {
                        edits.push(Edit::new(&place.file, place.range.clone(), value.clone()));
                    } else {
                        edits.push(write(place, name, &value)?);
                    }
                }
            }
            None if value == default => {}
            None => lines.push((name, value)),
        }
    }
    if !lines.is_empty() {
        edits.push(insert(anchor, outcome, &lines).map_err(|why| here.refusal(why, BY_HAND))?);
    }
    Ok(edits)
}

/// New constants on lines of their own, below a statement and in its style.
fn insert(anchor: &Place, outcome: &Outcome, lines: &[(&str, String)]) -> Result<Edit, &'static str> {
    let alone = "the WP_REDIS_* constants stand where no line can be added";
    let source = outcome.sources.iter().find(|source| source.path == anchor.file).ok_or(alone)?;
    let mut node =
        source.root().descendant_for_byte_range(anchor.range.start, anchor.range.end).ok_or(alone)?;
    while node.kind() != "expression_statement" {
        node = node.parent().ok_or(alone)?;
    }
    let block = node
        .parent()
        .is_some_and(|parent| matches!(parent.kind(), "program" | "compound_statement" | "colon_block"));
    let text = source.of(node);
    let indentation = source.slice(around(&source.text, node.start_byte()).start..node.start_byte());
    let plain = text.ends_with(b";") && text.len() > 7 && text[..6].eq_ignore_ascii_case(b"define");
    if !block || !plain || !indentation.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(alone);
    }
    let end = around(&source.text, node.end_byte()).end;
    // A comment after the statement belongs to it; after anything else the statement is not alone on its line.
    let behind = source.slice(node.end_byte()..end).trim_ascii();
    let comment = behind.starts_with(b"//") || behind.starts_with(b"#");
    let at = if behind.is_empty() || comment { end } else { node.end_byte() };
    let carriage = source.text.get(at.wrapping_sub(1)) == Some(&b'\r');
    let ending: &[u8] = if source.text.windows(2).any(|two| two == b"\r\n") { b"\r\n" } else { b"\n" };
    let at = if carriage { at - 1 } else { at };
    let space = if text.get(7) == Some(&b' ') { " " } else { "" };
    let mut with = Vec::new();
    for (name, value) in lines {
        let number = *name == "WP_REDIS_PORT";
        let value = if number { value.clone() } else { format!("'{value}'") };
        if !has_only(&value, "'/._@+,=~:-") {
            return Err("the new value has characters that are not written here");
        }
        with.extend_from_slice(ending);
        with.extend_from_slice(indentation);
        with.extend_from_slice(format!("define({space}'{name}', {value}{space});").as_bytes());
    }
    Ok(Edit::new(&anchor.file, at..at, with))
}
