//! Blockers of access, for the process that connects and for the user that it names.
//!
//! `permissions`: the client lacks permissions on the socket or a directory above it. Every component is checked with the
//! user and groups of the running process, through the client's root, with access control lists.
//!
//! `accounts`: the account depends on the transport, `u@127.0.0.1` against `u@localhost`, `host … scram` against `local …
//! peer`. Reads pg_hba.conf where permissions allow it; never tries a password.
//!
//! `confinement`: access is refused although file modes allow it, by SELinux, AppArmor or the unit's
//! RestrictAddressFamilies. A login as the client's user is not confined and therefore proves nothing about this.
//! Policies are not evaluated, except for combinations known to allow sockets. Landlock and seccomp filters cannot be
//! read: that a process has a filter is said where nothing explains it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Found, Process, Weight};
use samehost_services::{Kind, Protocol};
use samehost_system::accounts::{self, Names};
use samehost_system::open;

use super::pair::Pair;
use super::walk::Step;
use super::{Finding, show};
use crate::proc::status::Status;

/// Size limit for pg_hba.conf, in bytes.
const LONGEST: u64 = 1 << 20;

pub(super) fn check_accounts(pair: &Pair<'_>) -> Option<Finding> {
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

/// Permission to pass through a directory.
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
            "Run the scan as root".to_owned(),
        ));
    };
    let steps = root.walk(&path).ok()?;
    let (socket, directories) = steps.split_last()?;
    let denied = directories
        .iter()
        .find(|step| !may(&status, step, SEARCH))
        .map(|step| (step, SEARCH))
        .or_else(|| (!may(&status, socket, WRITE)).then_some((socket, WRITE)))?;
    Some(explain(pair, &status, denied.0, denied.1))
}

fn may(status: &Status, step: &Step, wanted: u32) -> bool {
    let (owner, group) = (step.stat.st_uid, step.stat.st_gid);
    status.is_above_rights(wanted, wanted == SEARCH)
        || match &step.acl {
            Some(acl) => acl.gives(wanted, status, owner, group),
            None => status.may(wanted, step.mode(), owner, group),
        }
}

