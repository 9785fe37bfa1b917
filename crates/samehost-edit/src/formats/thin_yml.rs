//! Thin's configuration (`thin start -C thin.yml`): one file for several servers. With a port they listen at that one
//! and the next; with a socket they number its name: thin.0.sock, thin.1.sock. They move together, or not at all.
//!
//! Thin creates its socket without a mask, so that everybody who reaches it may use it. Access is controlled by the
//! directory.

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};

use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::languages::erb::Masked;
use crate::languages::url::{self, is_plain_path};
use crate::languages::yaml::{self, Document, Kind, Node};
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// The editor.
#[derive(Debug)]
pub struct ThinYml;

/// Thin's default if the file says nothing.
const ADDRESS: &str = "0.0.0.0";
const PORT: u16 = 3000;
/// Limit for the number of servers.
const MOST: u16 = 512;

/// The manual edit if the file is not understood.
const BY_HAND: &str = "socket: /run/thin/thin.sock";

impl Editor for ThinYml {
    fn name(&self) -> &'static str {
        "thin-yml"
    }

    fn about(&self) -> &'static str {
        "the configuration of Thin"
    }

    fn names(&self) -> &'static [&'static str] {
        &["config/thin.yml", "thin.yml"]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let yaml = path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
        let named = path.components().any(|part| part.as_os_str().to_string_lossy().contains("thin"));
        let (mut listens, mut is_thins) = (false, named);
        for line in String::from_utf8_lossy(text).lines() {
            let Some((key, _)) = line.trim_start_matches(':').split_once(':') else { continue };
            listens |= ["port", "socket", "servers"].contains(&key);
            is_thins |= ["max_persistent_conns", "rackup"].contains(&key);
        }
        yaml && listens && is_thins
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let settings = Thin::open(file, files)?.settings()?;
        Ok(Reading { settings, refused: Vec::new() })
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let thin = Thin::open(file, files)?;
        let settings = thin.settings()?;
        let number = settings.iter().position(|one| one.name == setting.name);
        let Some((number, now)) = number.and_then(|number| Some((number, settings.get(number)?))) else {
            return Err(setting.gone());
        };
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        thin.write(number, settings.len(), &goal.endpoint).map_err(|why| {
            thin.refusal(
                now.line,
                why,
                "socket: /run/thin/thin.sock, below the port: thin.0.sock and so on are made of it",
            )
        })
    }

    fn socket(&self, setting: &Setting, path: &Path) -> PathBuf {
        match setting.name.strip_prefix("server ") {
            Some(number) => path.with_extension(format!("{number}.sock")),
            None => path.to_owned(),
        }
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(samehost_services::Kind::Thin)
    }
}

struct Thin<'a> {
    file: &'a Path,
    text: String,
    masked: Masked,
    document: Document,
}

impl<'a> Thin<'a> {
    fn open(file: &'a Path, files: &dyn Files) -> Result<Self> {
        Self::parse(file, files).map_err(|refusal| refusal.in_file(file).by_hand(BY_HAND))
    }

    fn parse(file: &'a Path, files: &dyn Files) -> Result<Self> {
        let text = lines::read_text(file, files, "it is not UTF-8")?;
        let masked = Masked::new(&text)?;
        let document = Document::parse(&masked.text)?;
        if document.root.pairs().is_empty() {
            return Err(Refusal::at(0, "it has no settings"));
        }
        Ok(Thin { file, text, masked, document })
    }

    fn refusal(&self, line: u32, reason: &str, by_hand: &str) -> Refusal {
        Refusal::new(self.file, line, reason, by_hand)
    }

    /// Key and value of a name; Thin accepts `:port` for `port`.
    fn get(&self, name: &str) -> Result<Option<&(Node, Node)>> {
        let is_it =
            |key: &Node| key.text().is_some_and(|text| text.strip_prefix(':').unwrap_or(text) == name);
        let mut found = self.document.root.pairs().iter().filter(|(key, _)| is_it(key));
        match (found.next(), found.next()) {
            (_, Some((key, _))) => {
                Err(self.refusal(key.line, &format!("{name} stands in it twice"), &format!("{name}: once")))
            }
            (first, None) => Ok(first),
        }
    }

