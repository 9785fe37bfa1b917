//! Blocker `accounts`: the account depends on the transport, `u@127.0.0.1` against `u@localhost`,
//! `host … scram` against `local … peer`. Reads pg_hba.conf where permissions allow it; never tries a password.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Process, Weight};
use samehost_services::{Kind, Protocol};
use samehost_system::open;

use super::pair::Pair;
use super::{Finding, show};

/// Size limit for pg_hba.conf, in bytes.
const LONGEST: u64 = 1 << 20;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    match pair.service.kind? {
        kind if kind.protocol() == Some(Protocol::Mysql) => Some(Finding::new(
            Weight::Note,
            kind.descriptor().on_a_socket.first()?.clone(),
            "Log in over the socket as the application before the switch: mysql --protocol=socket -u USER -p"
                .to_owned(),
        )),
        Kind::Postgres => postgres(pair),
        _ => None,
    }
}

fn postgres(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let user = client.user.clone().unwrap_or_else(|| client.uid.to_string());
    let found = rule_of_socket(pair.server()?, &user)??;
    let remedy = "Add a line above it for the application: local DATABASE ROLE scram-sha-256; then reload";
    Some(Finding::new(Weight::Setting, found, remedy.to_owned()))
}

/// What the first rule of pg_hba.conf for everybody's socket connections asks of a user of the system beside his password. The outer
/// None where the file cannot be read.
#[must_use]
pub fn rule_of_socket(server: &Process, user: &str) -> Option<Option<String>> {
    let environment = open::proc_file(&format!("/proc/{}/environ", server.pid), LONGEST).unwrap_or_default();
    let paths = rules_paths(&server.command_line, &environment);
    let (text, path) = paths.into_iter().find_map(|path| Some((rules_text(server, &path)?, path)))?;
    let local = rules(&text).find(|rule| rule.kind == "local");
    Some(local.filter(|local| local.method == "peer" || local.method == "ident").map(|local| {
        format!(
            "{}, line {}: `{}` lets user {user} of this system in as role {user} only",
            show(&path),
            local.line,
            local.text
        )
    }))
}

/// Text of the access rules. Their path comes from a command line or environment, which a process can rewrite: only a
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
    let beside = parameter(words, "config_file").and_then(|path| Path::new(path).parent());
    let mut variables = environment.split(|byte| *byte == 0);
    let in_environment = variables.find_map(|variable| variable.strip_prefix(b"PGDATA="));
    let folder = data_option(words).map(OsStr::new).or(in_environment.map(OsStr::from_bytes)).map(Path::new);
    beside.into_iter().chain(folder).map(|folder| folder.join("pg_hba.conf")).collect()
}

/// Value of a parameter on PostgreSQL's command line, where the last one counts: `-c NAME=VALUE`, `-cNAME=VALUE` or
/// `--NAME=VALUE`, with `-` for `_` if wanted.
fn parameter<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    words.iter().rev().find_map(|word| {
        let assignment = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
        let (left, value) = assignment.split_once('=')?;
        (left.replace('-', "_") == name).then_some(value)
    })
}

/// Value of the option `-D DIR` or `-DDIR`; the last one counts.
fn data_option(words: &[String]) -> Option<&str> {
    words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix("-D")? {
        "" => words.get(at + 1).map(String::as_str),
        attached => Some(attached),
    })
}

struct Rule<'a> {
    line: usize,
    text: &'a str,
    kind: &'a str,
    method: &'a str,
}

/// Rules that apply to all users. Rules for the superuser alone do not concern applications.
fn rules(text: &str) -> impl Iterator<Item = Rule<'_>> {
    text.lines().enumerate().filter_map(|(index, text)| {
        let rule = text.split('#').next().unwrap_or_default().trim();
        let fields: Vec<&str> = rule.split_whitespace().collect();
        let (kind, user) = (*fields.first()?, *fields.get(2)?);
        let method = *fields.get(if kind == "local" { 3 } else { 4 })?;
        let is_for_all = user == "all" && fields.get(1) != Some(&"replication");
        is_for_all.then_some(Rule { line: index + 1, text: rule, kind, method })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_for_everybody_counts() {
        let text = "# x\nlocal all postgres peer\nlocal   all   all   peer # c\nhost all all 127.0.0.1/32 scram-sha-256\n";
        let found: Vec<_> = rules(text).map(|rule| (rule.line, rule.kind, rule.method)).collect();
        assert_eq!(found, [(3, "local", "peer"), (4, "host", "scram-sha-256")]);
    }

    #[test]
    fn the_rules_are_found_by_the_command_line_or_the_environment() {
        let paths = |line: &str, environment: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = rules_paths(&words, environment.replace(' ', "\0").as_bytes());
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
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
