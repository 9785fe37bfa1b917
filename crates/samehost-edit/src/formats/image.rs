//! Servers by their container image, and what a client's variable says for their socket. For files that are not edited
//! the words are for people.

use samehost_services::{Kind, Protocol};

use crate::languages::url::usual_port;

#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) protocol: Protocol,
    /// The directory to mount; the image of a database creates it, with its server's permissions.
    pub(super) directory: &'static str,
    pub(super) socket: &'static str,
}

const MYSQL: Server =
    Server { protocol: Protocol::Mysql, directory: "/var/run/mysqld", socket: "/var/run/mysqld/mysqld.sock" };

const MARIADB: Server =
    Server { protocol: Protocol::Mysql, directory: "/run/mysqld", socket: "/run/mysqld/mysqld.sock" };

const POSTGRES: Server = Server {
    protocol: Protocol::Postgres,
    directory: "/var/run/postgresql",
    socket: "/var/run/postgresql/.s.PGSQL.5432",
};

const REDIS: Server =
    Server { protocol: Protocol::Redis, directory: "/sockets", socket: "/sockets/redis.sock" };

const LEADS: &[&str] = &["HOST", "URL", "URI", "DSN", "SERVER", "ADDR"];

impl Server {
    /// The database of an official image, by its name with registry and tag.
    pub(super) fn of_database(image: &str) -> Option<Self> {
        match name_of(image) {
            "mysql" => Some(MYSQL),
            "mariadb" => Some(MARIADB),
            "postgres" | "postgis/postgis" => Some(POSTGRES),
            _ => None,
        }
    }

    /// The server of an image: a database, or a Redis or one of its relatives.
    pub(super) fn of_image(image: &str) -> Option<Self> {
        if let Some(database) = Server::of_database(image) {
            return Some(database);
        }
        let path = image.split('@').next().unwrap_or_default();
        let name = path.rsplit('/').next().and_then(|name| name.split(':').next());
        let mut named = Kind::all().filter(|kind| Some(kind.name()) == name);
        named.any(|kind| kind.protocol() == Some(Protocol::Redis)).then_some(REDIS)
    }

    pub(super) fn port(self) -> u16 {
        usual_port(self.protocol)
    }

    /// The arguments with which it listens at its socket, with this mode; `None` for one that does so by itself.
    pub(super) fn arguments(self, mode: &'static str) -> Option<[&'static str; 4]> {
        if self.protocol == Protocol::Redis {
            Some(["--unixsocket", self.socket, "--unixsocketperm", mode])
        } else {
            None
        }
    }

    /// The value of a client's variable.
    pub(super) fn value(self, variable: &str) -> String {
        match variable {
            "WORDPRESS_DB_HOST" => format!("localhost:{}", self.socket),
            "PGHOST" => self.directory.to_owned(),
            _ => format!("the socket {} as its program spells it", self.socket),
        }
    }
}

/// Name of an image, without registry and tag.
pub(super) fn name_of(mut image: &str) -> &str {
    for prefix in ["docker.io/", "library/"] {
        image = image.strip_prefix(prefix).unwrap_or(image);
    }
    let name = image.split('@').next().unwrap_or(image);
    name.split(':').next().unwrap_or(name)
}

/// Whether a variable of this name may lead to a server. `DB_CONNECTION: mysql` names none, even if one is called so.
pub(super) fn leads(name: &str) -> bool {
    LEADS.iter().any(|word| name.contains(word))
}

/// Whether a host is that of the client itself, or of its pod.
pub(super) fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&host)
}
