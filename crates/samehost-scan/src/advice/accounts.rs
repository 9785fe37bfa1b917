//! Blocker `accounts`: the account depends on the transport, `u@127.0.0.1` against `u@localhost`,
//! `host … scram` against `local … peer`. Reads pg_hba.conf where permissions allow it; never tries a password.

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
        kind if kind.protocol() == Some(Protocol::Mysql) => Some((
            Weight::Note,
            "an account for 'user'@'127.0.0.1' is not the one for 'user'@'localhost', which the socket uses"
                .to_owned(),
            "Log in over the socket as the application before the switch: mysql --protocol=socket -u USER -p"
                .to_owned(),
        )),
        Kind::Postgres => postgres(pair),
        _ => None,
    }
}

fn postgres(pair: &Pair<'_>) -> Option<Finding> {
    let (client, server) = (pair.client()?, pair.server()?);
    let path = rules_path(server)?;
    let text = rules_text(server, &path)?;
    let local = rules(&text).find(|rule| rule.kind == "local")?;
    if local.method != "peer" && local.method != "ident" {
        return None;
    }
    let user = client.user.clone().unwrap_or_else(|| client.uid.to_string());
    Some((
        Weight::Setting,
        format!(
            "{}, line {}: `{}` lets user {user} of this system in as role {user} only",
            show(&path),
            local.line,
            local.text
        ),
        "Add a line above it for the application: local DATABASE ROLE scram-sha-256; then reload".to_owned(),
    ))
}

/// Text of the access rules. Their path comes from a command line, which a process can rewrite: only a
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

/// Path of pg_hba.conf: `hba_file=` or the configuration's directory on the command line, else the data directory.
fn rules_path(server: &Process) -> Option<PathBuf> {
    let words = &server.command_line;
    let value = |name: &str| words.iter().find_map(|word| word.trim_start_matches('-').strip_prefix(name));
    if let Some(path) = value("hba_file=") {
        return Some(PathBuf::from(path));
    }
    let folder = match value("config_file=") {
        Some(path) => Path::new(path).parent()?.to_owned(),
        None => {
            let at = words.iter().position(|word| word == "-D")?;
            PathBuf::from(words.get(at + 1)?)
        }
    };
    Some(folder.join("pg_hba.conf"))
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
    fn the_rules_are_found_by_the_command_line() {
        let path = |line: &str| {
            let command_line = line.split(' ').map(str::to_owned).collect();
            rules_path(&Process { command_line, ..Process::default() })
        };
        let debian =
            "postgres -D /var/lib/postgresql/15/main -c config_file=/etc/postgresql/15/main/postgresql.conf";
        assert_eq!(path(debian).unwrap(), Path::new("/etc/postgresql/15/main/pg_hba.conf"));
        assert_eq!(path("postgres -D /data").unwrap(), Path::new("/data/pg_hba.conf"));
        assert!(path("postgres").is_none());
    }
}
