//! The edits of redis.conf that make the server listen elsewhere.

use samehost_model::Endpoint;

use super::{Configuration, Directive, quote, words};
use crate::files::Edit;
use crate::lines::{self, Line, append, insert_below, is_loopback, lines, socket_path, utf8};
use crate::proposal::Editing;
use crate::refusal::Result;

const DEFAULT_BACKLOG: u32 = 511;

impl Editing<'_, Configuration> {
    pub(super) fn edits(mut self) -> Result<Vec<Edit>> {
        match &self.goal.endpoint {
            Endpoint::Unix(_) => self.listen_unix()?,
            Endpoint::Tcp { host, port } => self.listen_tcp(host, *port)?,
            other if *other == self.setting.endpoint => {}
            other => {
                return Err(
                    self.refuse(format!("the server cannot listen at {other}"), "choose a socket's path")
                );
            }
        }
        if self.edits.is_empty() && self.goal.endpoint == self.setting.endpoint && self.goal.backlog.is_none()
        {
            return Ok(Vec::new());
        }
        self.backlog()?;
        Ok(self.edits)
    }

    fn listen_unix(&mut self) -> Result<()> {
        let goal = self.goal;
        let path = socket_path(&goal.endpoint).map_err(|reason| {
            self.refuse(reason, "choose a path such as /run/redis/redis.sock, and write `unixsocket PATH`")
        })?;
        let perm = goal.access.as_ref().map(|access| format!("{:o}", access.mode & 0o777));
        let mut place = None;
        match self.configuration.last("unixsocket") {
            Some(at) if at.value() == path.as_bytes() => place = Some(at),
            Some(at) if at.value().is_empty() || (self.setting.name == "unixsocket" && !goal.stays) => {
                self.replace(at, path)?;
                place = Some(at);
            }
            Some(at) => {
                let present = String::from_utf8_lossy(at.value()).into_owned();
                let reason = format!("the server has a socket already, {present}, and can have only one");
                let by_hand = format!("use unix:{present}, or write `unixsocket {}` here", quote(path, b""));
                return Err(at.refusal(reason, by_hand));
            }
            None => self.insert(&format!("unixsocket {}", quote(path, b"")), "unixsocket"),
        }
        if let Some(perm) = perm {
            self.permissions(place, &perm)?;
        }
        if !goal.stays && self.setting.name != "unixsocket" {
            self.close()?;
        }
        Ok(())
    }

    /// Whether a line gives these permissions already; `None` where one of them is not understood.
    fn covers(&self, at: &Directive, socket: Option<&Directive>, perm: &str) -> Option<bool> {
        let present = u32::from_str_radix(utf8(at.value())?, 8).ok()?;
        let wanted = u32::from_str_radix(perm, 8).ok()?;
        // An existing socket that admits the clients stays as it is, because others use it.
        let path = self.goal.endpoint.path().map(|path| path.as_os_str().as_encoded_bytes());
        let is_there = socket.is_some_and(|socket| Some(socket.value()) == path);
        Some(present == wanted || (is_there && present & wanted == wanted))
    }

    fn permissions(&mut self, socket: Option<&Directive>, perm: &str) -> Result<()> {
        match self.configuration.last("unixsocketperm") {
            Some(at) if self.covers(at, socket, perm) == Some(true) => Ok(()),
            Some(at) => self.replace(at, perm),
            None => {
                let new = format!("unixsocketperm {perm}");
                match socket {
                    Some(at) if self.comment("unixsocketperm").is_none() => {
                        let text = lines::read(&at.file, self.files)?;
                        self.edits.push(insert_below(&at.file, &text, &at.line, &new));
                    }
                    _ => self.insert(&new, "unixsocketperm"),
                }
                Ok(())
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        let configuration = self.configuration;
        if let Some(tls) = configuration.last("tls-port").filter(|at| at.value() != b"0") {
            return Err(tls.refusal(
                "the server is also reached with TLS, which is meant for other machines",
                "keep TCP open; or, if nobody needs TLS, write `port 0` and `tls-port 0`",
            ));
        }
        if let Some(open) = configuration.hosts().iter().find(|host| !is_loopback(host)) {
            return Err(self.refuse(
                format!("the server also listens at {open}, where other machines may need it"),
                "keep TCP open; or, if only this machine uses it, write `port 0`",
            ));
        }
        let cluster = configuration.last("cluster-enabled");
        let cluster = cluster.filter(|at| at.value().eq_ignore_ascii_case(b"yes"));
        // One option with two names (`setConfigReplicaOfOption` in Redis' config.c): the last line of either counts.
        let replica = configuration.last_of(&["replicaof", "slaveof"]);
        let replica = replica.filter(|at| !at.value().eq_ignore_ascii_case(b"no"));
        if let Some(at) = cluster.or(replica) {
            let reason = format!("`{}`: other servers reach this one through its port", at.name);
            return Err(at.refusal(reason, "keep TCP open"));
        }
        match configuration.last("port") {
            Some(at) if at.value() == b"0" => Ok(()),
            _ => self.set("port", "0"),
        }
    }

    fn listen_tcp(&mut self, host: &str, port: u16) -> Result<()> {
        let configuration = self.configuration;
        let present = configuration.port("port", 6379);
        let (hosts, same) = (configuration.hosts(), configuration.host() == lines::listening_host(host));
        if present == port && same && self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        let by_hand = format!("write `bind {host}` and `port {port}`");
        if port == 0 || !is_loopback(host) {
            return Err(self.refuse("only an address that other machines do not reach is written", by_hand));
        }
        if self.setting.name != "unixsocket" && self.setting.name != "port" {
            return Err(self.refuse("a port with TLS is not changed", by_hand));
        }
        if present > 0 && present != port && self.setting.name == "unixsocket" {
            return Err(self.refuse(format!("the server has a port already, {present}"), by_hand));
        }
        let bind = configuration.last("bind");
        if bind.is_some() && (!same || hosts.iter().any(|host| !is_loopback(host))) {
            let reason = format!("`bind` has other addresses ({})", hosts.join(" "));
            return Err(self.refuse(reason, by_hand));
        }
        if bind.is_none() {
            if present > 0 {
                return Err(self.refuse("the server listens at every address", by_hand));
            }
            self.insert(&format!("bind {host}"), "bind");
        }
        if present != port {
            self.set("port", &port.to_string())?;
        }
        if self.setting.name == "unixsocket" && !self.goal.stays {
            // All of them: an earlier line would take effect if only the last were removed.
            for name in ["unixsocket", "unixsocketperm"] {
                for at in configuration.all(name) {
                    let start = at.line.range.start;
                    self.edits.push(Edit::new(&at.file, start..start, "# "));
                }
            }
        }
        Ok(())
    }

    fn backlog(&mut self) -> Result<()> {
        let Some(wanted) = self.goal.backlog else { return Ok(()) };
        let present = match self.configuration.last("tcp-backlog") {
            Some(at) => utf8(at.value()).and_then(|text| text.parse().ok()),
            None => Some(DEFAULT_BACKLOG),
        };
        if present == Some(wanted) { Ok(()) } else { self.set("tcp-backlog", &wanted.to_string()) }
    }

    /// Writes a directive: in place of the one that counts, or as a new one.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match self.configuration.last(name) {
            Some(at) => self.replace(at, value),
            None => {
                self.insert(&format!("{name} {value}"), name);
                Ok(())
            }
        }
    }

    fn replace(&mut self, at: &Directive, value: &str) -> Result<()> {
        let text = lines::read(&at.file, self.files)?;
        let Some(word) = at.values.first() else { return Ok(()) };
        let with = quote(value, text.get(word.range.clone()).unwrap_or_default());
        self.edits.push(Edit::new(&at.file, word.range.clone(), with));
        Ok(())
    }

    fn own_line(&self, name: &str) -> Option<Line> {
        let own = self.configuration.all(name).filter(|at| at.file == self.file);
        own.last().map(|at| at.line.clone())
    }

    /// A new line: below the comment that explains it, else below the most closely related line, else at the end.
    fn insert(&mut self, new: &str, name: &str) {
        let relations: &[&str] = match name {
            "unixsocketperm" => &["unixsocket", "tcp-backlog", "port", "bind"],
            "port" | "tcp-backlog" => &["bind", "unixsocket"],
            "bind" => &[],
            _ => &["tcp-backlog", "port", "bind"],
        };
        let mut place = self.comment(name);
        for related in relations {
            place = place.or_else(|| self.own_line(related)).or_else(|| self.comment(related));
        }
        // A server whose port was closed must be bound before the port is opened.
        if name == "bind" {
            place = place.or_else(|| self.own_line("port"));
        }
        self.edits.push(match place {
            Some(line) => insert_below(self.file, &self.text, &line, new),
            None => append(self.file, &self.text, new),
        });
    }

    /// The last commented-out line that would set a name.
    fn comment(&self, name: &str) -> Option<Line> {
        let commented = lines(&self.text).filter(|line| {
            let content = &self.text[line.range.clone()];
            let Some(hash) = content.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                return false;
            };
            if content[hash] != b'#' {
                return false;
            }
            let found = words(&self.text, line.range.start + hash + 1..line.range.end).unwrap_or_default();
            let [first, value] = found.as_slice() else { return false };
            let fits = match name {
                "unixsocket" => value.bytes.starts_with(b"/"),
                "bind" => false,
                _ => value.bytes.iter().all(u8::is_ascii_digit),
            };
            first.bytes.eq_ignore_ascii_case(name.as_bytes()) && fits
        });
        commented.last()
    }
}
