//! Databases by their container image, and the variables that lead to one.

use samehost_services::Protocol;

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

    pub(super) fn port(self) -> u16 {
        usual_port(self.protocol)
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
