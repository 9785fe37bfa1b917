//! Blockers that the client brings: its driver, its name for the server, TLS, the address that the server sees of it, and what
//! confines it.
//!
//! Blocker `driver`: drivers, and servers in front of others, without support for Unix sockets.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use samehost_model::ObstacleCode;
use samehost_model::scan::{Found, Obstacle, Process, Weight};
use samehost_services::{Descriptor, Kind, Protocol};
use samehost_system::open;

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn driver(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let program = Path::new(client.executable.as_ref()?).file_name()?;
    if let Some(kind) = program.to_str().and_then(Kind::of_program)
        && let Some(why) = &kind.descriptor().reaches_ports_only
    {
        return Some(Finding::new(
            Weight::Blocks,
            why.clone(),
            "Put nginx, HAProxy, Caddy or Envoy in its place; or keep connections open and reuse them; or start it, as its \
             own user, under `samehost run`, which connects it over the socket",
        ));
    }
    if program != "java" {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        format!("{} is a Java program: its drivers know no Unix sockets by themselves", client.name),
        "Add junixsocket: socketFactory of Connector/J, MariaDB's localSocket, or socketFactory of pgjdbc; or start it under \
         `samehost run`, which connects it over the socket without that",
    ))
}

// Blocker `localhost`: "localhost" means a socket to some drivers and TCP to others, and default socket
// paths differ.

pub(super) fn localhost(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let known = pair.known?;
    let (means, but) = match known.protocol? {
        Protocol::Mysql => (
            "`localhost` means the default socket to PHP and C clients, and TCP to Go and Java",
            "a port beside it is silently ignored",
        ),
        Protocol::Postgres => (
            "`localhost` means TCP to every PostgreSQL client",
            "only an empty host or a folder means the socket",
        ),
        _ => return None,
    };
    let found = if is_default(known.protocol?, &path) {
        Found::with(means, but)
    } else {
        let fact = format!("{} is not where client libraries look by default", show(&path));
        Found::with(fact, format!("{means}; {but}"))
    };
    Some(Finding::new(Weight::Note, found, format!("Name the path in the client's setting: {}", show(&path))))
}

fn is_default(protocol: Protocol, path: &Path) -> bool {
    // /var/run is a link to /run.
    let path = match path.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => path.to_owned(),
    };
    let mut defaults = protocol.default_sockets();
    defaults.any(|default| match default.rsplit_once("{port}") {
        Some((start, _)) => Path::new(start).parent() == path.parent(),
        None => Path::new(default) == path,
    })
}

// Blocker `tls`: the switch drops TLS, or TLS was what cost the time. Certain only with kernel TLS;
// otherwise inferred from the libraries that both ends have loaded.

/// Size limit for /proc/PID/maps, which a process can inflate. Servers have some ten thousand bytes.
const LONGEST_MAPS: u64 = 4 << 20;
const TLS_LIBRARIES: &[&str] = &["libssl", "libgnutls", "libmbedtls", "libnss3", "libwolfssl"];

pub(super) fn tls(pair: &Pair<'_>) -> Option<Finding> {
    let remedy = "A Unix socket needs no TLS, for its traffic stays on the machine; a client that requires it (sslmode=require, REQUIRE SSL) must be changed";
    for connection in &pair.connections {
        let Some((client, server)) = pair.scan.ends(connection) else { continue };
        if client.kernel_tls || server.kernel_tls {
            return Some(Finding::new(
                Weight::Setting,
                "the connection is encrypted (kernel TLS)".to_owned(),
                remedy,
            ));
        }
    }
    // FastCGI and uWSGI have no word for it.
    if let Some(Protocol::FastCgi | Protocol::Uwsgi) = pair.known.and_then(|known| known.protocol) {
        return None;
    }
    let client = tls_library(pair.client()?.pid)?;
    tls_library(pair.server()?.pid)?;
    Some(Finding::new(
        Weight::Note,
        format!("both ends have a TLS library loaded ({client}), so the connection may be encrypted"),
        format!("Look at the cipher of both: samehost verify. {remedy}"),
    ))
}

/// TLS library that a process has mapped; `None` also where its maps may not be read.
fn tls_library(pid: u32) -> Option<String> {
    let maps = open::proc_file(&format!("/proc/{pid}/maps"), LONGEST_MAPS).ok()?;
    let text = String::from_utf8_lossy(&maps);
    for line in text.lines() {
        let name = line.rsplit('/').next().unwrap_or(line);
        if TLS_LIBRARIES.iter().any(|library| name.starts_with(library)) {
            return Some(name.to_owned());
        }
    }
    None
}

// Blocker `client-address`: behind a Unix socket a service does not see its client's IP address.

pub(super) fn client_address(pair: &Pair<'_>) -> Option<Finding> {
    between(Kind::of_program(&pair.client()?.name)?.descriptor(), pair.known?)
}

/// What a service loses behind a proxy of these kinds, whether or not either runs.
#[must_use]
pub fn address_lost(proxy: Kind, service: Kind) -> Option<Obstacle> {
    Some(between(proxy.descriptor(), service.descriptor())?.obstacle(ObstacleCode::ClientAddress))
}

