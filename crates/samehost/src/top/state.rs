//! State of the live view: the latest scan, the sort order, the selected line. Changed by keys and scans;
//! does not draw and reads no clock.
//!
//! Converts a scan into lines: one for each program that talks to a service over one transport. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use samehost_model::scan::{PairExchanges, Saving, Scan, Traffic};

use super::Key;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Bytes,
    Connections,
    /// Most CPU time saved per day first.
    Saving,
    Service,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Order::Bytes => Order::Connections,
            Order::Connections => Order::Saving,
            Order::Saving => Order::Service,
            Order::Service => Order::Bytes,
        }
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let first = match self {
            Order::Bytes => bytes(b).total_cmp(&bytes(a)),
            Order::Connections => b.connections.cmp(&a.connections),
            Order::Saving => saved(b).total_cmp(&saved(a)),
            Order::Service => Ordering::Equal,
        };
        first.then_with(|| a.identity().cmp(&b.identity()))
    }
}

fn saved(row: &Row) -> f64 {
    row.saving.map_or(f64::NEG_INFINITY, |saving| saving.cpu_s_per_day.high)
}

fn bytes(row: &Row) -> f64 {
    row.bytes_per_s().unwrap_or(-1.0)
}

#[derive(Debug, Default)]
pub struct State {
    pub color: bool,
    pub interval_s: f64,
    pub status: Option<String>,
    pub scan: Scan,
    pub order: Order,
    pub with_unix: bool,
    /// How far the details are scrolled; `None` if they are closed.
    pub details: Option<usize>,
    /// Lines that fit on the screen at the last drawing; the length of a page.
    pub room: usize,
    rows: Vec<Row>,
    /// The line that the user selected, to follow it across scans; `None` before the first selection.
    selected: Option<Identity>,
    /// Index of the selected line, or of where one was.
    at: usize,
}

impl State {
    pub fn new(interval_s: f64, color: bool) -> Self {
        State { color, interval_s, room: 1, ..State::default() }
    }

    pub fn show(&mut self, scan: Scan) {
        self.scan = scan;
        self.arrange();
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn selected(&self) -> Option<usize> {
        (!self.rows.is_empty()).then_some(self.at)
    }

    /// Handles a key; returns whether to quit.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return true,
            Key::Back if self.details.is_some() => self.details = None,
            Key::Back => return true,
            Key::Details => {
                self.travel(0);
                self.details = if self.details.is_none() { self.selected().map(|_| 0) } else { None };
            }
            Key::Sort => {
                self.order = self.order.next();
                self.arrange();
            }
            Key::Unix => {
                self.with_unix = !self.with_unix;
                self.arrange();
            }
            Key::Calibrate => {}
            Key::Up => self.travel(-1),
            Key::Down => self.travel(1),
            Key::PageUp => self.travel(-(self.room as isize)),
            Key::PageDown => self.travel(self.room as isize),
            Key::First => self.travel(isize::MIN),
            Key::Last => self.travel(isize::MAX),
        }
        false
    }

    /// Moves the selection, or scrolls open details; drawing limits the scroll position.
    fn travel(&mut self, lines: isize) {
        if let Some(scrolled) = &mut self.details {
            *scrolled = scrolled.saturating_add_signed(lines);
            return;
        }
        let last = self.rows.len().saturating_sub(1);
        self.at = self.at.saturating_add_signed(lines).min(last);
        self.selected = self.rows.get(self.at).map(Row::identity);
    }

    fn arrange(&mut self) {
        self.rows = rows(&self.scan);
        self.rows.retain(|row| self.with_unix || row.advice.is_some());
        let order = self.order;
        self.rows.sort_by(|a, b| order.compare(a, b));
        let last = self.rows.len().saturating_sub(1);
        let Some(selected) = &self.selected else {
            self.at = self.at.min(last);
            return;
        };
        let found = self.rows.iter().position(|row| row.identity() == *selected);
        if found.is_none() {
            // The selected line is gone, so its details are closed.
            (self.selected, self.details) = (None, None);
        }
        self.at = found.unwrap_or(self.at).min(last);
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub service: String,
    pub client: String,
    /// `tcp`, `tcp6`, `unix`, `unix dgram`, `unix seqpacket`.
    pub transport: &'static str,
    pub address: String,
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
    let mut rows: Vec<Row> = Vec::new();
    for (at, advice) in scan.advice.iter().enumerate() {
        let service = scan.services.get(advice.service);
        rows.push(Row {
            service: service.map_or_else(|| "unknown".to_owned(), |service| service.name.clone()),
            client: advice.client.clone(),
            transport: if advice.now.starts_with("tcp6") { "tcp6" } else { "tcp" },
            address: advice.now.clone(),
            connections: advice.connections,
            traffic: advice.traffic,
            exchanges: exchanges(scan, advice.service, &advice.client, &advice.now),
            saving: advice.saving,
            advice: Some(at),
            pid: service.and_then(|service| service.pid),
        });
    }
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
        let Some(at) = connection.service else { continue };
        let Some(service) = scan.services.get(at) else { continue };
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
