//! FIELD 5: "localhost" is a socket to some drivers and TCP to others, and default paths differ.

use std::path::Path;

use samehost_model::scan::Weight;

use super::pair::Pair;
use super::{Finding, show};

/// Where the client libraries of distributions look.
const MYSQL: &[&str] = &[
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",
];
const POSTGRES: &[&str] = &["/run/postgresql", "/var/run/postgresql", "/tmp"];

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let (usual, look): (bool, &str) = match pair.known?.kind {
        "mysql" | "mariadb" => (
            is_any(MYSQL, &path),
            "`localhost` means the default socket to PHP and C clients, and TCP to Go and Java; a port beside it is silently ignored",
        ),
        "postgres" | "pgbouncer" => (
            path.parent().is_some_and(|folder| is_any(POSTGRES, folder)),
            "`localhost` means TCP to every PostgreSQL client; only an empty host or a folder means the socket",
        ),
        _ => return None,
    };
    let found = if usual {
        look.to_owned()
    } else {
        format!("{} is not where client libraries look by default; {look}", show(&path))
    };
    Some((Weight::Note, found, format!("Name the path in the client's setting: {}", show(&path))))
}

fn is_any(list: &[&str], path: &Path) -> bool {
    list.iter().any(|one| Path::new(one) == path)
}