    /// Text of a name's value, with its line.
    fn text(&self, name: &str) -> Result<Option<(&str, u32)>> {
        let Some((_, value)) = self.get(name)? else { return Ok(None) };
        let refuse =
            |why: &str| self.refusal(value.line, &format!("{name} {why}"), &format!("{name}: written out"));
        if self.masked.touches(&value.range) {
            return Err(refuse("is made by Ruby's code"));
        }
        match value.kind {
            Kind::Scalar { .. } => Ok(value.text().map(|text| (text, value.line))),
            _ => Err(refuse("is not text")),
        }
    }

    fn number(&self, name: &str, usual: u16) -> Result<u16> {
        match self.text(name)? {
            None => Ok(usual),
            Some((text, line)) => text.parse().map_err(|_| {
                self.refusal(line, &format!("{name} is not a number"), &format!("{name}: {usual}"))
            }),
        }
    }

    /// Whether there are several servers.
    fn is_row(&self) -> Result<bool> {
        Ok(self.text("servers")?.is_some())
    }

    fn settings(&self) -> Result<Vec<Setting>> {
        for name in ["only", "swiftiply", "backend", "ssl"] {
            if let Some((text, line)) = self.text(name)?
                && text != "false"
            {
                let reason = format!("{name} decides where and how it listens");
                return Err(self.refusal(
                    line,
                    &reason,
                    "socket: /run/thin/thin.sock, where that is not wanted",
                ));
            }
        }
        let servers = self.number("servers", 1)?;
        if servers == 0 || servers > MOST {
            let line = self.text("servers")?.map_or(0, |(_, line)| line);
            return Err(self.refusal(line, "it has an unusual number of servers", "servers: 1"));
        }
        let (row, port) = (self.is_row()?, self.number("port", PORT)?);
        let (address, socket) = (self.text("address")?, self.text("socket")?);
        let first = self.get("port")?.or(self.get("address")?).map_or(1, |(key, _)| key.line);
        (0..servers)
            .map(|number| {
                let (endpoint, spelled, line) = match socket {
                    Some((base, line)) => {
                        let path = if row { numbered(base, number) } else { base.to_owned() };
                        let endpoint = is_plain_path(&path).then(|| Endpoint::Unix(path.into()));
                        (endpoint, format!("socket: {base}"), line)
                    }
                    None => {
                        let host = address.map_or(ADDRESS, |(text, _)| text);
                        let port = port.checked_add(number);
                        let endpoint = port.and_then(|port| url::tcp(host, port));
                        (endpoint, format!("address: {host}, port: {}", port.unwrap_or(0)), first)
                    }
                };
                let endpoint = endpoint.ok_or_else(|| {
                    let reason = "its address, port or socket is unusual, or the socket's path relative";
                    self.refusal(line, reason, "socket: /run/thin/thin.sock")
                })?;
                Ok(Setting::listens(format!("server {number}"), Protocol::Http, spelled, endpoint)
                    .at(self.file, line))
            })
            .collect()
    }

