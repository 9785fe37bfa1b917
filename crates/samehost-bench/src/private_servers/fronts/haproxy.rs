//! HAProxy in front: of HTTP servers, and of PHP-FPM by its `fcgi-app`.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, BACKLOG, FrontDescriptor, Host, Layout, Passes, Pools, READY, WHERE, WHERE_BEHIND, quoted,
    written_address,
};
use crate::error::BenchError;

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    kind: Kind::Haproxy,
    worker_is_one_cpu: true,
    file: "haproxy.cfg",
    configuration,
    // In the foreground, and without the master that it has as a service.
    arguments: "-db -f {file}",
    failed_connect: |_| None,
};

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let spec = layout.spec;
    let mut binds = String::new();
    for endpoint in layout.endpoints() {
        binds.push_str(&format!("  bind {} backlog {BACKLOG}\n", address(&endpoint)?));
    }
    let (rules, backends) = match spec.passes {
        Passes::Http(hosts) => (
            format!(
                "  http-request set-var(txn.where) bool(true) if {{ path {WHERE} }}\n  \
                 http-request set-path {WHERE_BEHIND} if {{ path {WHERE} }}\n  \
                 http-response set-header {ASKED} %si:%sp if {{ var(txn.where) -m bool }}\n  \
                 use_backend %[req.hdr(host)]\n"
            ),
            hosts.iter().map(backend).collect::<Result<String, _>>()?,
        ),
        Passes::FastCgi(spec) => (
            format!(
                "  http-request return status 204 if {{ path {READY} }}\n  use_backend %[path,field(2,/)]\n"
            ),
            pools(spec)?,
        ),
        Passes::Sites(_) => {
            return Err(BenchError::Usage("HAProxy is not measured in front of a site".into()));
        }
    };
    Ok(format!(
        "global\n  nbthread {}\n  maxconn {}\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 1h\n  \
         timeout server 1m\n  timeout http-keep-alive 1h\n  retries 0\nfrontend front\n{binds}{rules}{backends}",
        spec.workers,
        // Connections of the previous trial may still be closing.
        spec.connections.saturating_mul(2).saturating_add(256)
    ))
}

/// A backend for each pool, and what all of them tell PHP-FPM.
fn pools(spec: &Pools<'_>) -> Result<String, BenchError> {
    let script = spec.script.display().to_string();
    let (root, name) = script.rsplit_once('/').unwrap_or_default();
    let (flag, option, kept) = match spec.kept {
        Some(kept) => ("", "http-reuse always", kept_connections(kept)),
        None => ("no ", "option http-server-close", String::new()),
    };
    let mut text = format!("fcgi-app php\n  docroot {}\n  {flag}option keep-conn\n", word(root)?);
    for (pool, endpoint) in spec.pools {
        text.push_str(&format!(
            "backend {pool}\n  use-fcgi-app php\n  http-request set-path {}\n  {option}\n  \
             server php {} proto fcgi{kept}\n",
            word(&format!("/{name}"))?,
            address(endpoint)?
        ));
    }
    Ok(text)
}

fn kept_connections(kept: u32) -> String {
    format!(" pool-max-conn {kept} pool-low-conn {kept} pool-purge-delay 1h")
}

fn backend(host: &Host<'_>) -> Result<String, BenchError> {
    let (option, kept) = match host.kept {
        Some(kept) => ("http-reuse always", kept_connections(kept)),
        None => ("option http-server-close", String::new()),
    };
    let mut servers = String::new();
    for (at, endpoint) in host.servers.iter().enumerate() {
        servers.push_str(&format!("  server server{at} {} {kept}\n", address(endpoint)?));
    }
    Ok(format!("backend {}\n  balance roundrobin\n  {option}\n{servers}", host.name))
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    written_address(endpoint, Kind::Haproxy, |path| word(&path).map(|_| format!("unix@{path}")))
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, Kind::Haproxy, &['"', '\\', '$', '\'', '#', ' ', '%'])
}
