//! Clients in C.

use super::Localhost::{Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{Memcached, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("libmysqlclient", Mysql, Socket, "mysql_real_connect(mysql, NULL, user, password, db, 0, \"{path}\", 0);", "mysql_real_connect(mysql, \"{host}\", user, password, db, {port}, NULL, 0);", "in an option file: socket = below [client]"),
    client("libpq", Postgres, Tcp, "PQconnectdb(\"host={folder} port={port} dbname=DB user=USER\");", "PQconnectdb(\"host={host} port={port} dbname=DB user=USER\");", "no host at all means the default folder; PGHOST takes a folder too").tested(),
    client("hiredis", Redis, Tcp, "redisConnectUnix(\"{path}\");", "redisConnect(\"{host}\", {port});", "").tested(),
    client("libmemcached", Memcached, Tcp, "memcached(\"--SOCKET=\\\"{path}\\\"\", length);", "memcached(\"--SERVER={host}:{port}\", length);", ""),
];
