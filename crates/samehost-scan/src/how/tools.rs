//! Programs: command lines, proxies, web servers.

use super::Localhost::{None, Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{FastCgi, Http, Memcached, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("mysql", Mysql, Socket, "mysql --protocol=socket --socket={path}", "mysql --protocol=tcp -h {host} -P {port}", "without --protocol a port beside `localhost` is ignored").tested(),
    client("psql", Postgres, Tcp, "psql -h {folder} -p {port} -d DB -U USER", "psql -h {host} -p {port} -d DB -U USER", "").tested(),
    client("redis-cli", Redis, Tcp, "redis-cli -s {path}", "redis-cli -h {host} -p {port}", "").tested(),
    client("nc", Memcached, Tcp, "nc -U {path}", "nc {host} {port}", "").tested(),
    client("nginx", FastCgi, Tcp, "fastcgi_pass unix:{path};", "fastcgi_pass {host}:{port};", ""),
    client("Apache", FastCgi, Tcp, "SetHandler \"proxy:unix:{path}|fcgi://localhost/\"", "SetHandler \"proxy:fcgi://{host}:{port}/\"", ""),
    client("Caddy", FastCgi, Tcp, "php_fastcgi unix/{path}", "php_fastcgi {host}:{port}", ""),
    client("nginx", Http, Tcp, "proxy_pass http://unix:{path}:/;", "proxy_pass http://{host}:{port};", "in an upstream block: server unix: and the path; keepalive there saves more than the socket"),
    client("HAProxy", Http, Tcp, "server app unix@{path}", "server app {host}:{port}", ""),
    client("Apache", Http, Tcp, "ProxyPass \"/\" \"unix:{path}|http://localhost/\"", "ProxyPass \"/\" \"http://{host}:{port}/\"", ""),
    client("curl", Http, None, "curl --unix-socket {path} http://localhost/", "curl http://{host}:{port}/", ""),
];