fn name_or_number(names: &Names, id: u32) -> String {
    names.name(id).map_or_else(|| id.to_string(), str::to_owned)
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
    let of_group = step.acl.as_ref().map_or(step.mode() >> 3, super::walk::Acl::of_own_group);
    let group_helps = of_group & wanted == wanted && step.stat.st_gid != 0;
    let is_member = group_helps && accounts::members(step.stat.st_gid).contains(&user);
    let remedy = if is_member {
        // Supplementary groups are set when a process starts.
        let client = pair.client().map_or("the client", |client| client.name.as_str());
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

/// Unit directories, highest precedence first.
const UNITS: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// AppArmor profiles that container runtimes apply by default; they allow Unix sockets.
const OF_CONTAINERS: &[&str] = &[
    "docker-default", "cri-containerd.apparmor.d", "containers-default", "crio-default", "lxc-", "lxd-",
    "incus-",
];
/// SELinux types that are not confined.
const FREE: &[&str] = &["unconfined_t", "unconfined_service_t", "initrc_t", "kernel_t", "spc_t", "init_t"];
/// Clients and servers whose sockets the shipped policies allow, in these directories.
const ALLOWED: &[(&str, &str, &[&str])] = &[
    (
        "httpd_t",
        "mysqld_t",
        &["/var/lib/mysql/", "/run/mysqld/", "/var/run/mysqld/", "/run/mariadb/", "/var/run/mariadb/"],
    ),
    ("httpd_t", "postgresql_t", &["/run/postgresql/", "/var/run/postgresql/"]),
];

/// Confinement of both ends.
#[derive(Clone, Debug, Default)]
struct Ends<'a> {
    client: &'a str,
    /// `/proc/PID/attr/current` of client and server.
    labels: (String, String),
    /// Path of the socket.
    path: Option<PathBuf>,
    /// The client's unit, when it forbids Unix sockets.
    forbidden_by: Option<String>,
    /// Whether SELinux is permissive: it only logs what it would refuse.
    permissive: bool,
    /// Whether the client has a filter of system calls that no unit or container explains, and no Unix socket.
    filtered: bool,
}

pub(super) fn check_confinement(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    judge(&Ends {
        client: &client.name,
        labels: (label(client.pid), pair.server().map(|server| label(server.pid)).unwrap_or_default()),
        path: pair.path().or_else(|| pair.known.map(|known| PathBuf::from(&known.socket))),
        forbidden_by: forbidding_unit(client),
        permissive: open::proc_file("/sys/fs/selinux/enforce", 8).is_ok_and(|text| text.starts_with(b"0")),
        filtered: is_filtered(pair, client),
    })
}

/// Whether a process has a filter of system calls of which nothing is known: RestrictAddressFamilies= makes one, and so do
/// other sandboxes. A runtime's usual filter allows Unix sockets, a unit's file says whether it does, and a process that has
/// one open may open them.
fn is_filtered(pair: &Pair<'_>, client: &Process) -> bool {
    let status = open::proc_file(&format!("/proc/{}/status", client.pid), LONGEST).unwrap_or_default();
    let has_filter = String::from_utf8_lossy(&status)
        .lines()
        .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    let is_explained =
        client.container.is_some() || client.unit.as_deref().is_some_and(|unit| !unit_texts(unit).is_empty());
    let has_one =
        || pair.scan.sockets.iter().any(|socket| socket.kind.is_unix() && socket.pids.contains(&client.pid));
    has_filter && !is_explained && !has_one()
}

fn judge(ends: &Ends<'_>) -> Option<Finding> {
    let client = ends.client;
    if let Some(unit) = &ends.forbidden_by {
        return Some(Finding::new(
            Weight::Setting,
            format!(
                "{client} runs in {unit}, whose RestrictAddressFamilies= has no AF_UNIX: it cannot open any Unix socket"
            ),
            format!(
                "Add it: systemctl edit {unit}, [Service], RestrictAddressFamilies=AF_UNIX; then restart it"
            ),
        ));
    }
    if ends.filtered {
        return Some(Finding::new(
            Weight::Note,
            Found::with(
                format!("{client} runs under a filter of system calls (Seccomp: 2 in /proc/PID/status), which may forbid Unix sockets, as RestrictAddressFamilies= without AF_UNIX does"),
                "a login from here is not under it",
            ),
            "Have its sandbox allow AF_UNIX (systemctl edit UNIT, [Service], RestrictAddressFamilies=AF_UNIX), or give --page URL, which asks through the process itself".to_owned(),
        ));
    }
    let path = ends.path.as_deref().map_or_else(|| "its socket".to_owned(), show);
    if let Some(profile) = profile(&ends.labels.0) {
        return Some(Finding::new(
            Weight::Setting,
            Found::with(
                format!(
                    "{client} runs under the AppArmor profile {profile}, which must allow {path}, whatever its mode is"
                ),
                "a login from here is not confined by it",
            ),
            format!(
                "See that the profile has a line like `{path} rw,`, and give --page URL, which asks through the process itself; afterwards: dmesg | grep apparmor"
            ),
        ));
    }
    let (kind, server) = (selinux(&ends.labels.0)?, selinux(&ends.labels.1).unwrap_or_default());
    if FREE.contains(&kind) || kind == server || is_allowed(kind, server, ends.path.as_deref()) {
        return None;
    }
    Some(Finding::new(
        if ends.permissive { Weight::Note } else { Weight::Setting },
        Found::with(
            format!(
                "{client} runs as SELinux type {kind}, whose policy must allow {path}, whatever its mode is"
            ),
            "a login from here is not confined by it",
        ),
        format!(
            "See what it allows: sesearch -A -s {kind} -c unix_stream_socket -p connectto; and give --page URL, which asks through the process itself; afterwards: ausearch -m avc -ts recent"
        ),
    ))
}

/// Whether the usual policy lets one SELinux type connect to a socket of the other at this path.
fn is_allowed(client: &str, server: &str, path: Option<&Path>) -> bool {
    let Some(path) = path else { return false };
    ALLOWED.iter().any(|(one, other, folders)| {
        *one == client && *other == server && folders.iter().any(|folder| path.starts_with(folder))
    })
}

/// Enforced AppArmor profile; `None` without one, or when the profile is known to allow sockets.
fn profile(label: &str) -> Option<&str> {
    let label = label.trim_end_matches(['\0', '\n']).trim();
    let stack = label.strip_suffix(" (enforce)").or_else(|| label.strip_suffix(" (mixed)"))?;
    stack.split("//&").find(|profile| {
        let name = profile.rsplit("://").next().unwrap_or(profile);
        !name.ends_with("unconfined") && !OF_CONTAINERS.iter().any(|known| name.starts_with(known))
    })
}

/// The label of a process, by which AppArmor or SELinux confine it.
fn label(pid: u32) -> String {
    let bytes = open::proc_file(&format!("/proc/{pid}/attr/current"), 4096).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// SELinux type of a label; `None` for an AppArmor label.
fn selinux(label: &str) -> Option<&str> {
    let label = label.trim_end_matches(['\0', '\n']).trim();
    if label.ends_with(')') { None } else { label.split(':').nth(2) }
}

/// Unit of a process, when the unit forbids Unix sockets.
fn forbidding_unit(client: &Process) -> Option<String> {
    let unit = client.unit.clone().filter(|unit| client.container.is_none() && !unit.contains('/'))?;
    let texts = unit_texts(&unit);
    (!may_use_unix(texts.iter().map(String::as_str))).then_some(unit)
}

/// Texts of a unit file and its drop-ins, in the order in which systemd applies them.
fn unit_texts(unit: &str) -> Vec<String> {
    let template =
        unit.split_once('@').and_then(|(name, rest)| Some(format!("{name}@.{}", rest.rsplit_once('.')?.1)));
    let names: Vec<&str> = [Some(unit), template.as_deref()].into_iter().flatten().collect();
    let read =
        |path: &Path| open::read(path, LONGEST).ok().map(|text| String::from_utf8_lossy(&text).into_owned());
    let mut texts: Vec<String> = names
        .iter()
        .find_map(|name| UNITS.iter().find_map(|folder| read(&Path::new(folder).join(name))))
        .into_iter()
        .collect();
    let mut parts: Vec<PathBuf> = Vec::new();
    for folder in names
        .iter()
        .flat_map(|name| UNITS.iter().map(move |folder| Path::new(folder).join(format!("{name}.d"))))
    {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let is_new = parts.iter().all(|other| other.file_name() != path.file_name());
            if is_new && path.extension().is_some_and(|extension| extension == "conf") {
                parts.push(path);
            }
        }
    }
    parts.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    texts.extend(parts.iter().filter_map(|path| read(path)));
    texts
}

/// Whether these unit files let their processes open Unix sockets (systemd.exec(5), RestrictAddressFamilies=).
fn may_use_unix<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    // The first assignment makes it an allow list or a deny list.
    let mut list: Option<(bool, bool)> = None;
    for line in texts.flat_map(str::lines) {
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.trim() != "RestrictAddressFamilies" {
            continue;
        }
        let value = value.trim();
        let (inverted, families) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
        if families.trim().is_empty() && !inverted {
            list = None;
            continue;
        }
        if families.trim() == "none" {
            list = Some((true, false));
            continue;
        }
        let has = families.split_whitespace().any(|family| matches!(family, "AF_UNIX" | "AF_LOCAL"));
        let (allows, holds) = list.unwrap_or((!inverted, false));
        list = Some((allows, if has { allows != inverted } else { holds }));
    }
    list.is_none_or(|(allows, holds)| allows == holds)
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

    /// Weight for these labels, in the kernel's format.
    fn weight(client: &str, server: &str, path: &str) -> Option<Weight> {
        let labels = (client.to_owned(), server.to_owned());
        let ends = Ends { client: "app", labels, path: Some(path.into()), ..Ends::default() };
        judge(&ends).map(|finding| finding.weight)
    }

    #[test]
    fn what_confines_is_no_matter_of_the_login_recorded() {
        let mysql = "/run/mysqld/mysqld.sock";
        for client in
            ["php-fpm (enforce)\n", "/usr/sbin/nginx (enforce)\n", "docker-default//&snap.app (enforce)"]
        {
            assert_eq!(weight(client, "unconfined\n", mysql), Some(Weight::Setting), "{client}");
        }
        for (client, server, path) in [
            ("system_u:system_r:httpd_t:s0\0", "system_u:system_r:redis_t:s0", "/run/redis/redis.sock"),
            ("system_u:system_r:httpd_t:s0", "system_u:system_r:mysqld_t:s0", "/srv/own/mysql.sock"),
            ("system_u:system_r:container_t:s0:c1,c2", "system_u:system_r:mysqld_t:s0", mysql),
        ] {
            assert_eq!(weight(client, server, path), Some(Weight::Setting), "{client} {path}");
        }
    }

    #[test]
    fn what_confines_no_socket_is_sound_recorded() {
        let mysql = "/run/mysqld/mysqld.sock";
        for (client, server) in [
            ("unconfined\n", "/usr/sbin/mysqld (enforce)\n"),
            ("unconfined\n", "/usr/sbin/mariadbd (complain)\n"),
            ("docker-default (enforce)\n", "docker-default (enforce)\n"),
            ("cri-containerd.apparmor.d (enforce)\n", "unconfined\n"),
            (":lxd-a_<var>:unconfined//&unconfined (mixed)", "unconfined"),
            ("/usr/sbin/php-fpm8.2 (complain)\n", "unconfined\n"),
            ("system_u:system_r:httpd_t:s0\0", "system_u:system_r:mysqld_t:s0\0"),
            ("system_u:system_r:httpd_t:s0", "system_u:system_r:httpd_t:s0"),
            ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", "system_u:system_r:mysqld_t:s0"),
            ("", ""),
        ] {
            assert_eq!(weight(client, server, mysql), None, "{client}");
        }
    }

    #[test]
    fn address_families_are_taken_as_systemd_does_recorded() {
        for allowed in [
            &["[Service]\nSystemCallFilter=@system-service\n"][..],
            &["RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"],
            &["RestrictAddressFamilies=AF_INET AF_INET6", "[Service]\nRestrictAddressFamilies=AF_UNIX\n"],
            &["RestrictAddressFamilies=~AF_PACKET AF_NETLINK"],
            &["RestrictAddressFamilies=AF_INET", "RestrictAddressFamilies="],
            &["#RestrictAddressFamilies=AF_INET"],
        ] {
            assert!(may_use_unix(allowed.iter().copied()), "{allowed:?}");
        }
        for forbidden in [
            &["RestrictAddressFamilies=AF_INET AF_INET6"][..],
            &["RestrictAddressFamilies=none"],
            &["RestrictAddressFamilies=~AF_UNIX"],
            &["RestrictAddressFamilies=AF_UNIX AF_INET", "RestrictAddressFamilies=~AF_UNIX"],
        ] {
            assert!(!may_use_unix(forbidden.iter().copied()), "{forbidden:?}");
        }
        let ends = Ends { client: "app", forbidden_by: Some("app.service".into()), ..Ends::default() };
        let Finding { weight, found, remedy } = judge(&ends).unwrap();
        assert_eq!(weight, Weight::Setting);
        assert!(found.fact.contains("app.service") && remedy.contains("AF_UNIX"), "{found} {remedy}");
    }
}
