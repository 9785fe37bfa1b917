//! HAProxy in front.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, BACKLOG, FrontDescriptor, Host, Layout, SAYS, WHERE, WHERE_BEHIND, host_and_port, http_only,
    quoted, unknown,
};
use crate::error::BenchError;
use crate::private_servers::ServerKind;
use crate::private_servers::server_kind::installed_service;

const HAPROXY: ServerKind = ServerKind {
    kind: Kind::Haproxy,
    title: "HAProxy",
    find: || installed_service(Kind::Haproxy),
    login: "",
};

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    server: HAPROXY,
    worker_is_one_cpu: true,
    keeps_fastcgi: false,
    asks: SAYS,
    file: "haproxy.cfg",
    configuration,
    // In the foreground, and without the master that it has as a service.
    arguments: |_, configuration| {
        ["-db", "-f", &configuration.display().to_string()].map(Into::into).to_vec()
    },
    variables: |_| Vec::new(),
    failed_connect: |_| None,
};

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let spec = layout.spec;
    let hosts = http_only(layout, HAPROXY.title)?;
    let bind = |endpoint: &Endpoint| Ok(format!("  bind {} backlog {BACKLOG}\n", address(endpoint)?));
    let binds = layout.endpoints().iter().map(bind).collect::<Result<String, BenchError>>()?;
    let backends = hosts.iter().map(backend).collect::<Result<String, _>>()?;
    Ok(format!(
        "global\n  nbthread {}\n  maxconn {}\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 1h\n  \
         timeout server 1m\n  timeout http-keep-alive 1h\n  retries 0\nfrontend front\n{binds}  \
         http-request set-var(txn.where) bool(true) if {{ path {WHERE} }}\n  \
         http-request set-path {WHERE_BEHIND} if {{ path {WHERE} }}\n  \
         http-response set-header {ASKED} %si:%sp if {{ var(txn.where) -m bool }}\n  \
         use_backend %[req.hdr(host)]\n{backends}",
        spec.workers,
        // Connections of the previous trial may still be closing.
        spec.connections.saturating_mul(2).saturating_add(256)
    ))
}

fn backend(host: &Host<'_>) -> Result<String, BenchError> {
    let (option, kept) = match host.kept {
        Some(kept) => {
            ("http-reuse always", format!(" pool-max-conn {kept} pool-low-conn {kept} pool-purge-delay 1h"))
        }
        None => ("option http-server-close", String::new()),
    };
    let server = |(at, endpoint): (usize, &&Endpoint)| {
        Ok(format!("  server server{at} {} {kept}\n", address(endpoint)?))
    };
    let servers = host.servers.iter().enumerate().map(server).collect::<Result<String, BenchError>>()?;
    Ok(format!("backend {}\n  balance roundrobin\n  {option}\n{servers}", host.name))
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    match endpoint {
        Endpoint::Unix(path) => {
            let path = path.display().to_string();
            quoted(&path, HAPROXY.title, &['"', '\\', '$', '\'', '#', ' '])?;
            Ok(format!("unix@{path}"))
        }
        Endpoint::Tcp { host, port } => Ok(host_and_port(host, *port)),
        other => Err(unknown(other, HAPROXY.title)),
    }
}
