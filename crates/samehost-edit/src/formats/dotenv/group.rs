//! Connections in several variables: a host, a port, and perhaps a socket.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::lines::{Entry, Lines};
use crate::files::Edit;
use crate::languages::php::MYSQL_SOCKET;
use crate::languages::url::{is_local, is_plain_path, postgres_directory, postgres_path, tcp, usual_port};
use crate::refusal::{Reason, Refusal, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A variable of its own holds the path; the host is ignored then.
    SocketVariable(&'static str),
    /// The host is the socket's directory, and the port a part of its name.
    HostIsDirectory,
    /// The host is the path, and the port 0.
    HostIsPathPortZero,
    /// The host is the path; the port is ignored then.
    HostIsPath,
    HostWithPath,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) host: &'static str,
    /// `None` if the host contains the port.
    pub(super) port: Option<&'static str>,
    pub(super) form: Form,
    pub(super) protocol: Protocol,
}

impl Group {
    fn names(&self) -> Vec<&'static str> {
        let mut names = vec![self.host];
        names.extend(self.port);
        if let Form::SocketVariable(socket) = self.form {
            names.push(socket);
        }
        names
    }

    pub(super) fn is_there(&self, lines: &Lines) -> bool {
        let (host, socket) = (self.host, self.names().pop().unwrap_or(self.host));
        lines.last(host).is_some() || lines.last(socket).is_some_and(|entry| !is_nothing(&entry.text))
    }

    /// Refuses an entry whose value libraries may not all read as the same text.
    fn is_text(&self, entry: &Entry) -> Result<()> {
        if let Some(why) = entry.unclear {
            return Err(Refusal::at(entry.line, format!("{}: {why}", entry.name)));
        }
        if !entry.is_plain() {
            return Err(entry.refusal("is made of other variables"));
        }
        // Laravel removes quotes once more, and interprets words such as null.
        if entry.text.starts_with(['"', '\'']) || (entry.name == self.host && is_word(&entry.text)) {
            return Err(entry.refusal("has a value that is more than text"));
        }
        Ok(())
    }

    /// Its endpoint, and the entry that names it; `None` if nothing does.
    pub(super) fn read<'a>(&self, lines: &'a Lines) -> Result<Option<(Endpoint, &'a Entry)>> {
        for name in self.names() {
            if let Some(entry) = lines.last(name) {
                self.is_text(entry)?;
            }
        }
        if let Form::SocketVariable(name) = self.form
            && let Some(entry) = lines.last(name)
            && !is_nothing(&entry.text)
        {
            if !is_plain_path(&entry.text) {
                return Err(entry.refusal(UNUSUAL));
            }
            return Ok(Some((Endpoint::Unix(entry.text.as_str().into()), entry)));
        }
        let Some(entry) = lines.last(self.host) else { return Ok(None) };
        if self.form == Form::HostWithPath {
            return Ok(Some((combined(entry)?, entry)));
        }
        let port = self.number(lines)?;
        Ok(Some((self.by_host(entry, port)?, entry)))
    }

    /// The number in the variable of the port, else the usual port.
    fn number(&self, lines: &Lines) -> Result<i32> {
        let Some(port) = self.port.and_then(|name| lines.last(name)) else {
            return Ok(i32::from(usual_port(self.protocol)));
        };
        if port.text.is_empty() {
            return Err(port.refusal("is empty"));
        }
        port.text.parse().map_err(|_| port.refusal(UNUSUAL))
    }

    /// Where the host in `entry` leads with this port.
    fn by_host(&self, entry: &Entry, port: i32) -> Result<Endpoint> {
        let host = &entry.text;
        if host.is_empty() {
            return Err(entry.refusal("is empty: the library takes a place of its own"));
        }
        if self.is_mysqls() && host == "localhost" {
            return Ok(Endpoint::Unix(MYSQL_SOCKET.into()));
        }
        if let Some(refusal) = carries_more(self, entry) {
            return Err(refusal);
        }
        let path = if is_plain_path(host) { Some(Endpoint::Unix(host.into())) } else { None };
        let number = u16::try_from(port).ok();
        let endpoint = match self.form {
            Form::HostIsDirectory if host.starts_with('/') => {
                number.and_then(|port| postgres_path(host, port))
            }
            Form::HostIsPathPortZero if host.starts_with('/') => {
                if port > 0 {
                    return Err(entry.refusal("is a path, but the port beside it makes it a host name"));
                }
                path
            }
            Form::HostIsPath if host.starts_with('/') => path,
            _ => number.and_then(|port| tcp(host, port)),
        };
        endpoint.ok_or_else(|| entry.refusal(UNUSUAL))
    }

    /// Whether a library of MySQL reads the host to which `localhost` is its socket: PHP's, and Django's.
    fn is_mysqls(&self) -> bool {
        self.protocol == Protocol::Mysql
    }

    /// The variables with the values that lead to an endpoint; an empty value takes a variable back.
    pub(super) fn values(&self, to: &Endpoint) -> Result<Vec<(&'static str, String)>, Reason> {
        let path = match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                path.ok_or("a path with such characters would be read differently by different programs")?
            }
            Endpoint::Tcp { host, .. } if host == "localhost" && self.is_mysqls() => {
                return Err(
                    "`localhost` is a socket to the library, whatever the port: give 127.0.0.1".into()
                );
            }
            Endpoint::Tcp { host, port } if tcp(host, *port).is_some() => {
                return Ok(self.tcp_values(host, *port));
            }
            _ => return Err("only a Unix socket or plain TCP can be written here".into()),
        };
        Ok(match self.form {
            Form::SocketVariable(name) => vec![(name, path.to_owned())],
            Form::HostIsDirectory => {
                let (directory, port) = postgres_directory(path)?;
                self.with_port(directory.to_owned(), port.to_string())
            }
            Form::HostIsPathPortZero => self.with_port(path.to_owned(), "0".into()),
            Form::HostIsPath => vec![(self.host, path.to_owned())],
            Form::HostWithPath => vec![(self.host, format!("localhost:{path}"))],
        })
    }

    fn tcp_values(&self, host: &str, port: u16) -> Vec<(&'static str, String)> {
        let mut values = match self.form {
            Form::HostWithPath => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                vec![(self.host, format!("{host}:{port}"))]
            }
            _ => self.with_port(host.to_owned(), port.to_string()),
        };
        if let Form::SocketVariable(name) = self.form {
            values.push((name, String::new()));
        }
        values
    }

    fn with_port(&self, host: String, port: String) -> Vec<(&'static str, String)> {
        let mut values = vec![(self.host, host)];
        if let Some(name) = self.port {
            values.push((name, port));
        }
        values
    }

    pub(super) fn write(
        &self,
        file: &Path,
        lines: &Lines,
        values: &[(&'static str, String)],
    ) -> Result<Vec<Edit>> {
        let usual = usual_port(self.protocol).to_string();
        // New lines go below the port, else the host, else the socket.
        let order = [self.port, Some(self.host), self.names().pop()];
        let anchor = order.into_iter().flatten().find_map(|name| lines.last(name));
        let Some(anchor) = anchor else { return Ok(Vec::new()) };
        let mut edits: Vec<Edit> = Vec::new();
        for (name, value) in values {
            let there = lines.last(name);
            let is_needless = match there {
                None => value.is_empty() || (Some(*name) == self.port && *value == usual),
                Some(entry) => entry.text == *value || (value.is_empty() && is_nothing(&entry.text)),
            };
            if is_needless {
                continue;
            }
            if let Some(user) = lines.user_of(name) {
                return Err(user.refusal(&format!("is made of {name}, which would change with it")));
            }
            let Some(edit) = lines.set(file, name, value, anchor) else { continue };
            // Several new lines at one position become one edit.
            match edits.iter_mut().find(|other| other.range == edit.range && edit.range.is_empty()) {
                Some(other) if there.is_none() => other.with.extend_from_slice(&edit.with),
                _ => edits.push(edit),
            }
        }
        Ok(edits)
    }
}

const UNUSUAL: &str = "has an unusual value";

/// The host at the beginning of a value that has more behind it: `127.0.0.1:3306`, `localhost;unix_socket=/run/m.sock`.
fn host_of(text: &str) -> &str {
    text.split([':', ';']).next().unwrap_or(text)
}

/// Whether a host, or the one at the beginning of a value with more, is this machine.
pub(super) fn may_be_local(text: &str) -> bool {
    is_local(text) || is_local(host_of(text))
}

/// The refusal of a host variable that carries more than a host; what reads it takes it apart in a way of its own.
/// With a variable for the socket beside it the edit would look done, and what the program makes of the two is not known.
/// So the refusal says which lines to write first.
pub(super) fn carries_more(group: &Group, entry: &Entry) -> Option<Refusal> {
    let (host, rest) = entry.text.split_at_checked(host_of(&entry.text).len())?;
    let port = group.port.unwrap_or("the port");
    if let Some(number) = rest.strip_prefix(':').filter(|rest| rest.parse::<u16>().is_ok()) {
        let refusal = entry.refusal("carries the port as well, and how it is taken apart is not known");
        return Some(refusal.by_hand(format!("{}={host}, {port}={number}, then switch again", entry.name)));
    }
    if rest.starts_with(';') {
        let usual = usual_port(group.protocol);
        let by_hand = format!("{}=127.0.0.1, {port}={usual} (its server's), then switch again", entry.name);
        return Some(entry.refusal("carries a part of PDO's DSN behind the host").by_hand(by_hand));
    }
    None
}

/// Whether Laravel reads a value as null.
fn is_nothing(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "" | "null" | "(null)" | "empty" | "(empty)" | "false" | "(false)")
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && (is_nothing(text) || matches!(text.to_lowercase().as_str(), "true" | "(true)"))
}

/// WordPress' DB_HOST, parsed as by its `parse_db_host`.
fn combined(entry: &Entry) -> Result<Endpoint> {
    let text = &entry.text;
    if let Some(path) = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':'))
        && path.starts_with('/')
    {
        return if is_plain_path(path) {
            Ok(Endpoint::Unix(path.into()))
        } else {
            Err(entry.refusal(UNUSUAL))
        };
    }
    if text == "localhost" || text.is_empty() || text.starts_with("localhost:") {
        return Ok(Endpoint::Unix(MYSQL_SOCKET.into()));
    }
    let usual = 3306;
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        _ => (text.as_str(), Some(usual)),
    };
    let endpoint = port.and_then(|port| tcp(host.trim_matches(['[', ']']), port));
    endpoint.ok_or_else(|| entry.refusal(UNUSUAL))
}
