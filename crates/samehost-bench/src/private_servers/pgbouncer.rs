//! A private PgBouncer before a private PostgreSQL: one process that listens on a TCP port and a Unix socket, and has one
//! database for each transport behind it. So the client chooses both hops, by address and by name of the database.
//!
//! Its list of users has the password as text, as the list of many installations has: with a SCRAM secret it could not
//! log in to the server. Only the account of both servers can read it.

use std::path::Path;

use samehost_model::{Endpoint, Transport};
use samehost_services::Kind;

use super::free_port::on_free_port;
use super::postgres::{self, ROLE};
use super::server_kind::installed_service;
use super::{PrivateDirectory, PrivateServer, ServerKind, Supervision};
use crate::error::BenchError;

/// How PgBouncer is found.
pub(crate) const PGBOUNCER: ServerKind = ServerKind {
    kind: Kind::Pgbouncer,
    title: "PgBouncer",
    find: || installed_service(Kind::Pgbouncer),
    login: "",
};

/// Connections to the server besides those of the clients that are measured, for each transport behind.
const SPARE: u32 = 24;
/// Runs a command with a limit of open files: PgBouncer does not raise its own.
const WITH_FILES: &str = r#"ulimit -Sn "$1" && shift && exec "$@""#;

/// How to start PgBouncer.
pub(crate) struct PgbouncerSpec<'a> {
    /// The server behind it.
    pub(crate) server: &'a PrivateServer,
    /// Value of `pool_mode`.
    pub(crate) mode: &'static str,
    /// Most clients at the same time.
    pub(crate) connections: u32,
}

/// Name of the database that is reached over this transport behind PgBouncer.
pub(crate) fn database(behind: Transport) -> String {
    format!("over_{behind}")
}

/// Starts a private PgBouncer, which runs as the server behind it does. `answers` checks whether it leads to that server.
///
/// # Errors
/// When it is not installed, may not run as this user, or does not answer in time.
pub(crate) fn start(
    program: &Path,
    spec: &PgbouncerSpec<'_>,
    answers: impl Fn(&PrivateServer) -> Result<(), BenchError>,
) -> Result<PrivateServer, BenchError> {
    let pgbouncer = (PGBOUNCER.find)()?;
    let account = postgres::account()?;
    on_free_port(|port| {
        let directory = PrivateDirectory::new()?;
        let root = directory.path().to_owned();
        directory.write("userlist.txt", &format!("\"{ROLE}\" \"{}\"\n", spec.server.password()))?;
        directory.write("pgbouncer.ini", &configuration(&root, port, spec))?;
        let files = clients(spec).saturating_add(2 * pool(spec)).saturating_add(64);
        let mut command = ["/bin/sh", "-c", WITH_FILES, "samehost-pgbouncer"].map(String::from).to_vec();
        command.extend([files.to_string(), pgbouncer.display().to_string()]);
        command.push(root.join("pgbouncer.ini").display().to_string());
        // At SIGTERM newer versions wait until every client is gone.
        let supervision = Supervision::new(program, "pgbouncer", account, command).ended_at_once();
        let endpoints = [
            Endpoint::Tcp { host: "127.0.0.1".into(), port },
            Endpoint::Unix(root.join(format!(".s.PGSQL.{port}"))),
        ];
        let password = spec.server.password();
        PrivateServer::start(&supervision, directory, endpoints)?.with_password(password).ready(&answers)
    })
}

/// Connections to the server, for each transport behind: none of ours may wait for one.
fn pool(spec: &PgbouncerSpec<'_>) -> u32 {
    spec.connections.saturating_add(SPARE)
}

/// Clients at the same time; those of the previous trial may still be closing.
fn clients(spec: &PgbouncerSpec<'_>) -> u32 {
    spec.connections.saturating_mul(2).saturating_add(64)
}

fn configuration(directory: &Path, port: u16, spec: &PgbouncerSpec<'_>) -> String {
    let databases: String = spec.server.plain_endpoints().map(behind).collect();
    let directory = directory.display();
    let (mode, pool, clients) = (spec.mode, pool(spec), clients(spec));
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
    let (host, port) = match endpoint {
        Endpoint::Unix(path) => {
            let port = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new("/")).display().to_string(), port)
        }
        Endpoint::Tcp { host, port } => (host.clone(), port.to_string()),
        other => (other.to_string(), String::new()),
    };
    let host = host.replace('\'', "''");
    format!("{} = host='{host}' port={port} dbname=postgres\n", database(endpoint.transport()))
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
