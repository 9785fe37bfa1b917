//! The edits of an option file that make a server listen, or a client connect, elsewhere.

use std::path::Path;

use samehost_model::Endpoint;

use super::options::{Entry, Options, quoted};
use super::{MyCnf, SERVER, client_groups, hosts, is_server, port, skips_networking, socket};
use crate::files::{Edit, Files};
use crate::lines::{self, has_only, insert_below, is_loopback, listening_host, socket_path, utf8};
use crate::proposal::verify_edits;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Role, Setting};

struct Editing<'a> {
    files: &'a dyn Files,
    options: Options,
    /// The group for new options, and those that are read with it.
    group: String,
    groups: Vec<String>,
    setting: &'a Setting,
    goal: &'a Goal,
    edits: Vec<Edit>,
}

pub(super) fn edits(
    editor: &MyCnf,
    file: &Path,
    files: &dyn Files,
    setting: &Setting,
    goal: &Goal,
) -> Result<Vec<Edit>> {
    let options = Options::read(file, files)?;
    let listens = setting.role == Role::Listens;
    let (group, groups) = if listens {
        (server_group(&options), SERVER.iter().map(|group| (*group).to_owned()).collect())
    } else {
        let group = setting.name.trim_matches(['[', ']']).to_owned();
        let groups = client_groups(&group).into_iter().map(str::to_owned).collect();
        (group, groups)
    };
    let mut editing = Editing { files, options, group, groups, setting, goal, edits: Vec::new() };
    match (&goal.endpoint, listens) {
        (Endpoint::Unix(_), true) => editing.listen_unix()?,
        (Endpoint::Tcp { host, port }, true) => editing.listen_tcp(host, *port)?,
        (Endpoint::Unix(_), false) => editing.connect_unix()?,
        (Endpoint::Tcp { host, port }, false) => editing.connect_tcp(host, *port)?,
        (other, _) => {
            return Err(editing.refuse(format!("{other} cannot be written here"), "choose a socket's path"));
        }
    }
    if listens
        && let Some(backlog) = goal.backlog
        && editing.value("back-log").and_then(|value| value.parse().ok()) != Some(backlog)
    {
        editing.set("back-log", &backlog.to_string())?;
    }
    verify_edits(editor, file, files, setting, goal, editing.edits)
}

/// The group that has the server's own options, else the first one that every server reads.
fn server_group(options: &Options) -> String {
    for entry in options.entries.iter().rev() {
        if is_server(&entry.group) && super::LISTENING.contains(&entry.name.as_str()) {
            return entry.group.clone();
        }
    }
    let first = options.blocks.iter().find(|block| is_server(&block.group));
    first.map(|block| block.group.clone()).unwrap_or_default()
}

