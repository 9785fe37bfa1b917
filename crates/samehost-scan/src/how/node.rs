//! Clients in Node.

use super::Localhost::Tcp;
use super::{Client, client};
use samehost_model::Protocol::{Http, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("mysql2", Mysql, Tcp, "mysql.createConnection({ socketPath: '{path}', user, database })", "mysql.createConnection({ host: '{host}', port: {port}, user, database })", "").tested(),
    client("Prisma MySQL", Mysql, Tcp, "DATABASE_URL=\"mysql://user:password@localhost/db?socket={path}\"", "DATABASE_URL=\"mysql://user:password@{host}:{port}/db\"", ""),
    client("pg", Postgres, Tcp, "new Client({ host: '{folder}', port: {port}, user, database })", "new Client({ host: '{host}', port: {port}, user, database })", "the port is part of the file's name").tested(),
    client("Prisma PostgreSQL", Postgres, Tcp, "DATABASE_URL=\"postgresql://user:password@localhost:{port}/db?host={folder}\"", "DATABASE_URL=\"postgresql://user:password@{host}:{port}/db\"", ""),
    client("ioredis", Redis, Tcp, "new Redis('{path}')", "new Redis({port}, '{host}')", "").tested(),
    client("node-redis", Redis, Tcp, "createClient({ socket: { path: '{path}' } })", "createClient({ url: 'redis://{host}:{port}' })", "").tested(),
    client("http", Http, Tcp, "http.get({ socketPath: '{path}', path: '/' })", "http.get('http://{host}:{port}/')", ""),
];
