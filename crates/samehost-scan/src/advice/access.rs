//! Blockers of access: whether the client sees the socket, may use it, and may log in over it.
//!
//! `permissions`: the client lacks permissions on the socket or a directory above it. Every component is checked with the
//! user and groups of the running process, through the client's root, with access control lists.
//!
//! `accounts`: the account depends on the transport, `u@127.0.0.1` against `u@localhost`, `host … scram` against `local …
//! peer`. Reads pg_hba.conf where permissions allow it; never tries a password.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Process, Weight};
use samehost_services::{Kind, Protocol};
use samehost_system::accounts::{self, Names};
use samehost_system::open;

use super::pair::Pair;
use super::walk::Step;
use super::{Finding, show};
use crate::proc::status::Status;

/// Size limit for pg_hba.conf and for a process' environment, in bytes.
const LONGEST: u64 = 1 << 20;

pub(super) fn check_accounts(pair: &Pair<'_>) -> Option<Finding> {
    match pair.service.kind? {
        kind if kind.protocol() == Some(Protocol::Mysql) => Some(Finding::new(
            Weight::Note,
            kind.descriptor().on_a_socket.first()?.clone(),
            "Log in over the socket as the application before the switch: mysql --protocol=socket -u USER -p",
        )),
        Kind::Postgres => postgres(pair),
        _ => None,
    }
}

fn postgres(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let user = match &client.user {
        Some(name) => name.clone(),
        None => client.uid.to_string(),
    };
    let found = rule_of_socket(pair.server()?, &user)??;
    let remedy = "Add a line above it for the application: local DATABASE ROLE scram-sha-256; then reload";
    Some(Finding::new(Weight::Setting, found, remedy))
}

/// What PostgreSQL's pg_hba.conf asks of a user of the system who connects over the socket, beside his password. PostgreSQL
/// takes the first rule that fits, so only the first `local` rule for all users counts.
///
/// `Some(Some(words))` where that rule lets him in as the role of his own name only (`peer` or `ident`), with the file, the line
/// and the rule; `Some(None)` where it asks for something else, or where there is none; `None` where no file could be read.
#[must_use]
pub fn rule_of_socket(server: &Process, user: &str) -> Option<Option<String>> {
    let environment = open::proc_file(&format!("/proc/{}/environ", server.pid), LONGEST).unwrap_or_default();
    for path in rules_paths(&server.command_line, &environment) {
        if let Some(text) = rules_text(server, &path) {
            return Some(peer_rule(&text, &path, user));
        }
    }
    None
}

fn peer_rule(text: &str, path: &Path, user: &str) -> Option<String> {
    let local = local_rules(text).next()?;
    if local.method != "peer" && local.method != "ident" {
        return None;
    }
    Some(format!(
        "{}, line {}: `{}` lets user {user} of this system in as role {user} only",
        show(path),
        local.line,
        local.text
    ))
}

/// Text of pg_hba.conf. Its path comes from a command line or environment, which a process can rewrite: only a
/// regular file of root or of the process' user is read, through the process' own root.
fn rules_text(server: &Process, path: &Path) -> Option<String> {
    let file = open::regular_in_root(server.pid, path).ok()?;
    let owner = file.metadata().ok()?.uid();
    if owner != 0 && owner != server.uid {
        return None;
    }
    let bytes = open::bytes(&file, LONGEST).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Paths where the server may have pg_hba.conf, the surest first: the file that `hba_file` names; a file beside the
/// configuration that `config_file` names, as Debian has it; else one in the directory of `-D` or PGDATA. Never the
/// directory of `data_directory`: PostgreSQL reads no configuration there.
fn rules_paths(words: &[String], environment: &[u8]) -> Vec<PathBuf> {
    if let Some(path) = parameter(words, "hba_file") {
        return vec![PathBuf::from(path)];
    }
    let mut folders: Vec<&Path> = Vec::new();
    if let Some(path) = parameter(words, "config_file") {
        folders.extend(Path::new(path).parent());
    }
    let mut variables = environment.split(|byte| *byte == 0);
    let in_environment = variables.find_map(|variable| variable.strip_prefix(b"PGDATA="));
    if let Some(folder) = data_option(words) {
        folders.push(Path::new(folder));
    } else if let Some(folder) = in_environment {
        folders.push(Path::new(OsStr::from_bytes(folder)));
    }
    folders.into_iter().map(|folder| folder.join("pg_hba.conf")).collect()
}

/// Value of a parameter on PostgreSQL's command line, where the last one counts: `-c NAME=VALUE`, `-cNAME=VALUE` or
/// `--NAME=VALUE`, with `-` for `_` if wanted.
fn parameter<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    for word in words.iter().rev() {
        let assignment = word.strip_prefix("--").or(word.strip_prefix("-c")).unwrap_or(word);
        let Some((left, value)) = assignment.split_once('=') else { continue };
        if left.replace('-', "_") == name {
            return Some(value);
        }
    }
    None
}

