//! Odyssey.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{Layout, PoolerDescriptor, database};
use crate::error::BenchError;
use crate::private_servers::ServerKind;
use crate::private_servers::fronts::{host_and_port, quoted};
use crate::private_servers::postgres::ROLE;
use crate::private_servers::server_kind::installed_service;

pub(super) const DESCRIPTOR: PoolerDescriptor = PoolerDescriptor {
    server: ServerKind {
        kind: Kind::Odyssey,
        title: "Odyssey",
        find: || installed_service(Kind::Odyssey),
        login: "",
    },
    files: |layout| Ok(vec![("odyssey.conf", configuration(layout)?)]),
};

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let (directory, port) = (word(&layout.directory.display().to_string())?, layout.port);
    let routes = layout.spec.server.plain_endpoints().map(|endpoint| route(layout, endpoint));
    let routes = routes.collect::<Result<String, _>>()?;
    Ok(format!(
        "daemonize no\nunix_socket_dir {directory}\nunix_socket_mode \"0700\"\nlog_format \"%l %m\\n\"\nlog_to_stdout yes\n\
         log_session no\nlog_stats no\nlog_config no\nworkers 1\nresolvers 1\nnodelay yes\ncoroutine_stack_size 16\n\
         client_max {}\nlisten {{\n  host \"127.0.0.1\"\n  port {port}\n  backlog 4096\n}}\n\
         listen {{\n  port {port}\n  backlog 4096\n}}\n{routes}",
        layout.clients()
    ))
}

/// The storage and the database that are reached over this endpoint.
fn route(layout: &Layout<'_>, endpoint: &Endpoint) -> Result<String, BenchError> {
    let (name, password) = (database(endpoint.transport()), layout.spec.server.password());
    let place = match endpoint {
        Endpoint::Unix(path) => format!("unix://{}", path.display()),
        Endpoint::Tcp { host, port } => host_and_port(host, *port),
        other => other.to_string(),
    };
    // A connection to the server that stays idle while other servers are measured is kept.
    Ok(format!(
        "storage \"{name}\" {{\n  type \"remote\"\n  host {}\n}}\n\
         database \"{name}\" {{\n  user \"{ROLE}\" {{\n    authentication \"scram-sha-256\"\n    password \"{password}\"\n    \
         storage \"{name}\"\n    storage_db \"postgres\"\n    storage_user \"{ROLE}\"\n    storage_password \"{password}\"\n    \
         pool \"{}\"\n    pool_size {}\n    pool_ttl 0\n    server_lifetime 86400\n  }}\n}}\n",
        word(&place)?,
        layout.spec.mode,
        layout.pool()
    ))
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, DESCRIPTOR.server.title, &['"', '\\'])
}
