//! From a scan to lines: one for each program that talks to a service over one transport. Pure.

use std::collections::BTreeMap;

use samehost_model::scan::{Saving, Scan, Traffic};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The service's name.
    pub service: String,
    /// The client's name.
    pub client: String,
    /// `tcp`, `tcp6`, `unix`, `unix dgram`, `unix seqpacket`.
    pub transport: &'static str,
    /// Where the service is.
    pub address: String,
    /// Connections open now.
    pub connections: u32,
    /// What it carried since the look before; the kernel counts it for TCP only.
    pub traffic: Option<Traffic>,
    /// What a switch would save, once that was measured.
    pub saving: Option<Saving>,
    /// Its advice, as a position in the scan's list.
    pub advice: Option<usize>,
    /// The process that answers for the service.
    pid: Option<u32>,
}

/// What makes a line the same as one of an earlier look.
pub type Identity = (String, String, String, Option<u32>);

impl Row {
    /// What makes it the same line in the next look.
    pub fn identity(&self) -> Identity {
        (self.service.clone(), self.client.clone(), self.address.clone(), self.pid)
    }
}

/// The lines of a scan, TCP first.
pub fn rows(scan: &Scan) -> Vec<Row> {
    let mut rows: Vec<Row> = scan
        .advice
        .iter()
        .enumerate()
        .map(|(at, advice)| {
            let service = scan.services.get(advice.service);
            let transport = if advice.now.starts_with("tcp6") { "tcp6" } else { "tcp" };
            Row {
                service: service.map_or_else(|| "unknown".to_owned(), |service| service.name.clone()),
                client: advice.client.clone(),
                transport,
                address: advice.now.clone(),
                connections: advice.connections,
                traffic: advice.traffic,
                saving: advice.saving,
                advice: Some(at),
                pid: service.and_then(|service| service.pid),
            }
        })
        .collect();
    rows.extend(over_unix(scan));
    rows
}

fn over_unix(scan: &Scan) -> Vec<Row> {
    let mut pairs: BTreeMap<(usize, String, String), Row> = BTreeMap::new();
    for connection in scan.connections.iter().filter(|connection| connection.kind.is_unix()) {
        let Some((at, service)) = connection.service.and_then(|at| Some((at, scan.services.get(at)?))) else {
            continue;
        };
        let Some(server) = scan.sockets.get(connection.server) else { continue };
        let client = match scan.holder(connection.client) {
            Some(process) => process.name.clone(),
            None => "not visible".to_owned(),
        };
        let address = server.local.to_string();
        pairs
            .entry((at, client.clone(), address.clone()))
            .or_insert_with(|| Row {
                service: service.name.clone(),
                client,
                transport: connection.kind.label(),
                address,
                connections: 0,
                traffic: None,
                saving: None,
                advice: None,
                pid: service.pid,
            })
            .connections += 1;
    }
    pairs.into_values().collect()
}
