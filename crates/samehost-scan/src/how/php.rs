//! Clients in PHP. `localhost` is the default socket to mysqlnd, whatever the port beside it.

use super::Localhost::{None, Socket, Tcp};
use super::{Client, client};
use samehost_model::Protocol::{Memcached, Mysql, Postgres, Redis};

#[rustfmt::skip]
pub(super) const CLIENTS: &[Client] = &[
    client("mysqli", Mysql, Socket, "new mysqli('localhost', $user, $password, $database, 0, '{path}');", "new mysqli('{host}', $user, $password, $database, {port});", "without a path it takes mysqli.default_socket").tested(),
    client("PDO MySQL", Mysql, Socket, "new PDO('mysql:unix_socket={path};dbname=DB', $user, $password);", "new PDO('mysql:host={host};port={port};dbname=DB', $user, $password);", "host= and unix_socket= exclude each other").tested(),
    client("WordPress", Mysql, Socket, "define('DB_HOST', 'localhost:{path}');", "define('DB_HOST', '{host}:{port}');", "in wp-config.php; the first definition counts"),
    client("Laravel", Mysql, Socket, "DB_SOCKET={path}", "DB_HOST={host}\nDB_PORT={port}", "in .env; with DB_SOCKET set the host is not used"),
    client("Symfony", Mysql, Socket, "DATABASE_URL=\"mysql://user:password@localhost/db?unix_socket={path}\"", "DATABASE_URL=\"mysql://user:password@{host}:{port}/db\"", "Doctrine; in .env"),
    client("PDO PostgreSQL", Postgres, Tcp, "new PDO('pgsql:host={folder};port={port};dbname=DB', $user, $password);", "new PDO('pgsql:host={host};port={port};dbname=DB', $user, $password);", "the folder, not the file; the port is part of its name").tested(),
    client("phpredis", Redis, Tcp, "$redis->connect('{path}');", "$redis->connect('{host}', {port});", "").tested(),
    client("Predis", Redis, Tcp, "new Predis\\Client(['scheme' => 'unix', 'path' => '{path}']);", "new Predis\\Client('tcp://{host}:{port}');", ""),
    client("php-memcached", Memcached, Tcp, "$memcached->addServer('{path}', 0);", "$memcached->addServer('{host}', {port});", "port 0 says that it is a path").tested(),
    client("php.ini default", Mysql, None, "mysqli.default_socket = {path}\npdo_mysql.default_socket = {path}", "(none: name the host in the program)", "what `localhost` leads to; CLI and FPM have files of their own"),
];
