//! The edits of an option file that make a server listen, or a client connect, elsewhere.

use samehost_model::Endpoint;

use super::options::{Entry, Options, quoted};
use super::{LISTENING, SERVER, client_groups, hosts, is_server, port, skips_networking};
use crate::files::Edit;
use crate::lines::{self, has_only, insert_below, is_loopback, listening_host, socket_path, utf8};
use crate::proposal::Editing;
use crate::refusal::Result;
use crate::setting::{Role, Setting};

/// What a server or a client reads of an option file.
pub(super) struct Program<'a> {
    options: &'a Options,
    /// The group for new options, and those that are read with it.
    group: &'a str,
    groups: Vec<&'a str>,
}

impl<'a> Program<'a> {
    pub(super) fn of(options: &'a Options, setting: &'a Setting) -> Self {
        if setting.role == Role::Listens {
            return Program { options, group: server_group(options), groups: SERVER.to_vec() };
        }
        let group = setting.name.trim_matches(['[', ']']);
        Program { options, group, groups: client_groups(group) }
    }

    fn last(&self, name: &str) -> Option<&'a Entry> {
        self.options.last(&self.groups, name)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.last(name)?.value.as_deref()
    }
}

/// The group that has the server's own options, else the first one that every server reads.
fn server_group(options: &Options) -> &str {
    for entry in options.entries.iter().rev() {
        if is_server(&entry.group) && LISTENING.contains(&entry.name.as_str()) {
            return &entry.group;
        }
    }
    options.blocks.iter().find(|block| is_server(&block.group)).map_or("", |block| &block.group)
}

impl Editing<'_, Program<'_>> {
    pub(super) fn edits(mut self) -> Result<Vec<Edit>> {
        let (program, goal) = (self.configuration, self.goal);
        let listens = self.setting.role == Role::Listens;
        match (&goal.endpoint, listens) {
            (Endpoint::Unix(_), true) => self.listen_unix()?,
            (Endpoint::Tcp { host, port }, true) => self.listen_tcp(host, *port)?,
            (Endpoint::Unix(_), false) => self.connect_unix()?,
            (Endpoint::Tcp { host, port }, false) => self.connect_tcp(host, *port)?,
            (other, _) => {
                return Err(self.refuse(format!("{other} cannot be written here"), "choose a socket's path"));
            }
        }
        if listens
            && let Some(backlog) = goal.backlog
            && program.value("back-log").and_then(|value| value.parse().ok()) != Some(backlog)
        {
            self.set("back-log", &backlog.to_string())?;
        }
        Ok(self.edits)
    }

    fn path(&self) -> Result<String> {
        let by_hand = "choose a path such as /run/mysqld/mysqld.sock, and write `socket = PATH`";
        let path = socket_path(&self.goal.endpoint).map_err(|reason| self.refuse(reason, by_hand))?;
        if quoted(path, b"").is_none() {
            return Err(self.refuse("the path has a quote or a backslash", by_hand));
        }
        Ok(path.to_owned())
    }

    fn listen_unix(&mut self) -> Result<()> {
        let path = self.path()?;
        let program = self.configuration;
        match program.last("socket") {
            Some(entry) if entry.value.as_ref() == Some(&path) => {}
            Some(entry) if self.setting.name != "server, socket" || self.goal.stays => {
                let present = entry.value.as_deref().unwrap_or_default();
                return Err(entry.refusal(
                    format!("the server has a socket already, {present}, and can have only one"),
                    format!("use unix:{present}, or write `socket = {path}` here"),
                ));
            }
            _ => self.set("socket", &path)?,
        }
        if self.goal.stays || self.setting.name != "server, port" {
            return Ok(());
        }
        if let Some(open) = hosts(program.options).iter().find(|host| !is_loopback(host)) {
            return Err(self.refuse(
                format!("the server also listens at {open}, where other machines may need it"),
                "keep TCP open; or, if only this machine uses it, write `skip-networking`",
            ));
        }
        let plugin = program.options.entries.iter().find(|entry| {
            is_server(&entry.group) && matches!(entry.name.as_str(), "mysqlx-port" | "mysqlx-bind-address")
        });
        if let Some(entry) = plugin {
            return Err(entry.refusal(
                format!("`{}`: skip-networking would close the X plugin's port as well", entry.name),
                "keep TCP open",
            ));
        }
        match program.last("skip-networking") {
            Some(entry) if entry.value.is_some() => self.replace(entry, "1"),
            _ => self.insert("skip-networking", None),
        }
    }