fn between(proxy: &Descriptor, service: &Descriptor) -> Option<Finding> {
    if !proxy.proxy || !service.sees_clients {
        return None;
    }
    Some(Finding::new(
        Weight::Note,
        "over a Unix socket the service sees no client address: logs, rate limits and access lists by 127.0.0.1 stop to work".to_owned(),
        remedy(proxy, service),
    ))
}

fn remedy(proxy: &Descriptor, service: &Descriptor) -> String {
    let passes = proxy.passes_address.as_deref().unwrap_or("a header X-Forwarded-For");
    let takes = match service.takes_address.as_deref() {
        Some(setting) => setting,
        None if service.application => "X-Forwarded-For, which its application has to trust",
        None => "X-Forwarded-For",
    };
    format!("Pass it on from {} ({passes}), and have {} use it ({takes})", proxy.label, service.label)
}

// Blocker `confinement`: access is refused although file modes allow it, by SELinux, AppArmor or the unit's
// RestrictAddressFamilies. A login as the client's user is not confined and therefore proves nothing about this.
// Policies are not evaluated, except for combinations known to allow sockets. Landlock and seccomp filters cannot be
// read: that a process has a filter is said where nothing explains it.

const LONGEST: u64 = 1 << 20;
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

#[derive(Clone, Debug, Default)]
struct Ends<'a> {
    client: &'a str,
    /// Text of `/proc/PID/attr/current`, by which AppArmor or SELinux confine it; empty where it cannot be read.
    client_label: String,
    server_label: String,
    /// The socket that is there, or else the usual one of the service.
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
    let usual_path = pair.known.map(|known| PathBuf::from(&known.socket));
    let enforce = open::proc_file("/sys/fs/selinux/enforce", 8).unwrap_or_default();
    judge(&Ends {
        client: &client.name,
        client_label: label(client.pid),
        server_label: pair.server().map(|server| label(server.pid)).unwrap_or_default(),
        path: pair.path().or(usual_path),
        forbidden_by: forbidding_unit(client),
        permissive: enforce.starts_with(b"0"),
        filtered: is_filtered(pair, client),
    })
}

