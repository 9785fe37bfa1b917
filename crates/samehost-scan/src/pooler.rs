//! A pooler at the other end of a connection, and how it reaches its server: what the server sees is the pooler's own
//! connection.

use std::collections::BTreeMap;

use samehost_model::scan::{Proof, Scan, Service, Socket};
use samehost_services::Kind;

/// A pooler that accepted a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pooler {
    pub(crate) name: String,
    pid: u32,
}

impl Pooler {
    /// The service, if it is a pooler whose process is visible.
    pub(crate) fn of(service: Option<&Service>) -> Option<Self> {
        let service = service?;
        let is_pooler = matches!(service.kind, Some(Kind::Pgbouncer | Kind::Odyssey));
        if !is_pooler {
            return None;
        }
        Some(Pooler { name: service.name.clone(), pid: service.pid? })
    }

    /// Its connections to servers on this machine, as the kernel lists them: one proof for each address.
    pub(crate) fn behind(&self, scan: &Scan) -> Vec<Proof> {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for connection in &scan.connections {
            let ends = (scan.sockets.get(connection.client), scan.sockets.get(connection.server));
            let (Some(client), Some(server)) = ends else { continue };
            if let Some(service) = connection.service.and_then(|at| scan.services.get(at))
                && service.kind == Some(Kind::Postgres)
                && client.pids.contains(&self.pid)
            {
                *counts.entry((service.name.clone(), address(server))).or_default() += 1;
            }
        }
        let mut proofs = Vec::new();
        for ((service, place), count) in counts {
            let noun = if count == 1 { "connection" } else { "connections" };
            let says = format!("{} {} → {service} at {place}, {count} {noun}", self.name, self.pid);
            // About other connections than the one that is verified.
            proofs.push(Proof { by: "behind it", says, transport: None });
        }
        proofs
    }

    /// What the server's view is about.
    pub(crate) fn note(&self, transport: Option<&str>) -> String {
        let over = match transport {
            Some("unix") => "a Unix socket",
            Some(_) => "TCP",
            None => return format!("{} answers here, and stands between client and server", self.name),
        };
        format!(
            "{} answers here, and reaches the server over {over} for this database: the server sees that connection, and not this one",
            self.name
        )
    }
}

fn address(server: &Socket) -> String {
    let transport = if server.kind.is_unix() { "unix:" } else { "tcp:" };
    format!("{transport}{}", server.local)
}