    fn listen_tcp(&mut self, host: &str, wanted: u16) -> Result<()> {
        let program = self.configuration;
        let closed = skips_networking(program.options);
        let port = port(program.options, SERVER);
        let hosts = hosts(program.options);
        let host = listening_host(host);
        let own = self.setting.name == "server, port";
        let by_hand =
            format!("write `bind-address = {host}` and `port = {wanted}`, and no `skip-networking`");
        if !closed && port == wanted && hosts.contains(&host) && own {
            return Ok(());
        }
        if wanted == 0 || !is_loopback(&host) {
            return Err(self.refuse("only an address that other machines do not reach is written", by_hand));
        }
        if !own && !self.goal.stays {
            return Err(self.refuse(
                "the server always has a socket, which cannot be turned off",
                format!("let it listen at both: {by_hand}"),
            ));
        }
        let bind = program.last("bind-address").is_some();
        if (bind && (!hosts.contains(&host) || hosts.iter().any(|host| !is_loopback(host))))
            || (!bind && !closed)
        {
            let reason = format!("the server listens at other addresses ({})", hosts.join(", "));
            return Err(self.refuse(reason, by_hand));
        }
        if !closed && !own && port != wanted {
            return Err(self.refuse(format!("the server has a port already, {port}"), by_hand));
        }
        if !bind {
            self.set("bind-address", &host)?;
        }
        if port != wanted {
            self.set("port", &wanted.to_string())?;
        }
        // All of them: an earlier line would take effect if only the last were removed.
        for entry in &program.options.entries {
            if entry.name != "skip-networking" || !SERVER.contains(&entry.group.as_str()) {
                continue;
            }
            if entry.value.is_some() {
                self.replace(entry, "0")?;
            } else {
                let start = entry.line.range.start;
                self.edits.push(Edit::new(&entry.file, start..start, "# "));
            }
        }
        Ok(())
    }

    fn connect_unix(&mut self) -> Result<()> {
        let path = self.path()?;
        let program = self.configuration;
        if self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        if program.value("host").is_some_and(|host| !host.eq_ignore_ascii_case("localhost")) {
            self.set("host", "localhost")?;
        }
        if program.value("socket") != Some(&path) {
            self.set("socket", &path)?;
        }
        if program.value("protocol").is_some_and(|name| name.eq_ignore_ascii_case("tcp")) {
            self.set("protocol", "socket")?;
        }
        Ok(())
    }

    fn connect_tcp(&mut self, host: &str, wanted: u16) -> Result<()> {
        if self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        let program = self.configuration;
        let present = port(program.options, &program.groups);
        let local = host.eq_ignore_ascii_case("localhost");
        if !has_only(host, ".:-") || wanted == 0 {
            return Err(self.refuse("this address cannot be written", "write `host = 127.0.0.1`"));
        }
        if program.value("host") != Some(host) {
            self.set("host", host)?;
        }
        if present != wanted {
            self.set("port", &wanted.to_string())?;
        }
        let is_tcp = program.value("protocol").map(|name| name.eq_ignore_ascii_case("tcp"));
        if is_tcp == Some(false) || (local && is_tcp.is_none()) {
            self.set("protocol", "tcp")?;
        }
        Ok(())
    }

    /// Writes an option: in place of the effective one if that is the group's own, else as a new line.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let program = self.configuration;
        let Some(entry) = program.last(name) else { return self.insert(name, Some(value)) };
        let is_own = match self.setting.role {
            Role::Listens => is_server(&entry.group),
            Role::Connects => entry.group == program.group,
        };
        if is_own { self.replace(entry, value) } else { self.insert(name, Some(value)) }
    }

    fn replace(&mut self, entry: &Entry, value: &str) -> Result<()> {
        let text = lines::read(&entry.file, self.files)?;
        let like = text.get(entry.written.clone()).unwrap_or_default();
        let with = quoted(value, like)
            .ok_or_else(|| entry.refusal("the value cannot be quoted", "choose another path"))?;
        self.edits.push(Edit::new(&entry.file, entry.written.clone(), with));
        Ok(())
    }

    fn insert(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let related = ["host", "socket", "bind-address", "port"];
        let Program { options, group, .. } = self.configuration;
        let near = related.iter().find_map(|name| options.last(&[group], name));
        let near = near.filter(|entry| entry.value.is_some());
        let block = options.blocks.iter().rfind(|block| block.group == *group);
        let (file, line) = match (near, block) {
            (Some(entry), _) => (&entry.file, &entry.line),
            (None, Some(block)) => (&block.file, &block.line),
            (None, None) => return Err(self.refuse("its group is gone", format!("write `{name}`"))),
        };
        let text = lines::read(file, self.files)?;
        let new = match value.map(|value| quoted(value, b"").unwrap_or_default()) {
            None => name.to_owned(),
            Some(value) => like(near.map(|entry| (entry, text.as_slice())), name, &value),
        };
        self.edits.push(insert_below(file, &text, line, &new));
        Ok(())
    }
}

/// A line in the style of another: its indentation, and the space around its `=`.
fn like(near: Option<(&Entry, &[u8])>, name: &str, value: &str) -> String {
    let usual = format!("{name} = {value}");
    let Some((entry, text)) = near else { return usual };
    let Some(line) = text.get(entry.line.range.start..entry.written.start).and_then(utf8) else {
        return usual;
    };
    let (Some(equals), indent) = (line.find('='), line.len() - line.trim_start().len()) else { return usual };
    let (left, right) = (line[..equals].trim_end(), &line[equals + 1..]);
    let gap = &line[left.len()..equals];
    if right.contains(['"', '\'']) {
        return usual;
    }
    // Aligned columns stay aligned.
    let gap = match gap.len() {
        0 | 1 => gap.to_owned(),
        _ if gap.contains('\t') => gap.to_owned(),
        _ => " ".repeat((left.len() - indent + gap.len()).saturating_sub(name.len()).max(1)),
    };
    format!("{}{name}{gap}={right}{value}", &line[..indent])
}
