//! Clients in Java: their drivers need junixsocket.

use super::Localhost::Tcp;
use super::{Client, client};
use samehost_model::Protocol::{Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("Connector/J", Mysql, Tcp, "jdbc:mysql://localhost/db?socketFactory=org.newsclub.net.mysql.AFUNIXDatabaseSocketFactory&junixsocket.file={path}&sslMode=DISABLED", "jdbc:mysql://{host}:{port}/db", "needs junixsocket-mysql on the class path").tested(),
    client("MariaDB Connector/J", Mysql, Tcp, "jdbc:mariadb:///db?localSocket={path}", "jdbc:mariadb://{host}:{port}/db", "needs junixsocket or JNA on the class path").tested(),
    client("pgjdbc", Postgres, Tcp, "jdbc:postgresql://localhost/db?socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg&socketFactoryArg={path}&sslmode=disable", "jdbc:postgresql://{host}:{port}/db", "needs junixsocket-core on the class path").tested(),
    client("Jedis", Redis, Tcp, "", "new JedisPooled(\"{host}\", {port})", "knows no Unix sockets by itself: give it a JedisSocketFactory of junixsocket, or use Lettuce (redis-socket:// and the path)"),
];
