//! Converts a scan into lines: one for each program that talks to a service over one transport. Pure.

use std::collections::BTreeMap;

use samehost_model::scan::{Saving, Scan, Traffic};

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub service: String,
    pub client: String,
    /// `tcp`, `tcp6`, `unix`, `unix dgram`, `unix seqpacket`.
    pub transport: &'static str,
    /// Address of the service.
    pub address: String,
    /// Open connections.
    pub connections: u32,
    /// Traffic since the previous scan; the kernel counts it only for TCP.
    pub traffic: Option<Traffic>,
    /// Predicted saving, once it was measured.
    pub saving: Option<Saving>,
    /// Index in the scan's advice.
    pub advice: Option<usize>,
    /// Main process of the service.
    pid: Option<u32>,
}

/// Key that identifies a line across scans.
pub type Identity = (String, String, String, Option<u32>);

impl Row {
    pub fn identity(&self) -> Identity {
        (self.service.clone(), self.client.clone(), self.address.clone(), self.pid)
    }
}

/// Lines of a scan, TCP first.
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
