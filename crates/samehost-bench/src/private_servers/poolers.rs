//! Poolers before a private PostgreSQL: an enum with a descriptor for each. Each is one process that listens on a TCP port
//! and a Unix socket, and has one database for each transport behind it. So the client chooses both hops, by address and by
//! name of the database.
//!
//! Their files have the password as text, as those of many installations have: with a SCRAM secret they could not log in to
//! the server. Only the account of both servers can read them.

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Transport};
use samehost_services::Kind;

use super::{PrivateDirectory, PrivateServer, Supervision, installed_service, on_free_port};
use crate::error::BenchError;
use crate::parameters::words;
use crate::private_servers::fronts::{host_and_port, quoted};
use crate::private_servers::postgres::{self, ROLE};

/// Connections to the server besides those of the clients that are measured, for each transport behind.
const SPARE: u32 = 24;
/// Runs a command with a limit of open files: poolers do not raise their own.
const WITH_FILES: &str = r#"ulimit -Sn "$1" && shift && exec "$@""#;

words! {
    pub(crate) enum PoolerKind { Pgbouncer = "pgbouncer", Odyssey = "odyssey" }
}

type Files = Vec<(&'static str, String)>;

struct PoolerDescriptor {
    kind: Kind,
    /// Its files; the first is its configuration.
    files: fn(&Layout<'_>) -> Result<Files, BenchError>,
}

pub(crate) struct PoolerSpec<'a> {
    pub(crate) server: &'a PrivateServer,
    /// How long a client keeps a connection to the server: `transaction` or `session`.
    pub(crate) mode: &'static str,
    pub(crate) connections: u32,
}

struct Layout<'a> {
    directory: PathBuf,
    port: u16,
    spec: &'a PoolerSpec<'a>,
}

impl PoolerKind {
    fn descriptor(self) -> &'static PoolerDescriptor {
        match self {
            PoolerKind::Pgbouncer => &PGBOUNCER,
            PoolerKind::Odyssey => &ODYSSEY,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        self.descriptor().kind.label()
    }
}

/// Name of the database that is reached over this transport behind the pooler.
pub(crate) fn database(behind: Transport) -> String {
    format!("over_{behind}")
}

/// Starts a private pooler, which runs as the server behind it does. `answers` checks whether it leads to that server.
///
/// # Errors
/// When it is not installed, may not run as this user, or does not answer in time.
pub(crate) fn start(
    kind: PoolerKind,
    program: &Path,
    spec: &PoolerSpec<'_>,
    answers: impl Fn(&PrivateServer) -> Result<(), BenchError>,
) -> Result<PrivateServer, BenchError> {
    let known = kind.descriptor();
    let pooler = installed_service(known.kind)?;
    let account = postgres::account()?;
    on_free_port(|port| {
        let directory = PrivateDirectory::new()?;
        let root = directory.path().to_owned();
        let layout = Layout { directory: root.clone(), port, spec };
        let files = (known.files)(&layout)?;
        for (name, text) in &files {
            directory.write(name, text)?;
        }
        let configuration = files.first().map(|(name, _)| root.join(name)).unwrap_or_default();
        let open = layout.clients().saturating_add(2 * layout.pool()).saturating_add(64);
        let mut command = ["/bin/sh", "-c", WITH_FILES, "samehost-pooler"].map(String::from).to_vec();
        command.extend([open.to_string(), pooler.display().to_string()]);
        command.push(configuration.display().to_string());
        // At SIGTERM newer ones wait until every client is gone.
        let supervision = Supervision::new(program, kind.title(), account, command).ended_at_once();
        let endpoints = [
            Endpoint::Tcp { host: "127.0.0.1".into(), port },
            Endpoint::Unix(root.join(format!(".s.PGSQL.{port}"))),
        ];
        let login = spec.server.login().clone();
        PrivateServer::start(&supervision, directory, endpoints)?.with_login(login).ready(&answers)
    })
}

impl Layout<'_> {
    /// Connections to the server, for each transport behind: none of ours may wait for one.
    fn pool(&self) -> u32 {
        self.spec.connections.saturating_add(SPARE)
    }

    /// Clients at the same time; those of the previous trial may still be closing.
    fn clients(&self) -> u32 {
        self.spec.connections.saturating_mul(2).saturating_add(64)
    }
}

/// Directory or host, and port, of an endpoint of PostgreSQL as libpq writes them.
fn host_then_port(endpoint: &Endpoint) -> (String, String) {
    match endpoint {
        Endpoint::Unix(path) => {
            let port = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new("/")).display().to_string(), port)
        }
        Endpoint::Tcp { host, port } => (host.clone(), port.to_string()),
        other => (other.to_string(), String::new()),
    }
}

const PGBOUNCER: PoolerDescriptor = PoolerDescriptor {
    kind: Kind::Pgbouncer,
    files: |layout| {
        let users = format!("\"{ROLE}\" \"{}\"\n", layout.spec.server.password());
        Ok(vec![("pgbouncer.ini", pgbouncer_configuration(layout)), ("userlist.txt", users)])
    },
};

fn pgbouncer_configuration(layout: &Layout<'_>) -> String {
    let databases: String = layout.spec.server.plain_endpoints().map(behind).collect();
    let (directory, port) = (layout.directory.display(), layout.port);
    let (mode, pool, clients) = (layout.spec.mode, layout.pool(), layout.clients());
    // A connection to the server that stays idle while other servers are measured is kept.
    format!(
        "[databases]\n{databases}[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir = {directory}\nunix_socket_mode = 0700\n\
         auth_type = scram-sha-256\nauth_file = {directory}/userlist.txt\n\
         pool_mode = {mode}\ndefault_pool_size = {pool}\nmax_client_conn = {clients}\n\
         server_idle_timeout = 0\nserver_lifetime = 86400\n\
         log_connections = 0\nlog_disconnections = 0\nlog_stats = 0\n"
    )
}

/// Line of the database that is reached over this endpoint. A quote in a quoted value is doubled.
fn behind(endpoint: &Endpoint) -> String {
    let (host, port) = host_then_port(endpoint);
    let host = host.replace('\'', "''");
    format!("{} = host='{host}' port={port} dbname=postgres\n", database(endpoint.transport()))
}

const ODYSSEY: PoolerDescriptor = PoolerDescriptor {
    kind: Kind::Odyssey,
    files: |layout| Ok(vec![("odyssey.conf", odyssey_configuration(layout)?)]),
};

fn odyssey_configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
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
    quoted(text, Kind::Odyssey, &['"', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_behind_has_a_database() {
        let unix = Endpoint::Unix("/var/tmp/a'b/.s.PGSQL.7000".into());
        assert_eq!(behind(&unix), "over_unix = host='/var/tmp/a''b' port=7000 dbname=postgres\n");
        let tcp = Endpoint::Tcp { host: "127.0.0.1".into(), port: 7000 };
        assert_eq!(behind(&tcp), "over_tcp = host='127.0.0.1' port=7000 dbname=postgres\n");
    }
}