/// Value of the option `-D DIR` or `-DDIR`; the last one counts.
fn data_option(words: &[String]) -> Option<&str> {
    for (at, word) in words.iter().enumerate().rev() {
        match (word.strip_prefix("-D"), words.get(at + 1)) {
            (Some(""), Some(next)) => return Some(next),
            (None | Some(""), _) => {}
            (Some(attached), _) => return Some(attached),
        }
    }
    None
}

struct Rule<'a> {
    line: usize,
    text: &'a str,
    method: &'a str,
}

/// Rules of the socket that apply to all users. Rules for the superuser alone do not concern applications.
fn local_rules(text: &str) -> impl Iterator<Item = Rule<'_>> {
    text.lines().enumerate().filter_map(|(index, text)| local_rule_for_all(index + 1, text))
}

fn local_rule_for_all(line: usize, text: &str) -> Option<Rule<'_>> {
    let text = text.split('#').next().unwrap_or_default().trim();
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields[..] {
        ["local", "replication", ..] => None,
        ["local", _, "all", method, ..] => Some(Rule { line, text, method }),
        _ => None,
    }
}

const SEARCH: u32 = 1;
/// Permission to write, which connect(2) requires on a socket.
const WRITE: u32 = 2;

pub(super) fn check_permissions(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let status = pair.client_status()?;
    let Some(root) = pair.client_root() else {
        return Some(Finding::new(
            Weight::Note,
            format!("whether uid {} may use {} cannot be checked from here", status.uid, show(&path)),
            "Run the scan as root",
        ));
    };
    let steps = root.walk(&path).ok()?;
    let (socket, directories) = steps.split_last()?;
    for directory in directories {
        if !may(&status, directory, SEARCH) {
            return Some(explain(pair, &status, directory, SEARCH));
        }
    }
    if may(&status, socket, WRITE) {
        return None;
    }
    Some(explain(pair, &status, socket, WRITE))
}

fn may(status: &Status, step: &Step, wanted: u32) -> bool {
    if status.is_above_rights(wanted, wanted == SEARCH) {
        return true;
    }
    let (owner, group) = (step.stat.st_uid, step.stat.st_gid);
    match &step.acl {
        Some(acl) => acl.gives(wanted, status, owner, group),
        None => status.may(wanted, step.mode(), owner, group),
    }
}

fn name_or_number(names: &Names, id: u32) -> String {
    match names.name(id) {
        Some(name) => name.to_owned(),
        None => id.to_string(),
    }
}

fn explain(pair: &Pair<'_>, status: &Status, step: &Step, wanted: u32) -> Finding {
    let (users, groups) = (Names::of_users(), Names::of_groups());
    let user = name_or_number(&users, status.uid);
    let group = name_or_number(&groups, step.stat.st_gid);
    let what =
        if wanted == SEARCH { "may not pass through the directory" } else { "may not write to the socket" };
    let found = format!(
        "user {user} {what} {} (mode {:04o}, {}:{group}{})",
        show(&step.path),
        step.mode(),
        name_or_number(&users, step.stat.st_uid),
        if step.acl.is_some() { ", with an access control list" } else { "" }
    );
    let of_group = match &step.acl {
        Some(acl) => acl.of_own_group(),
        None => step.mode() >> 3,
    };
    let group_helps = of_group & wanted == wanted && step.stat.st_gid != 0;
    let is_member = group_helps && accounts::members(step.stat.st_gid).contains(&user);
    let remedy = if is_member {
        let client = match pair.client() {
            Some(client) => client.name.as_str(),
            None => "the client",
        };
        format!("The user is in group {group}, but {client} was started before: restart it")
    } else if group_helps {
        format!("Add the user to the group and restart the client: usermod -aG {group} {user}")
    } else if wanted == SEARCH && step.acl.is_some() {
        format!("Name the user in its list: setfacl -m u:{user}:x {}", show(&step.path))
    } else if wanted == SEARCH {
        format!(
            "Let a common group pass: chgrp GROUP {0} and chmod g+x {0}; or put the socket elsewhere",
            show(&step.path)
        )
    } else {
        "Set the service's socket mode to 0660 and its group to one that the client is in".to_owned()
    };
    Finding::new(Weight::Setting, found, remedy)
}

