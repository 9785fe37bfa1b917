//! Clients in Rust.

use super::Localhost::{Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("sqlx MySQL", Mysql, Tcp, "MySqlConnectOptions::new().socket(\"{path}\")", "MySqlPool::connect(\"mysql://user:password@{host}:{port}/db\")", "as a URL: ?socket= and the path"),
    client("mysql", Mysql, Socket, "OptsBuilder::new().socket(Some(\"{path}\"))", "OptsBuilder::new().ip_or_hostname(Some(\"{host}\")).tcp_port({port}).prefer_socket(false)", "without prefer_socket(false) a TCP connection to 127.0.0.1 turns into a socket by itself").tested(),
    client("sqlx PostgreSQL", Postgres, Tcp, "PgConnectOptions::new().socket(\"{folder}\").port({port})", "PgPool::connect(\"postgres://user:password@{host}:{port}/db\")", ""),
    client("tokio-postgres", Postgres, Tcp, "tokio_postgres::connect(\"host={folder} port={port} user=USER dbname=DB\", NoTls)", "tokio_postgres::connect(\"host={host} port={port} user=USER dbname=DB\", NoTls)", "").tested(),
    client("redis", Redis, Tcp, "redis::Client::open(\"redis+unix://{path}\")", "redis::Client::open(\"redis://{host}:{port}/\")", "").tested(),
];
