//! my.cnf and its fragments: where MySQL's or MariaDB's server listens, and where its clients connect, as their
//! programs read it: the last option wins, over groups and includes. Options that only one version reads, and
//! abbreviated ones, are refused.

mod edit;
mod options;

use std::collections::HashSet;
use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::Kind;

use self::edit::Program;
use self::options::{Block, Entry, Options};
use crate::budget::Metered;
use crate::editor::Editor;
use crate::files::Edit;
use crate::lines::{self, is_loopback, listening_host};
use crate::proposal::Editing;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// Groups that every version of the server reads; clients read the last one as well.
const SERVER: &[&str] = &["mysqld", "server", "mariadb", "mariadbd", "client-server"];
/// Groups of programs that also read `[client]`.
const PROGRAMS: &[&str] = &[
    "client-mariadb", "mysql", "mariadb-client", "mysqldump", "mariadb-dump", "mysqladmin", "mariadb-admin",
    "mysqlcheck", "mariadb-check", "mysqlimport", "mysqlshow", "mysqlslap", "mysql_upgrade", "mysqlbinlog",
];
const LISTENING: &[&str] = &["socket", "port", "bind-address", "skip-networking", "back-log"];
const CONNECTING: &[&str] = &["host", "port", "socket", "protocol"];
const PORT: u16 = 3306;

pub(crate) struct MyCnf;

impl Editor for MyCnf {
    fn name(&self) -> &'static str {
        "my-cnf"
    }

    fn about(&self) -> &'static str {
        "my.cnf and its fragments: MySQL's and MariaDB's server and clients"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".cnf") {
            return false;
        }
        name.ends_with("my.cnf")
            || lines::lines(text).any(|line| begins_known_group(&text[line.range.clone()]))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        Ok(reading(&Options::read(file, files)?))
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let options = Options::read(file, files)?;
        let program = Program::of(&options, setting);
        Editing::new(file, files, &program, setting, goal)?.edits()
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Mysql)
    }
}

fn begins_known_group(line: &[u8]) -> bool {
    let line = line.trim_ascii().to_ascii_lowercase();
    let Some(rest) = line.strip_prefix(b"[") else { return false };
    let group = rest.split(|byte| *byte == b']').next().unwrap_or_default();
    let group = String::from_utf8_lossy(group);
    group == "client" || SERVER.contains(&&*group) || PROGRAMS.contains(&&*group)
}