impl Editing<'_> {
    fn refuse(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.setting.file, self.setting.line, reason, by_hand)
    }

    fn last(&self, name: &str) -> Option<&Entry> {
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        self.options.last(&groups, name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.last(name)?.value.as_deref()
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
        match socket(&self.options, SERVER).cloned() {
            Some(entry) if entry.value.as_ref() == Some(&path) => {}
            Some(entry) if self.setting.name != "server, socket" || self.goal.stays => {
                let present = entry.value.unwrap_or_default();
                return Err(Refusal::new(
                    &entry.file,
                    entry.line.number,
                    format!("the server has a socket already, {present}, and can have only one"),
                    format!("use unix:{present}, or write `socket = {path}` here"),
                ));
            }
            _ => self.set("socket", &path)?,
        }
        if self.goal.stays || self.setting.name != "server, port" {
            return Ok(());
        }
        if let Some(open) = hosts(&self.options).iter().find(|host| !is_loopback(host)) {
            return Err(self.refuse(
                format!("the server also listens at {open}, where other machines may need it"),
                "keep TCP open; or, if only this machine uses it, write `skip-networking`",
            ));
        }
        let plugin = self.options.entries.iter().find(|entry| {
            is_server(&entry.group) && matches!(entry.name.as_str(), "mysqlx-port" | "mysqlx-bind-address")
        });
        if let Some(entry) = plugin {
            return Err(Refusal::new(
                &entry.file,
                entry.line.number,
                format!("`{}`: skip-networking would close the X plugin's port as well", entry.name),
                "keep TCP open",
            ));
        }
        match self.last("skip-networking").cloned() {
            Some(entry) if entry.value.is_some() => self.replace(&entry, "1"),
            _ => self.insert("skip-networking", None),
        }
    }

    fn listen_tcp(&mut self, host: &str, wanted: u16) -> Result<()> {
        let closed = skips_networking(&self.options);
        let port = port(&self.options, SERVER);
        let hosts = hosts(&self.options);
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
        let bind = self.last("bind-address").is_some();
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
        let skips: Vec<Entry> =
            self.options.entries.iter().filter(|entry| entry.name == "skip-networking").cloned().collect();
        for entry in skips.iter().filter(|entry| SERVER.contains(&entry.group.as_str())) {
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
        if self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        if self.value("host").is_some_and(|host| !host.eq_ignore_ascii_case("localhost")) {
            self.set("host", "localhost")?;
        }
        if self.value("socket") != Some(&path) {
            self.set("socket", &path)?;
        }
        if self.value("protocol").is_some_and(|name| name.eq_ignore_ascii_case("tcp")) {
            self.set("protocol", "socket")?;
        }
        Ok(())
    }

    fn connect_tcp(&mut self, host: &str, wanted: u16) -> Result<()> {
        if self.setting.endpoint == self.goal.endpoint {
            return Ok(());
        }
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let present = port(&self.options, &groups);
        let local = host.eq_ignore_ascii_case("localhost");
        if !has_only(host, ".:-") || wanted == 0 {
            return Err(self.refuse("this address cannot be written", "write `host = 127.0.0.1`"));
        }
        if self.value("host") != Some(host) {
            self.set("host", host)?;
        }
        if present != wanted {
            self.set("port", &wanted.to_string())?;
        }
        let is_tcp = self.value("protocol").map(|name| name.eq_ignore_ascii_case("tcp"));
        if is_tcp == Some(false) || (local && is_tcp.is_none()) {
            self.set("protocol", "tcp")?;
        }
        Ok(())
    }

    /// Writes an option: in place of the effective one if that is the group's own, else as a new line.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(entry) = self.last(name).cloned() else { return self.insert(name, Some(value)) };
        let is_own = match self.setting.role {
            Role::Listens => is_server(&entry.group),
            Role::Connects => entry.group == self.group,
        };
        if is_own { self.replace(&entry, value) } else { self.insert(name, Some(value)) }
    }

    fn replace(&mut self, entry: &Entry, value: &str) -> Result<()> {
        let text = lines::read(&entry.file, self.files)?;
        let like = text.get(entry.written.clone()).unwrap_or_default();
        let with = quoted(value, like).ok_or_else(|| {
            Refusal::new(&entry.file, entry.line.number, "the value cannot be quoted", "choose another path")
        })?;
        self.edits.push(Edit::new(&entry.file, entry.written.clone(), with));
        Ok(())
    }

    fn insert(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let related = ["host", "socket", "bind-address", "port"];
        let near = related.iter().find_map(|name| {
            self.options.entries.iter().rfind(|entry| entry.group == self.group && entry.name == *name)
        });
        let near = near.filter(|entry| entry.value.is_some()).cloned();
        let block = self.options.blocks.iter().rfind(|block| block.group == self.group).cloned();
        let (file, line) = match (&near, &block) {
            (Some(entry), _) => (&entry.file, &entry.line),
            (None, Some(block)) => (&block.file, &block.line),
            (None, None) => return Err(self.refuse("its group is gone", format!("write `{name}`"))),
        };
        let text = lines::read(file, self.files)?;
        let new = match value.map(|value| quoted(value, b"").unwrap_or_default()) {
            None => name.to_owned(),
            Some(value) => like(near.as_ref().map(|entry| (entry, text.as_slice())), name, &value),
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
