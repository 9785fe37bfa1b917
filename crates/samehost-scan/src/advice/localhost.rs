//! Blocker `localhost`: "localhost" means a socket to some drivers and TCP to others, and default socket
//! paths differ.

use std::path::Path;

use samehost_model::scan::{Found, Weight};
use samehost_services::Protocol;

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let known = pair.known?;
    // The meaning, and what follows from it.
    let (means, but) = match known.protocol? {
        Protocol::Mysql => (
            "`localhost` means the default socket to PHP and C clients, and TCP to Go and Java",
            "a port beside it is silently ignored",
        ),
        Protocol::Postgres => (
            "`localhost` means TCP to every PostgreSQL client",
            "only an empty host or a folder means the socket",
        ),
        _ => return None,
    };
    let found = if is_default(known.protocol?, &path) {
        Found::with(means, but)
    } else {
        let fact = format!("{} is not where client libraries look by default", show(&path));
        Found::with(fact, format!("{means}; {but}"))
    };
    Some(Finding::new(Weight::Note, found, format!("Name the path in the client's setting: {}", show(&path))))
}

/// Whether clients of a protocol look for the socket at this path by default.
fn is_default(protocol: Protocol, path: &Path) -> bool {
    // /var/run is a link to /run.
    let path =
        path.strip_prefix("/var/run").map_or_else(|_| path.to_owned(), |rest| Path::new("/run").join(rest));
    let mut defaults = protocol.default_sockets();
    defaults.any(|default| match default.rsplit_once("{port}") {
        Some((start, _)) => Path::new(start).parent() == path.parent(),
        None => Path::new(default) == path,
    })
}
