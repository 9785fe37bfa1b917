//! Clients in Go. `localhost` is TCP to all of them.

use super::Localhost::Tcp;
use super::{Client, client};
use samehost_model::Protocol::{Http, Memcached, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("go-sql-driver", Mysql, Tcp, "sql.Open(\"mysql\", \"user:password@unix({path})/db\")", "sql.Open(\"mysql\", \"user:password@tcp({host}:{port})/db\")", "").tested(),
    client("pgx", Postgres, Tcp, "pgx.Connect(ctx, \"host={folder} port={port} user=USER database=DB\")", "pgx.Connect(ctx, \"postgres://user:password@{host}:{port}/db\")", ""),
    client("lib/pq", Postgres, Tcp, "sql.Open(\"postgres\", \"host={folder} port={port} user=USER dbname=DB sslmode=disable\")", "sql.Open(\"postgres\", \"host={host} port={port} user=USER dbname=DB\")", "over TCP it asks for TLS unless told sslmode=disable").tested(),
    client("go-redis", Redis, Tcp, "redis.NewClient(&redis.Options{Network: \"unix\", Addr: \"{path}\"})", "redis.NewClient(&redis.Options{Addr: \"{host}:{port}\"})", "").tested(),
    client("gomemcache", Memcached, Tcp, "memcache.New(\"{path}\")", "memcache.New(\"{host}:{port}\")", "a name with a slash is a socket"),
    client("net/http", Http, Tcp, "http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return net.Dial(\"unix\", \"{path}\") }}", "http.Get(\"http://{host}:{port}/\")", ""),
];