/// Whether a process has a filter of system calls of which nothing is known: RestrictAddressFamilies= makes one, and so do
/// other sandboxes. A runtime's usual filter allows Unix sockets, a unit's file says whether it does, and a process that has
/// one open may open them.
fn is_filtered(pair: &Pair<'_>, client: &Process) -> bool {
    let status = open::proc_file(&format!("/proc/{}/status", client.pid), LONGEST).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let modes = status.lines().filter_map(|line| line.strip_prefix("Seccomp:"));
    let has_filter = modes.map(str::trim).any(|mode| mode == "2");
    if !has_filter || client.container.is_some() {
        return false;
    }
    if let Some(unit) = &client.unit
        && !unit_texts(unit).is_empty()
    {
        return false;
    }
    !pair.scan.sockets.iter().any(|socket| socket.kind.is_unix() && socket.pids.contains(&client.pid))
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
                format!(
                    "{client} runs under a filter of system calls (Seccomp: 2 in /proc/PID/status), which may forbid Unix sockets, as RestrictAddressFamilies= without AF_UNIX does"
                ),
                "a login from here is not under it",
            ),
            "Have its sandbox allow AF_UNIX (systemctl edit UNIT, [Service], RestrictAddressFamilies=AF_UNIX), or give --page URL, which asks through the process itself",
        ));
    }
    let path = match &ends.path {
        Some(path) => show(path),
        None => "its socket".to_owned(),
    };
    if let Some(profile) = profile(&ends.client_label) {
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
    let (kind, server) = (selinux(&ends.client_label)?, selinux(&ends.server_label).unwrap_or_default());
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

fn is_allowed(client: &str, server: &str, path: Option<&Path>) -> bool {
    let Some(path) = path else { return false };
    for (one, other, folders) in ALLOWED {
        if *one == client && *other == server && folders.iter().any(|folder| path.starts_with(folder)) {
            return true;
        }
    }
    false
}

/// Enforced AppArmor profile; `None` without one, or when the profile is known to allow sockets. Profiles may be stacked
/// (`A//&B`), and one of another namespace has that before it (`:NAMESPACE://A`).
fn profile(label: &str) -> Option<&str> {
    let label = label.trim_end_matches(['\0', '\n']).trim();
    let stack = label.strip_suffix(" (enforce)").or(label.strip_suffix(" (mixed)"))?;
    for profile in stack.split("//&") {
        let name = profile.rsplit("://").next().unwrap_or(profile);
        let allows_sockets = OF_CONTAINERS.iter().any(|known| name.starts_with(known));
        if !allows_sockets && !name.ends_with("unconfined") {
            return Some(profile);
        }
    }
    None
}

fn label(pid: u32) -> String {
    let bytes = open::proc_file(&format!("/proc/{pid}/attr/current"), 4096).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// SELinux type of a label; `None` for an AppArmor label.
fn selinux(label: &str) -> Option<&str> {
    let label = label.trim_end_matches(['\0', '\n']).trim();
    if label.ends_with(')') { None } else { label.split(':').nth(2) }
}

/// Unit of a process, when the unit forbids Unix sockets. The units of a container are not those of this system's folders, and
/// one with a `/` in its name is not a file's.
fn forbidding_unit(client: &Process) -> Option<String> {
    let unit = client.unit.clone()?;
    if client.container.is_some() || unit.contains('/') {
        return None;
    }
    let texts = unit_texts(&unit);
    if may_use_unix(texts.iter().map(String::as_str)) { None } else { Some(unit) }
}

/// Texts of a unit file and its drop-ins, in the order in which systemd applies them (systemd.unit(5)): the file of the first
/// folder that has one, then the drop-ins of all folders by their names, of which an earlier folder hides those of a later one.
/// Empty where no file is found.
fn unit_texts(unit: &str) -> Vec<String> {
    let names = unit_names(unit);
    let mut texts: Vec<String> = Vec::new();
    texts.extend(first_text(&names));
    let mut parts: Vec<PathBuf> = Vec::new();
    for name in &names {
        for folder in UNITS {
            let Ok(entries) = std::fs::read_dir(Path::new(folder).join(format!("{name}.d"))) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                let is_new = parts.iter().all(|other| other.file_name() != path.file_name());
                if is_new && path.extension() == Some(OsStr::new("conf")) {
                    parts.push(path);
                }
            }
        }
    }
    parts.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    for part in parts {
        texts.extend(text_of(&part));
    }
    texts
}

/// The name of a unit, and that of its template where it is an instance: `a@b.service` is one of `a@.service`.
fn unit_names(unit: &str) -> Vec<String> {
    let mut names = vec![unit.to_owned()];
    if let Some((name, rest)) = unit.split_once('@')
        && let Some((_, kind)) = rest.rsplit_once('.')
    {
        names.push(format!("{name}@.{kind}"));
    }
    names
}

fn first_text(names: &[String]) -> Option<String> {
    for name in names {
        for folder in UNITS {
            if let Some(text) = text_of(&Path::new(folder).join(name)) {
                return Some(text);
            }
        }
    }
    None
}

fn text_of(path: &Path) -> Option<String> {
    let bytes = open::read(path, LONGEST).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What RestrictAddressFamilies= lists, after some of its assignments.
#[derive(Clone, Copy)]
struct Families {
    /// Whether only what is listed is allowed; else what is listed is forbidden.
    is_allow_list: bool,
    has_unix: bool,
}

/// Whether these unit files let their processes open Unix sockets (systemd.exec(5), RestrictAddressFamilies=). The first
/// assignment decides whether it is an allow list or, with `~`, a deny list. Later ones add to it, or with the other sign take
/// from it; an empty one starts anew, and `none` allows nothing.
fn may_use_unix<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let mut list: Option<Families> = None;
    for line in texts.flat_map(str::lines) {
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.trim() != "RestrictAddressFamilies" {
            continue;
        }
        let value = value.trim();
        let (inverted, families) = match value.strip_prefix('~') {
            Some(rest) => (true, rest.trim()),
            None => (false, value),
        };
        if families.is_empty() && !inverted {
            list = None;
            continue;
        }
        if families == "none" {
            list = Some(Families { is_allow_list: true, has_unix: false });
            continue;
        }
        let mut now = list.unwrap_or(Families { is_allow_list: !inverted, has_unix: false });
        if families.split_whitespace().any(|family| matches!(family, "AF_UNIX" | "AF_LOCAL")) {
            now.has_unix = now.is_allow_list != inverted;
        }
        list = Some(now);
    }
    match list {
        Some(list) => list.is_allow_list == list.has_unix,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_of_the_proxy_and_the_service_at_hand() {
        fn remedy_for(proxy: Kind, service: Kind) -> String {
            remedy(proxy.descriptor(), service.descriptor())
        }
        let apache = remedy_for(Kind::Apache, Kind::Gunicorn);
        assert!(apache.contains("Apache (mod_proxy_http sends") && apache.contains("gunicorn"), "{apache}");
        let haproxy = remedy_for(Kind::Haproxy, Kind::Nginx);
        assert!(
            haproxy.contains("`option forwardfor`") && haproxy.contains("set_real_ip_from unix:"),
            "{haproxy}"
        );
        assert!(!remedy_for(Kind::Caddy, Kind::Haproxy).contains("nginx"));
        // nginx is a proxy as well; here it is behind one.
        assert!(remedy_for(Kind::Nginx, Kind::Nginx).contains("proxy_set_header"));
    }

    #[test]
    fn every_proxy_says_how_it_passes_the_address_on() {
        for kind in Kind::all() {
            let known = kind.descriptor();
            let says_how = known.reaches_ports_only.is_some() || known.passes_address.is_some();
            assert!(says_how || !known.proxy, "{kind}");
        }
    }

    /// Weight for these labels, in the kernel's format.
    fn weight(client: &str, server: &str, path: &str) -> Option<Weight> {
        let (client_label, server_label) = (client.to_owned(), server.to_owned());
        let path = Some(path.into());
        let ends = Ends { client: "app", client_label, server_label, path, ..Ends::default() };
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
