//! A service of a Compose file: its image, its variables, and what of it can be edited: a variable's value, and the volume that
//! is mounted in it and declared.

use std::ops::Range;
use std::rc::Rc;

use super::Project;
use super::image::{Server, name_of};
use super::words::Client;
use crate::files::Edit;
use crate::languages::yaml::{Kind, Node, line_at, newline_at};
use crate::refusal::Reason;

#[derive(Clone, Debug)]
pub(super) struct Service<'a> {
    pub(super) name: String,
    pub(super) map: &'a Node,
    pub(super) variables: Rc<[Variable]>,
    pub(super) client: Rc<Client>,
}

#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    /// The text; `None` if Compose interpolates it, or it comes from outside.
    pub(super) value: Option<String>,
    pub(super) filled: bool,
    pub(super) line: u32,
    pub(super) range: Range<usize>,
    /// Whether it is `- NAME=value` rather than `NAME: value`.
    pub(super) listed: bool,
    /// Node of the pair or the item, for its line.
    pub(super) at: usize,
}

fn variables(map: &Node) -> Vec<Variable> {
    let Some(environment) = map.value("environment") else { return Vec::new() };
    let mut found = Vec::new();
    match &environment.kind {
        Kind::Map(pairs) => {
            for (key, value) in pairs.iter() {
                let Some(name) = key.text() else { continue };
                let inside = value.inside();
                found.push(Variable {
                    name: name.to_owned(),
                    filled: value.text().is_some_and(|text| text.contains('$')),
                    value: inside.as_ref().and(value.text()).and_then(plain),
                    line: key.line,
                    range: inside.unwrap_or(0..0),
                    listed: false,
                    at: key.range.start,
                });
            }
        }
        Kind::List(items) => {
            for item in items {
                let Some(text) = item.text() else { continue };
                let inside = item.inside();
                let name = text.split('=').next().unwrap_or(text);
                let value = text.split_once('=').map(|(_, value)| value);
                let start = inside.as_ref().map_or(0, |inside| inside.start + name.len() + 1);
                found.push(Variable {
                    name: name.to_owned(),
                    filled: text.contains('$'),
                    value: inside.as_ref().and(value).and_then(plain),
                    line: item.line,
                    range: inside.map_or(0..0, |inside| start.min(inside.end)..inside.end),
                    listed: true,
                    at: item.range.start,
                });
            }
        }
        _ => {}
    }
    found
}

fn plain(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.contains('$'))
}

impl<'a> Service<'a> {
    pub(super) fn of(name: &str, map: &'a Node) -> Self {
        let variables = variables(map);
        let values = variables.iter().map(|one| (one.name.as_str(), one.value.as_deref()));
        let image = map.value("image").and_then(Node::text).map(name_of);
        let client = Rc::new(Client::new(image, values));
        Service { name: name.to_owned(), map, variables: variables.into(), client }
    }

    fn get(&self, name: &str) -> Option<&'a Node> {
        self.map.value(name)
    }

    pub(super) fn image(&self) -> Option<&'a str> {
        Some(name_of(self.get("image")?.text()?))
    }

    pub(super) fn server(&self) -> Option<Server> {
        Server::of_database(self.get("image")?.text()?)
    }

    /// The variable of a name, if it appears once.
    pub(super) fn variable(&self, name: &str) -> Option<&Variable> {
        Some(&self.variables[self.client.place(name)?])
    }

    /// The files that Compose reads for it; `None` if that is not clear.
    pub(super) fn files(&self) -> Option<Vec<String>> {
        if self.get("extends").is_some() || self.get("label_file").is_some() {
            return None;
        }
        for (key, value) in self.map.pairs() {
            let is_merged = key.text() == Some("<<") || matches!(value.kind, Kind::Alias(_));
            if is_merged {
                return None;
            }
        }
        let Some(named) = self.get("env_file") else { return Some(Vec::new()) };
        match &named.kind {
            Kind::List(items) => items.iter().map(|item| item.text().and_then(plain)).collect(),
            _ => Some(vec![plain(named.text()?)?]),
        }
    }

    /// Why its lines may not be all that counts for it; `None` if they are.
    pub(super) fn unclear(&self) -> Option<&'static str> {
        if has_alias(self.map) || self.map.anchor != 0 {
            return Some("it takes words from elsewhere in the file, or gives them");
        }
        let twice = ["environment", "volumes", "image"].iter().any(|name| self.map.twice(name));
        let reasons = [
            (self.get("extends").is_some(), "it extends another service"),
            (self.get("deploy").is_some(), "it may run on several machines"),
            (self.get("network_mode").is_some(), "it has a network of its own"),
            (self.get("profiles").is_some(), "it runs in some profiles only"),
            (twice, "a key stands in it twice"),
        ];
        for (is_so, reason) in reasons {
            if is_so {
                return Some(reason);
            }
        }
        None
    }

    /// Why a database may have another socket than its image's; `None` if it has not.
    pub(super) fn changes_socket(&self) -> Option<&'static str> {
        let [command, volumes, configs] =
            ["command", "volumes", "configs"].map(|name| self.get(name).map(words).unwrap_or_default());
        if command.contains("socket") || self.get("entrypoint").is_some() || self.get("user").is_some() {
            return Some("its server is started in a way that may change its socket");
        }
        for target in ["/etc/mysql", "/etc/my.cnf", "/etc/postgresql", "postgresql.conf"] {
            if [&command, &volumes, &configs].iter().any(|words| words.contains(target)) {
                return Some("its server has a configuration of its own, which may change its socket");
            }
        }
        None
    }

    pub(super) fn mounts(&self, directory: &str) -> Option<&'a str> {
        let Kind::List(items) = &self.get("volumes")?.kind else { return None };
        for item in items {
            let Some(text) = item.text() else { continue };
            let mut parts = text.split(':');
            let (Some(source), Some(target)) = (parts.next(), parts.next()) else { continue };
            let is_usual = parts.next().is_none_or(|mode| ["rw", "ro", "z", "Z"].contains(&mode));
            if target.trim_end_matches('/') == directory && is_usual && !source.contains('$') {
                return Some(source);
            }
        }
        None
    }

    pub(super) fn covers(&self, directory: &str) -> bool {
        if self.get("tmpfs").is_some_and(|node| words(node).contains("/run")) {
            return true;
        }
        let volumes = self.get("volumes").map(words).unwrap_or_default();
        volumes.split([':', ' ']).any(|word| {
            let word = word.trim_end_matches('/');
            word == directory
                || word.starts_with(&format!("{directory}/"))
                || (word.len() > 1 && directory.starts_with(&format!("{word}/")))
        })
    }
}

