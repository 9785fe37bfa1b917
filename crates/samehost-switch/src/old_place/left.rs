//! A place that is left, what a switch knows values from, and whether an address leads to the place.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use samehost_edit::Lead;
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_system::{User, lookup};
use serde::{Deserialize, Serialize};

use crate::configuration::ConfigFile;
use crate::place::{is_local, real};
use crate::plan::hop::Hop;

/// What a switch knows values from: the configurations that it read. Kept with the switch for `switch finish`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sources {
    pub(super) configurations: BTreeSet<PathBuf>,
    /// Lines that still have an old address after the switch and lead nowhere: a part of a setting that moved, which
    /// another part outweighs (`DB_HOST` beside `DB_SOCKET`).
    pub(super) inert: BTreeSet<(PathBuf, String)>,
    #[serde(skip)]
    pub(super) reader: Option<User>,
}

impl Sources {
    pub(crate) fn add(&mut self, config: &ConfigFile) {
        self.configurations.insert(config.file.clone());
        if let Some(reader) = &config.reader {
            self.reader = Some(reader.clone());
        }
    }
}

/// A place that is left, and what moves away from it.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) from: &'a Endpoint,
    pub(crate) to: &'a Endpoint,
    pub(crate) hops: &'a [Hop],
}

/// Whether a value of a text leads to a listener.
pub(crate) fn leads_there(scan: &Scan, lead: &Lead, listener: &Endpoint) -> bool {
    lead.endpoints.iter().any(|endpoint| is_there(scan, endpoint, listener))
}

/// Whether an address leads to a listener: to the same service at the same port, or to its socket.
pub(crate) fn is_there(scan: &Scan, endpoint: &Endpoint, listener: &Endpoint) -> bool {
    match (endpoint, listener) {
        (Endpoint::Tcp { host, port }, Endpoint::Tcp { port: wanted, .. }) => {
            if port != wanted {
                return false;
            }
            // Who connects to no address connects to this machine.
            if host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) {
                return is_local(listener);
            }
            if !lookup::is_here(host) {
                return false;
            }
            let (there, services) = (services_at(scan, endpoint), services_at(scan, listener));
            services.is_empty() || there.iter().any(|at| services.contains(at))
        }
        (Endpoint::Unix(path), Endpoint::Unix(socket)) => {
            // Clients of PostgreSQL name the directory of the socket.
            let name = socket.file_name().unwrap_or_default().to_string_lossy();
            let is_directory = name.starts_with(".s.PGSQL.") && socket.parent() == Some(path);
            is_directory || real(path) == real(socket)
        }
        _ => false,
    }
}