fn reading(options: &Options) -> Reading {
    let mut reading = Reading::default();
    if let Some(block) = options.blocks.iter().find(|block| is_server(&block.group)) {
        match unsure(options, |group| is_server(group) || is_version(group), LISTENING) {
            Some(refusal) => reading.refused.push(refusal),
            None => listening(options, block, &mut reading),
        }
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for entry in &options.entries {
        let group = entry.group.as_str();
        if !CONNECTING.contains(&entry.name.as_str()) || seen.contains(group) {
            continue;
        }
        if group == "client" || PROGRAMS.contains(&group) {
            seen.insert(group);
            match unsure(options, |other| client_groups(group).contains(&other), CONNECTING) {
                Some(refusal) => reading.refused.push(refusal),
                None => connecting(options, group, entry, &mut reading),
            }
        } else if entry.name == "host" || is_numbered(group) {
            seen.insert(group);
            reading.refused.push(entry.refusal(
                format!("which program reads [{group}], and how, is not known"),
                format!("write the connection of [{group}] as that program wants it"),
            ));
        }
    }
    reading
}

fn client_groups(group: &str) -> Vec<&str> {
    let mut groups = vec!["client-server", "client"];
    if group != "client" {
        groups.push(group);
    }
    groups
}

fn is_server(group: &str) -> bool {
    SERVER[..4].contains(&group)
}

/// A group that only one version of the server reads: `mariadb-10.11`.
fn is_version(group: &str) -> bool {
    let version = ["mysqld-", "mariadb-", "mariadbd-"].iter().find_map(|prefix| group.strip_prefix(prefix));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// A group of mysqld_multi: `mysqld1`.
fn is_numbered(group: &str) -> bool {
    let number = group.strip_prefix("mysqld").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The first option that versions of the programs understand differently.
fn unsure(options: &Options, is_read: impl Fn(&str) -> bool, watched: &[&str]) -> Option<Refusal> {
    for entry in options.entries.iter().filter(|entry| is_read(&entry.group)) {
        let name = entry.name.as_str();
        if let Some(full) = watched.iter().find(|full| full.starts_with(name) && **full != name) {
            // An empty name is a prefix of every option.
            if name.is_empty() {
                continue;
            }
            return Some(entry.refusal(
                format!("`{name}` is an abbreviation of `{full}`, which versions understand differently"),
                format!("write `{full}` in full"),
            ));
        }
        let prefixes = ["loose-", "skip-", "disable-", "enable-", "maximum-", "autoset-"];
        let behind = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
        if let Some(full) = behind.filter(|full| watched.contains(full)) {
            return Some(entry.refusal(
                format!("`{name}` is `{full}` behind a prefix"),
                format!("write `{full}` without a prefix"),
            ));
        }
        if !watched.contains(&name) {
            continue;
        }
        if is_version(&entry.group) {
            let reason = format!("only one version of the server reads [{}]", entry.group);
            return Some(entry.refusal(reason, format!("write `{name}` in [mysqld] or [mariadb]")));
        }
        if !is_understood(name, entry.value.as_deref()) {
            let reason = format!("the value of `{name}` is not understood");
            return Some(entry.refusal(reason, format!("write `{name}` in its usual form")));
        }
    }
    None
}

/// Whether an option's value has the form that all versions read alike.
fn is_understood(name: &str, value: Option<&str>) -> bool {
    let Some(value) = value else { return name == "skip-networking" };
    match name {
        "port" => value.parse::<u16>().is_ok(),
        "back-log" => value.parse::<u32>().is_ok(),
        "socket" => value.starts_with('/') && !value.contains('\u{fffd}'),
        "protocol" => value.eq_ignore_ascii_case("tcp") || value.eq_ignore_ascii_case("socket"),
        "skip-networking" => truth(value).is_some(),
        _ => !value.is_empty(),
    }
}

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

fn skips_networking(options: &Options) -> bool {
    match options.last(SERVER, "skip-networking") {
        None => false,
        Some(entry) => entry.value.as_deref().is_none_or(|value| truth(value) == Some(true)),
    }
}

fn hosts(options: &Options) -> Vec<String> {
    let Some(value) = options.last(SERVER, "bind-address").and_then(|entry| entry.value.as_deref()) else {
        return vec!["0.0.0.0".into()];
    };
    let mut hosts = Vec::new();
    for host in value.split(',').map(str::trim) {
        hosts.push(if host == "*" { "0.0.0.0".into() } else { listening_host(host) });
    }
    hosts
}

fn port(options: &Options, groups: &[&str]) -> u16 {
    let port = options.last(groups, "port").and_then(|entry| entry.value.as_deref()?.parse().ok());
    port.filter(|port| *port > 0).unwrap_or(PORT)
}

fn listening(options: &Options, block: &Block, reading: &mut Reading) {
    let hosts = hosts(options);
    let host = hosts.iter().find(|host| is_loopback(host)).or_else(|| hosts.first());
    if let Some(host) = host
        && !skips_networking(options)
        && let Some(endpoint) = lines::tcp(host, port(options, SERVER))
    {
        let at = options.last(SERVER, "port").or_else(|| options.last(SERVER, "bind-address"));
        reading.settings.push(listener(options, block, "server, port", endpoint, at));
    }
    if let Some(entry) = options.last(SERVER, "socket")
        && let Some(endpoint) = entry.value.as_deref().and_then(lines::unix)
    {
        reading.settings.push(listener(options, block, "server, socket", endpoint, Some(entry)));
    }
}

/// A place where the server listens; without an option for it, it stands at the beginning of the server's group.
fn listener(options: &Options, block: &Block, name: &str, endpoint: Endpoint, at: Option<&Entry>) -> Setting {
    let (file, line) = match at {
        Some(at) => (&at.file, at.line.number),
        None => (&block.file, block.line.number),
    };
    let written = at.and_then(|at| at.value.clone()).unwrap_or_else(|| endpoint.to_string());
    let backlog = options.last(SERVER, "back-log").and_then(|entry| entry.value.as_deref()?.parse().ok());
    Setting { backlog, ..Setting::listens(name, Protocol::Mysql, written, endpoint).at(file, line) }
}

/// The password of a group; everybody uses the abbreviation `pass`.
fn password(options: &Options, groups: &[&str]) -> Option<Secret> {
    let entry = options.entries.iter().rfind(|entry| {
        groups.contains(&entry.group.as_str()) && entry.name.len() >= 4 && "password".starts_with(&entry.name)
    })?;
    let value = entry.value.clone()?;
    if value.is_empty() || value.contains('\u{fffd}') { None } else { Some(Secret::new(value)) }
}

fn connecting(options: &Options, group: &str, first: &Entry, reading: &mut Reading) {
    let groups = client_groups(group);
    let [host, protocol, user, database] = ["host", "protocol", "user", "database"]
        .map(|name| options.last(&groups, name).and_then(|entry| entry.value.clone()));
    let protocol = protocol.map(|name| name.to_ascii_lowercase());
    let local = host.as_deref().is_none_or(|host| host.eq_ignore_ascii_case("localhost"));
    let mut stop = |reason: &str, by_hand: &str| reading.refused.push(first.refusal(reason, by_hand));
    let (endpoint, at) = match (local, protocol.as_deref()) {
        (true, Some("tcp")) => {
            (lines::tcp("localhost", port(options, &groups)), options.last(&groups, "protocol"))
        }
        (true, _) => {
            let Some(entry) = options.last(&groups, "socket") else {
                return stop(
                    "it connects to the client library's own socket, whose path this file does not say",
                    "write `socket = /PATH/OF/THE.sock` below `host`, or `host = 127.0.0.1`",
                );
            };
            (entry.value.as_deref().and_then(lines::unix), Some(entry))
        }
        (false, Some("socket")) => {
            return stop(
                "`protocol = socket` with a host that is not localhost: clients differ in what they make of it",
                "write `host = localhost`",
            );
        }
        (false, _) => {
            let host = host.as_deref().unwrap_or_default();
            (lines::tcp(host, port(options, &groups)), options.last(&groups, "host"))
        }
    };
    let Some(endpoint) = endpoint else {
        return stop("its host is not an address or name", "write `host = 127.0.0.1`");
    };
    let at = at.filter(|at| at.group == group).unwrap_or(first);
    let written = at.value.clone().unwrap_or_default();
    let setting = Setting::connects(format!("[{group}]"), Protocol::Mysql, written, endpoint);
    let setting = setting.at(&at.file, at.line.number);
    reading.settings.push(Setting { user, password: password(options, &groups), database, ..setting });
}
