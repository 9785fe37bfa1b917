//! PgBouncer.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{Layout, PoolerDescriptor, database, host_and_port};
use crate::private_servers::ServerKind;
use crate::private_servers::postgres::ROLE;
use crate::private_servers::server_kind::installed_service;

pub(super) const DESCRIPTOR: PoolerDescriptor = PoolerDescriptor {
    server: ServerKind {
        kind: Kind::Pgbouncer,
        title: "PgBouncer",
        find: || installed_service(Kind::Pgbouncer),
        login: "",
    },
    files: |layout| {
        let users = format!("\"{ROLE}\" \"{}\"\n", layout.spec.server.password());
        Ok(vec![("pgbouncer.ini", configuration(layout)), ("userlist.txt", users)])
    },
};

fn configuration(layout: &Layout<'_>) -> String {
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
    let (host, port) = host_and_port(endpoint);
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
