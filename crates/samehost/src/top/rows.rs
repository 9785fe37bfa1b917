//! Converts a scan into lines: one for each program that talks to a service over one transport. Pure.

use std::collections::BTreeMap;

use samehost_model::scan::{PairExchanges, Saving, Scan, Traffic};

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
    /// How long its requests took since the previous scan, where that is measured.
    pub exchanges: Option<PairExchanges>,
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
    /// Bytes a second of both directions; `None` where nobody counted them.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let counted = self.traffic.map(|traffic| traffic.bytes_per_s);
        counted.or_else(|| self.exchanges.as_ref().map(|pair| pair.bytes_out_per_s + pair.bytes_back_per_s))
    }

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
                exchanges: exchanges(scan, advice.service, &advice.client, &advice.now),
                saving: advice.saving,
                advice: Some(at),
                pid: service.and_then(|service| service.pid),
            }
        })
        .collect();
    rows.extend(over_unix(scan));
    rows
}

/// What was seen of a pair's exchanges.
fn exchanges(scan: &Scan, service: usize, client: &str, address: &str) -> Option<PairExchanges> {
    let pairs = &scan.exchanges.as_ref()?.pairs;
    let mut pairs = pairs.iter().filter(|pair| pair.service == service);
    pairs.find(|pair| pair.client == client && pair.address == address).cloned()
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
                exchanges: exchanges(scan, at, &client, &address),
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
