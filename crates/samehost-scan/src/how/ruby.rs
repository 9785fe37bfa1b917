//! Clients in Ruby.

use super::Localhost::{Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("mysql2", Mysql, Socket, "Mysql2::Client.new(socket: '{path}', username: ..., database: ...)", "Mysql2::Client.new(host: '{host}', port: {port}, username: ..., database: ...)", "in database.yml of Rails it is socket:").tested(),
    client("pg", Postgres, Tcp, "PG.connect(host: '{folder}', port: {port}, dbname: ..., user: ...)", "PG.connect(host: '{host}', port: {port}, dbname: ..., user: ...)", "no host at all means the default folder").tested(),
    client("redis-rb", Redis, Tcp, "Redis.new(path: '{path}')", "Redis.new(host: '{host}', port: {port})", "").tested(),
];
