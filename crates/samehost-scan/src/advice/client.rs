//! Blockers that the client brings: its driver, its name for the server, TLS, the address that the server sees of it, and where it
//! runs.
//!
//! Blocker `driver`: drivers, and servers in front of others, without support for Unix sockets.

use std::path::Path;

use samehost_model::ObstacleCode;
use samehost_model::scan::{Found, Obstacle, Process, Weight};
use samehost_services::{Descriptor, Kind, Protocol};
use samehost_system::open::proc_file;

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn driver(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let program = client.executable.as_deref().map(Path::new).and_then(Path::file_name)?;
    let kind = program.to_str().and_then(Kind::of_program);
    if let Some(why) = kind.and_then(|kind| kind.descriptor().reaches_ports_only.as_ref()) {
        return Some(Finding::new(
            Weight::Blocks,
            why.clone(),
            "Put nginx, HAProxy, Caddy or Envoy in its place; or keep connections open and reuse them; or start it, as its \
             own user, under `samehost run`, which connects it over the socket"
                .to_owned(),
        ));
    }
    if program != "java" {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        format!("{} is a Java program: its drivers know no Unix sockets by themselves", client.name),
        "Add junixsocket: socketFactory of Connector/J, MariaDB's localSocket, or socketFactory of pgjdbc; or start it under \
         `samehost run`, which connects it over the socket without that"
            .to_owned(),
    ))
}

// Blocker `localhost`: "localhost" means a socket to some drivers and TCP to others, and default socket
// paths differ.

pub(super) fn localhost(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let known = pair.known?;
    // The meaning, and what follows from it.
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

/// Whether clients of a protocol look for the socket at this path by default.
fn is_default(protocol: Protocol, path: &Path) -> bool {
    // /var/run is a link to /run.
    let path =
        path.strip_prefix("/var/run").map_or_else(|_| path.to_owned(), |rest| Path::new("/run").join(rest));
    let mut defaults = protocol.default_sockets();
    defaults.any(|default| match default.rsplit_once("{port}") {
        Some((start, _)) => Path::new(start).parent() == path.parent(),
        None => Path::new(default) == path,
    })
}

// Blocker `tls`: the switch drops TLS, or TLS was what cost the time. Certain only with kernel TLS;
// otherwise inferred from the libraries that both ends have loaded.

/// Size limit for /proc/PID/maps, which a process can inflate. Servers have some ten thousand bytes.
const LONGEST: u64 = 4 << 20;
/// TLS libraries.
const LIBRARIES: &[&str] = &["libssl", "libgnutls", "libmbedtls", "libnss3", "libwolfssl"];

pub(super) fn tls(pair: &Pair<'_>) -> Option<Finding> {
    let sockets = pair.connections.iter().flat_map(|connection| [connection.client, connection.server]);
    let mut sockets = sockets.filter_map(|at| pair.scan.sockets.get(at));
    let remedy = "A Unix socket needs no TLS, for its traffic stays on the machine; a client that requires it (sslmode=require, REQUIRE SSL) must be changed";
    if sockets.any(|socket| socket.kernel_tls) {
        return Some(Finding::new(
            Weight::Setting,
            "the connection is encrypted (kernel TLS)".to_owned(),
            remedy.to_owned(),
        ));
    }
    let client = library(pair.client()?.pid)?;
    library(pair.server()?.pid)?;
    Some(Finding::new(
        Weight::Note,
        format!("both ends have a TLS library loaded ({client}), so the connection may be encrypted"),
        format!("Look at the cipher of both: samehost verify. {remedy}"),
    ))
}

/// TLS library that a process has mapped.
fn library(pid: u32) -> Option<String> {
    let maps = proc_file(&format!("/proc/{pid}/maps"), LONGEST).ok()?;
    let text = String::from_utf8_lossy(&maps);
    text.lines().filter_map(|line| line.rsplit('/').next()).find_map(|name| {
        let is_tls = LIBRARIES.iter().any(|library| name.starts_with(library));
        is_tls.then(|| name.to_owned())
    })
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

/// How this proxy passes the address on, and how this service takes it.
fn remedy(proxy: &Descriptor, service: &Descriptor) -> String {
    let passes = proxy.passes_address.as_deref().unwrap_or("a header X-Forwarded-For");
    let takes = match service.takes_address.as_deref() {
        Some(setting) => setting,
        None if service.application => "X-Forwarded-For, which its application has to trust",
        None => "X-Forwarded-For",
    };
    format!("Pass it on from {} ({passes}), and have {} use it ({takes})", proxy.label, service.label)
}

// Blocker `mount-namespace`: the client does not see the socket, because of PrivateTmp, a chroot or a mount
// namespace of its own.

pub(super) fn mount_namespace(pair: &Pair<'_>) -> Option<Finding> {
    if pair.crosses_container() {
        return None;
    }
    let path = pair.path()?;
    if pair.sees_same_file(&path)? {
        return None;
    }
    // Another file at that path in the client's view is reported by `another-socket`.
    if pair.client_root()?.find(&path).is_some() {
        return None;
    }
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
    Some(Finding::new(Weight::Setting, found, remedy.to_owned()))
}

// Blocker `container`: client and service run in different containers, and the socket's directory is not shared.

pub(super) fn container(pair: &Pair<'_>) -> Option<Finding> {
    if !pair.crosses_container() {
        return None;
    }
    let path = pair.path()?;
    if pair.sees_same_file(&path)? {
        return None;
    }
    let (client, server) = (pair.client()?, pair.server()?);
    let folder = path.parent().map_or_else(|| "/".to_owned(), show);
    // Another file at that path in the client's view is reported by `another-socket`.
    if pair.client_root()?.find(&path).is_some() {
        return None;
    }
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
}
