//! Clients in Python.

use super::Localhost::{Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{Http, Memcached, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("mysqlclient", Mysql, Socket, "MySQLdb.connect(unix_socket='{path}', user=..., db=...)", "MySQLdb.connect(host='{host}', port={port}, user=..., db=...)", "").tested(),
    client("PyMySQL", Mysql, Tcp, "pymysql.connect(unix_socket='{path}', user=..., db=...)", "pymysql.connect(host='{host}', port={port}, user=..., db=...)", "").tested(),
    client("SQLAlchemy MySQL", Mysql, Tcp, "create_engine('mysql+pymysql://user:password@/db?unix_socket={path}')", "create_engine('mysql+pymysql://user:password@{host}:{port}/db')", "with mysqlclient `localhost` is the socket"),
    client("Django MySQL", Mysql, Socket, "'HOST': '{path}',", "'HOST': '{host}', 'PORT': '{port}',", "a HOST that begins with / is a socket; through mysqlclient"),
    client("psycopg", Postgres, Tcp, "psycopg.connect('host={folder} port={port} dbname=DB user=USER')", "psycopg.connect('host={host} port={port} dbname=DB user=USER')", "no host at all means the default folder").tested(),
    client("SQLAlchemy PostgreSQL", Postgres, Tcp, "create_engine('postgresql+psycopg://user:password@/db?host={folder}&port={port}')", "create_engine('postgresql+psycopg://user:password@{host}:{port}/db')", ""),
    client("Django PostgreSQL", Postgres, Tcp, "'HOST': '{folder}', 'PORT': '{port}',", "'HOST': '{host}', 'PORT': '{port}',", "an empty HOST means the default folder"),
    client("redis-py", Redis, Tcp, "redis.Redis(unix_socket_path='{path}')", "redis.Redis(host='{host}', port={port})", "as a URL: unix:// and the path").tested(),
    client("pymemcache", Memcached, Tcp, "pymemcache.client.base.Client('unix:{path}')", "pymemcache.client.base.Client(('{host}', {port}))", "").tested(),
    client("requests-unixsocket", Http, Tcp, "requests_unixsocket.Session().get('http+unix://{escaped}/')", "requests.get('http://{host}:{port}/')", ""),
];