/// Whether a node takes something from elsewhere in the file: an alias, or a merge key.
fn has_alias(node: &Node) -> bool {
    match &node.kind {
        Kind::Alias(_) => true,
        Kind::Map(pairs) => pairs.iter().any(|(key, value)| key.text() == Some("<<") || has_alias(value)),
        Kind::List(values) => values.iter().any(has_alias),
        Kind::Scalar { .. } => false,
    }
}

fn words(node: &Node) -> String {
    match &node.kind {
        Kind::Scalar { text, .. } => format!("{text} "),
        Kind::Map(pairs) => pairs.iter().map(|(key, value)| words(key) + &words(value)).collect(),
        Kind::List(values) => values.iter().map(words).collect(),
        Kind::Alias(_) => "* ".into(),
    }
}

const ONE_LINE: &str = "its volumes are not written as a list of lines";

impl Project<'_> {
    pub(super) fn mount(&self, service: &Service<'_>, source: &str, directory: &str) -> Result<Edit, Reason> {
        let volume = format!("{source}:{directory}");
        match service.map.get("volumes") {
            Some((_, list)) => {
                let Kind::List(items) = &list.kind else { return Err(ONE_LINE.into()) };
                let first = items.first().ok_or(ONE_LINE)?;
                let line = line_at(&self.text, first.range.start);
                let before = self.before(first)?;
                let dash = before.trim_start();
                if !dash.starts_with('-') || !dash[1..].trim().is_empty() {
                    return Err(ONE_LINE.into());
                }
                let newline = newline_at(&self.text, line.end);
                Ok(Edit::new(self.file, line.start..line.start, format!("{before}{volume}{newline}")))
            }
            None => {
                let (indent, newline, at) = self.below(service.map)?;
                let with = format!("{newline}{indent}volumes:{newline}{indent}  - {volume}");
                Ok(Edit::new(self.file, at..at, with))
            }
        }
    }

    /// Declares a volume in the file; `None` if it is declared.
    pub(super) fn declare(&self, name: &str) -> Result<Option<Edit>, Reason> {
        let Some((_, volumes)) = self.document.root.get("volumes") else {
            let newline = newline_at(&self.text, self.text.len());
            let break_before = if self.text.ends_with('\n') { "" } else { newline };
            let end = self.text.len();
            let with = format!("{break_before}{newline}volumes:{newline}  {name}:{newline}");
            return Ok(Some(Edit::new(self.file, end..end, with)));
        };
        if volumes.get(name).is_some() {
            return Ok(None);
        }
        let (first, _) = volumes.pairs().first().ok_or("its volumes are declared in an unusual way")?;
        let line = line_at(&self.text, first.range.start);
        let before = self.before(first)?;
        if !before.bytes().all(|byte| byte == b' ') || before.is_empty() {
            return Err("its volumes are declared on one line".into());
        }
        let newline = newline_at(&self.text, line.end);
        Ok(Some(Edit::new(self.file, line.start..line.start, format!("{before}{name}:{newline}"))))
    }

    /// A new variable below another's line.
    pub(super) fn variable(&self, above: &Variable, name: &str, value: &str) -> Result<Edit, Reason> {
        let line = line_at(&self.text, above.at);
        let before = self.text.get(line.start..above.at).unwrap_or_default();
        let written = if above.listed && before.trim_start().starts_with('-') {
            format!("{before}{name}={value}")
        } else if !above.listed && before.bytes().all(|byte| byte == b' ') {
            format!("{before}{name}: {value}")
        } else {
            return Err("its variables are written on one line".into());
        };
        // In a list the quote may be before the name.
        let written = written.replace(['"', '\''], "");
        Ok(Edit::new(self.file, line.end..line.end, format!("{}{written}", newline_at(&self.text, line.end))))
    }

    fn before(&self, node: &Node) -> Result<&str, Reason> {
        let line = line_at(&self.text, node.range.start);
        self.text.get(line.start..node.range.start).ok_or(ONE_LINE.into())
    }

    /// Indentation of a service's keys, and the end of a line after which a new key can be inserted.
    fn below(&self, map: &Node) -> Result<(String, &'static str, usize), Reason> {
        for name in ["image", "restart", "container_name", "build", "hostname"] {
            let Some((key, value)) = map.get(name) else { continue };
            let line = line_at(&self.text, key.range.start);
            let Some(indent) = self.text.get(line.start..key.range.start) else { continue };
            let Some(rest) = self.text.get(value.range.end..line.end) else { continue };
            let rest = rest.trim_start();
            let is_alone =
                indent.bytes().all(|byte| byte == b' ') && (rest.is_empty() || rest.starts_with('#'));
            if is_alone && value.text().is_some() {
                return Ok((indent.to_owned(), newline_at(&self.text, line.end), line.end));
            }
        }
        Err("it is written on one line".into())
    }
}