    fn write(&self, number: usize, servers: usize, to: &Endpoint) -> Result<Vec<Edit>, &'static str> {
        const ELSEWHERE: &str = "it cannot be changed in its place";
        let number = u16::try_from(number).map_err(|_| ELSEWHERE)?;
        let row = servers > 1 || self.is_row().unwrap_or(false);
        let mut edits = Vec::new();
        match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                let path = path.ok_or("a path with such characters is not written here")?;
                let base = if row {
                    unnumbered(path, number)
                        .ok_or("Thin numbers its sockets: server 0 has to be NAME.0.sock")?
                } else {
                    path.to_owned()
                };
                edits.push(self.set("socket", &base).ok_or(ELSEWHERE)?);
            }
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() => {
                let first =
                    port.checked_sub(number).filter(|first| *first > 0).ok_or("Thin numbers its ports")?;
                if let Ok(Some((key, value))) = self.get("socket") {
                    edits.push(self.without(key, value).ok_or(ELSEWHERE)?);
                }
                let host_now = self.text("address").ok().flatten().map_or(ADDRESS, |(text, _)| text);
                if host_now != host {
                    let host = if host.contains(':') { format!("\"{host}\"") } else { host.clone() };
                    edits.push(self.set("address", &host).ok_or(ELSEWHERE)?);
                }
                if self.number("port", PORT).ok() != Some(first) {
                    let port = self.set("port", &first.to_string()).ok_or(ELSEWHERE)?;
                    // Two new lines at one position become one edit.
                    match edits.iter_mut().find(|edit| edit.range == port.range) {
                        Some(other) => other.with.extend_from_slice(&port.with),
                        None => edits.push(port),
                    }
                }
            }
            _ => return Err("only a Unix socket or plain TCP can be written here"),
        }
        Ok(edits)
    }

    /// An edit that sets a value: in place, or in a new line.
    fn set(&self, name: &str, value: &str) -> Option<Edit> {
        if let Some((_, node)) = self.get(name).ok()? {
            let inside = node.inside()?;
            let value = if inside == node.range { value } else { value.trim_matches('"') };
            return Some(Edit::new(self.file, inside, value));
        }
        let order = ["port", "address", "servers", "rackup", "chdir", "environment", "pid", "log"];
        order.iter().find_map(|other| {
            let (key, node) = self.get(other).ok()??;
            let line = yaml::line_at(&self.text, key.range.start);
            let before = self.text.get(line.start..key.range.start)?;
            let rest = self.text.get(node.range.end..line.end)?.trim_start();
            let plain = before.bytes().all(|byte| byte == b' ') && (rest.is_empty() || rest.starts_with('#'));
            let symbol = if key.text()?.starts_with(':') { ":" } else { "" };
            let with = format!("{}{before}{symbol}{name}: {value}", yaml::newline_at(&self.text, line.end));
            plain.then(|| Edit::new(self.file, line.end..line.end, with))
        })
    }

    /// An edit that takes a line away.
    fn without(&self, key: &Node, value: &Node) -> Option<Edit> {
        let line = yaml::line_at(&self.text, key.range.start);
        let alone = self.text.get(line.start..key.range.start)?.trim().is_empty()
            && self.text.get(value.range.end..line.end)?.trim().is_empty();
        let next = self.text[line.end..].find('\n').map(|newline| line.end + newline + 1);
        // Removing the last line removes the line break before it.
        let range = match next {
            Some(next) => line.start..next,
            None => yaml::line_at(&self.text, line.start.saturating_sub(1)).end..line.end,
        };
        alone.then(|| Edit::new(self.file, range, ""))
    }
}

/// Path of a socket with the number of its server, as Thin builds it: before the extension.
fn numbered(base: &str, number: u16) -> String {
    let name = base.rsplit('/').next().unwrap_or(base);
    match name.rfind('.').filter(|at| *at > 0 && at + 1 < name.len()) {
        Some(at) => {
            let at = base.len() - name.len() + at;
            format!("{}.{number}{}", &base[..at], &base[at..])
        }
        None => format!("{base}.{number}"),
    }
}

/// The path from which Thin builds this one.
fn unnumbered(path: &str, number: u16) -> Option<String> {
    let word = format!(".{number}");
    let at = path.rfind(&word)?;
    let base = format!("{}{}", &path[..at], &path[at + word.len()..]);
    (numbered(&base, number) == path).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_before_the_extension() {
        for (base, path) in [
            ("/run/thin.sock", "/run/thin.3.sock"),
            ("/run/thin", "/run/thin.3"),
            ("/run/a.b/thin", "/run/a.b/thin.3"),
            ("/run/a.3/thin.sock", "/run/a.3/thin.3.sock"),
        ] {
            assert_eq!(numbered(base, 3), path);
            assert_eq!(unnumbered(path, 3).as_deref(), Some(base));
        }
        assert_eq!(unnumbered("/run/thin.sock", 3), None);
        assert_eq!(unnumbered("/run/thin.4.sock", 3), None);
    }
}