// Blocker `mount-namespace`: the client does not see the socket, because of PrivateTmp, a chroot or a mount
// namespace of its own.

pub(super) fn mount_namespace(pair: &Pair<'_>) -> Option<Finding> {
    if pair.crosses_container() {
        return None;
    }
    let path = pair.path_that_client_lacks()?;
    let (client, server) = (pair.client()?, pair.server()?);
    let differ = client.mount_namespace != server.mount_namespace;
    let found = format!(
        "{} does not see {}: {}",
        client.name,
        show(&path),
        if differ { "it has a mount namespace of its own" } else { "its root directory is another" }
    );
    let in_tmp = ["/tmp", "/var/tmp"].iter().any(|folder| path.starts_with(Path::new(folder)));
    let remedy = if in_tmp && differ {
        "Most likely PrivateTmp= in one of the units gives each its own /tmp. Put the socket into a folder below /run (RuntimeDirectory=), never into /tmp"
    } else if differ {
        "Share the folder with the client: BindPaths= in its unit, or a folder below /run that both see"
    } else {
        "Put the socket into a folder inside the client's root directory"
    };
    Some(Finding::new(Weight::Setting, found, remedy))
}

// Blocker `container`: client and service run in different containers, and the socket's directory is not shared.

pub(super) fn container(pair: &Pair<'_>) -> Option<Finding> {
    if !pair.crosses_container() {
        return None;
    }
    let path = pair.path_that_client_lacks()?;
    let (client, server) = (pair.client()?, pair.server()?);
    let folder = show(path.parent().unwrap_or(Path::new("/")));
    Some(Finding::new(
        Weight::Setting,
        format!(
            "{} ({}) does not see {} of {} ({})",
            client.name,
            place(client),
            show(&path),
            server.name,
            place(server)
        ),
        format!(
            "Mount the folder, not the file, into the client's container: -v {folder}:{folder}; user numbers must fit on both sides"
        ),
    ))
}

pub(super) fn place(process: &Process) -> String {
    match &process.container {
        Some(container) => container.to_string(),
        None => "on the host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_for_everybody_counts() {
        let text = "# x\nlocal all postgres peer\nlocal   all   all   peer # c\nhost all all 127.0.0.1/32 scram-sha-256\n";
        let found: Vec<_> = local_rules(text).map(|rule| (rule.line, rule.method)).collect();
        assert_eq!(found, [(3, "peer")]);
    }

    #[test]
    fn the_rules_are_found_by_the_command_line_or_the_environment() {
        fn paths(line: &str, environment: &str) -> Vec<String> {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = rules_paths(&words, environment.replace(' ', "\0").as_bytes());
            found.iter().map(|path| path.display().to_string()).collect()
        }
        let debian =
            "postgres -D /var/lib/postgresql/15/main -c config_file=/etc/postgresql/15/main/postgresql.conf";
        assert_eq!(paths(debian, "")[0], "/etc/postgresql/15/main/pg_hba.conf");
        assert_eq!(paths(debian, "")[1], "/var/lib/postgresql/15/main/pg_hba.conf");
        // What `postgres … -C hba_file` of PostgreSQL 15 prints for each.
        for line in ["postgres -D /data", "postgres -D/data", "postgres -D /other -D /data"] {
            assert_eq!(paths(line, "PGDATA=/ignored"), ["/data/pg_hba.conf"], "{line}");
        }
        assert_eq!(paths("postgres", "HOME=/x PGDATA=/data PATH=/bin"), ["/data/pg_hba.conf"]);
        for option in ["-c hba_file=/x/y", "-chba_file=/x/y", "--hba_file=/x/y", "--hba-file=/x/y"] {
            assert_eq!(paths(&format!("postgres -D /data {option}"), ""), ["/x/y"], "{option}");
        }
        // PostgreSQL refuses to start with these alone, unless its configuration names the file.
        assert!(paths("postgres --data-directory=/data", "").is_empty() && paths("postgres", "").is_empty());
    }
}
