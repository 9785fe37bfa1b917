//! Reduces a scan to what stays the same while nothing changes: an [`Inventory`]. It works on the JSON of a scan, so that
//! a file of `samehost scan --json` gives the same as the scan itself.
//!
//! The `Stored…` structs have the few fields that this takes, and not those of the model. Deriving `Deserialize` for the model's
//! own was looked at and left: a `Connection` has places in the list of sockets, where the JSON has the sockets' addresses and
//! processes, so that reading it back is a second translation; and each field that a later version adds to a scan would need a default,
//! or files that people keep could not be read. A field that is renamed fails in `what_was_stored_and_what_was_printed_read_the_same`.

use std::collections::BTreeMap;

use samehost_model::scan::{
    Hop, INVENTORY_SCHEMA, Inventory, Listening, Noted, Program, SCAN_SCHEMA, Scan, ServiceName,
};
use serde::Deserialize;

/// Programs to which everything is connected: a new connection to one of them says nothing new.
const PLUMBING: &[&str] = &["systemd", "systemd-journal", "dbus-daemon", "dbus-broker"];
/// Sockets below it belong to the session of a user, and go with it.
const SESSIONS: &str = "unix:/run/user/";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    #[error("written by a newer samehost ({0})")]
    Newer(String),
    #[error("of format `{0}`, which is not that of a scan")]
    Another(String),
    #[error("damaged, or not a scan: {0}")]
    Damaged(String),
}

/// What a scan found, by names that outlive processes: programs, services and endpoints.
/// Process numbers, inodes, ports of clients and addresses of containers differ between two scans while
/// nothing has changed. The whole scan as the file was rejected: it has megabytes on a busy host, and the
/// command lines of all users. It is made from the JSON of a scan, so that a file of `scan --json` and a
/// kept scan are compared by one rule (docs/decisions/0092).
///
/// # Errors
/// Never, for a scan of this version.
pub fn inventory(scan: &Scan, taken_at: &str) -> Result<Inventory, InventoryError> {
    let json = serde_json::to_vec(scan).map_err(damaged)?;
    let stored: StoredScan = serde_json::from_slice(&json).map_err(damaged)?;
    Ok(Inventory { taken_at: Some(taken_at.to_owned()), ..stored.inventory() })
}

/// Reads a stored inventory, or the output of `samehost scan --json`.
///
/// # Errors
/// When it is neither, or of a later version.
pub fn read_inventory(json: &[u8]) -> Result<Inventory, InventoryError> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        schema: String,
    }
    let named: Named = serde_json::from_slice(json).map_err(damaged)?;
    match named.schema.as_str() {
        INVENTORY_SCHEMA => serde_json::from_slice(json).map_err(damaged),
        SCAN_SCHEMA => {
            let scan: StoredScan = serde_json::from_slice(json).map_err(damaged)?;
            Ok(scan.inventory())
        }
        "" => Err(InventoryError::Damaged("it names no format".into())),
        // `samehost.scan/2` is a scan of a later version.
        other if [INVENTORY_SCHEMA, SCAN_SCHEMA].map(name_of).contains(&name_of(other)) => {
            Err(InventoryError::Newer(other.to_owned()))
        }
        other => Err(InventoryError::Another(other.to_owned())),
    }
}

/// `samehost.scan` of `samehost.scan/1`.
fn name_of(schema: &str) -> &str {
    schema.split('/').next().unwrap_or(schema)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn damaged(error: serde_json::Error) -> InventoryError {
    InventoryError::Damaged(error.to_string())
}

#[derive(Deserialize)]
struct StoredScan {
    samehost_version: String,
    as_root: bool,
    network_namespaces: Vec<StoredNamespace>,
    services: Vec<StoredService>,
    advice: Vec<StoredAdvice>,
    #[serde(default)]
    findings: Vec<StoredFinding>,
    processes: Vec<StoredProcess>,
    connections: Vec<StoredConnection>,
    sockets: Vec<StoredSocket>,
}

#[derive(Deserialize)]
struct StoredNamespace {
    inode: u64,
    own: bool,
}

#[derive(Deserialize)]
struct StoredService {
    kind: Option<String>,
    name: String,
    pid: Option<u32>,
    network_namespace: u64,
    listeners: Vec<usize>,
}

#[derive(Deserialize)]
struct StoredAdvice {
    service: usize,
    client: String,
    client_pids: Vec<u32>,
    now: String,
    connections: u32,
}

#[derive(Deserialize)]
struct StoredFinding {
    code: String,
    /// Earlier versions have none.
    subject: Option<String>,
    found: String,
}

#[derive(Deserialize)]
struct StoredProcess {
    pid: u32,
    name: String,
    uid: u32,
    user: Option<String>,
    unit: Option<String>,
    container: Option<StoredContainer>,
    network_namespace: Option<u64>,
}

#[derive(Deserialize)]
struct StoredContainer {
    runtime: String,
}

#[derive(Deserialize)]
struct StoredConnection {
    kind: String,
    service: Option<usize>,
    client: StoredEnd,
    server: StoredEnd,
}

#[derive(Deserialize)]
struct StoredEnd {
    address: Option<String>,
    pids: Vec<u32>,
}

#[derive(Deserialize)]
struct StoredSocket {
    kind: String,
    local: Option<String>,
}

impl StoredScan {
    fn inventory(&self) -> Inventory {
        let mut findings: Vec<Noted> = self.findings.iter().map(noted).collect();
        findings.sort_unstable();
        findings.dedup_by(|one, other| (&one.code, &one.subject) == (&other.code, &other.subject));
        Inventory {
            schema: INVENTORY_SCHEMA.into(),
            samehost_version: self.samehost_version.clone(),
            taken_at: None,
            as_root: self.as_root,
            services: self.listening(),
            hops: self.hops(),
            findings,
        }
    }

    /// Services of the same name and program are one: its endpoints are those of all of them.
    fn listening(&self) -> Vec<Listening> {
        let mut all: BTreeMap<(ServiceName, Program), Vec<String>> = BTreeMap::new();
        for service in &self.services {
            let mut endpoints = Vec::new();
            for socket in service.listeners.iter().filter_map(|at| self.sockets.get(*at)) {
                let Some(local) = &socket.local else { continue };
                endpoints.extend(endpoint(&socket.kind, local));
            }
            endpoints.retain(|endpoint| !endpoint.starts_with(SESSIONS));
            if endpoints.is_empty() {
                continue;
            }
            let program = match service.pid {
                Some(pid) => self.program(pid),
                None => {
                    Program { other_network: !self.is_own(service.network_namespace), ..Program::default() }
                }
            };
            all.entry((service.name(), program)).or_default().extend(endpoints);
        }
        let mut listening = Vec::new();
        for ((service, program), mut endpoints) in all {
            endpoints.sort_unstable();
            endpoints.dedup();
            listening.push(Listening { service, program, endpoints });
        }
        listening
    }

    /// Over TCP those of the advice, which has found the programs of clients that were not visible; over Unix sockets
    /// those of the connections.
    fn hops(&self) -> Vec<Hop> {
        let mut all: BTreeMap<(Program, ServiceName, String), u32> = BTreeMap::new();
        for advice in &self.advice {
            let Some(service) = self.services.get(advice.service) else { continue };
            let client = match advice.client_pids.first() {
                Some(pid) => Program { name: Some(advice.client.clone()), ..self.program(*pid) },
                None => unseen(&advice.client),
            };
            *all.entry((client, service.name(), advice.now.clone())).or_default() += advice.connections;
        }
        for connection in &self.connections {
            let (Some(at), Some(address)) = (connection.service, &connection.server.address) else {
                continue;
            };
            let Some(service) = self.services.get(at) else { continue };
            let Some(endpoint) = endpoint(&connection.kind, address) else { continue };
            let is_aside = PLUMBING.contains(&service.name.as_str()) || endpoint.starts_with(SESSIONS);
            if connection.kind.starts_with("unix") && !is_aside {
                let client = match connection.client.pids.first() {
                    Some(pid) => self.program(*pid),
                    None => Program::default(),
                };
                *all.entry((client, service.name(), endpoint)).or_default() += 1;
            }
        }
        let mut hops = Vec::new();
        for ((client, service, endpoint), connections) in all {
            hops.push(Hop { client, service, endpoint, connections });
        }
        hops
    }

    /// A process by what outlives it; nothing is known of one that was not visible.
    fn program(&self, pid: u32) -> Program {
        let Ok(at) = self.processes.binary_search_by_key(&pid, |process| process.pid) else {
            return Program::default();
        };
        let process = &self.processes[at];
        Program {
            name: Some(process.name.clone()),
            user: Some(process.user.clone().unwrap_or(process.uid.to_string())),
            unit: process.unit.clone().filter(|unit| !is_transient(unit)),
            container: process.container.as_ref().map(|container| container.runtime.clone()),
            other_network: process.network_namespace.is_some_and(|inode| !self.is_own(inode)),
        }
    }

    fn is_own(&self, namespace: u64) -> bool {
        self.network_namespaces.iter().any(|space| space.own && space.inode == namespace)
    }
}

impl StoredService {
    fn name(&self) -> ServiceName {
        ServiceName { kind: self.kind.clone(), name: self.name.clone() }
    }
}

fn noted(finding: &StoredFinding) -> Noted {
    let subject = finding.subject.as_ref().unwrap_or(&finding.found);
    Noted { code: finding.code.clone(), subject: subject.clone(), found: finding.found.clone() }
}

/// A client whose process was not visible. Where the kernel knew the unit that made its socket, advice calls it that.
fn unseen(client: &str) -> Program {
    let unit = Some(client.to_owned()).filter(|client| client.ends_with(".service") && !is_transient(client));
    Program { unit, ..Program::default() }
}

/// Whether systemd-run made up the name of a unit: `run-u12.service`, `run-p34-i56.service`, `run-r0a1b….service`.
fn is_transient(unit: &str) -> bool {
    unit.starts_with("run-") && unit.ends_with(".service") && unit.bytes().any(|byte| byte.is_ascii_digit())
}

/// The endpoint of a stream socket in words; none of a socket for datagrams.
fn endpoint(kind: &str, address: &str) -> Option<String> {
    match kind {
        "tcp" | "tcp6" => Some(format!("{kind}:{address}")),
        "unix_stream" | "unix_seqpacket" => Some(match address.strip_prefix('@') {
            Some(name) => format!("abstract:{name}"),
            None => format!("unix:{address}"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{
        Address, Advice, Connection, NetworkNamespace, Possible, Process, ReadBy, Service, Socket,
        SocketKind, SocketState,
    };

    use super::*;

    fn process(pid: u32, name: &str, unit: &str) -> Process {
        Process {
            pid,
            name: name.into(),
            uid: 33,
            user: Some("www-data".into()),
            unit: Some(unit.into()),
            network_namespace: Some(1),
            ..Process::default()
        }
    }

    fn service(pid: u32) -> Service {
        Service {
            kind: None,
            recognised_by: None,
            name: "server".into(),
            pid: Some(pid),
            processes: 1,
            network_namespace: 1,
            listeners: vec![0, 1],
            connections: 2,
        }
    }

    fn advice(client: u32) -> Advice {
        Advice {
            service: 0,
            client: "client".into(),
            client_pids: vec![client],
            now: "tcp:127.0.0.1:80".into(),
            members: vec![0],
            connections: 1,
            unseen: 0,
            socket: None,
            possible: Possible::Unknown,
            obstacles: Vec::new(),
            traffic: None,
            saving: None,
        }
    }

    /// A service at a port and at a path, with one client at each; `shift` moves all that the kernel chooses.
    fn scan(shift: u32) -> Scan {
        fn address(text: &str) -> Address {
            Address::Inet(text.parse().unwrap())
        }
        let socket = |kind, state, inode, local: Address, pid| Socket {
            local,
            pids: vec![pid],
            ..Socket::new(kind, state, u64::from(shift + inode), 1)
        };
        let (server, client) = (100 + shift, 200 + shift);
        let path = Address::Path("/run/a.sock".into());
        let port = address("127.0.0.1:80");
        let mut clients = address("127.0.0.1:40000");
        if let Address::Inet(address) = &mut clients {
            address.set_port(40_000 + shift as u16);
        }
        use SocketKind::{Tcp, UnixStream};
        use SocketState::{Established, Listen};
        let sockets = vec![
            socket(Tcp, Listen, 1, port.clone(), server),
            socket(UnixStream, Listen, 2, path.clone(), server),
            socket(Tcp, Established, 3, clients, client),
            socket(Tcp, Established, 4, port, server),
            socket(UnixStream, Established, 5, Address::Unnamed, client),
            socket(UnixStream, Established, 6, path, server),
        ];
        Scan {
            samehost_version: "1".into(),
            network_namespaces: vec![NetworkNamespace {
                inode: 1,
                own: true,
                name: None,
                pid: None,
                foreign: false,
                read_by: ReadBy::SockDiag,
                somaxconn: None,
            }],
            sockets,
            processes: vec![
                process(server, "server", "a.service"),
                process(client, "client", "run-u7.service"),
            ],
            services: vec![service(server)],
            connections: vec![
                Connection { kind: Tcp, client: 2, server: 3, service: Some(0) },
                Connection { kind: UnixStream, client: 4, server: 5, service: Some(0) },
            ],
            advice: vec![advice(client)],
            ..Scan::default()
        }
    }

    #[test]
    fn what_the_kernel_chooses_is_left_out() {
        let first = inventory(&scan(0), "T").unwrap();
        assert_eq!(first, inventory(&scan(1000), "T").unwrap());
        let ends: Vec<&str> = first.hops.iter().map(|hop| hop.endpoint.as_str()).collect();
        assert_eq!(ends, ["tcp:127.0.0.1:80", "unix:/run/a.sock"]);
        let client = &first.hops[0].client;
        assert_eq!((client.name.as_deref(), client.user.as_deref()), (Some("client"), Some("www-data")));
        assert_eq!(client.unit, None, "systemd-run counts its units");
        assert_eq!(first.services[0].endpoints, ends);
        assert_eq!(first.services[0].program.unit.as_deref(), Some("a.service"));
    }

    #[test]
    fn what_was_stored_and_what_was_printed_read_the_same() {
        let scan = scan(0);
        let first = inventory(&scan, "T").unwrap();
        assert_eq!(read_inventory(&serde_json::to_vec(&first).unwrap()).unwrap(), first);
        let printed = read_inventory(&serde_json::to_vec(&scan).unwrap()).unwrap();
        assert_eq!(printed, Inventory { taken_at: None, ..first });
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        fn reason(text: &str) -> InventoryError {
            read_inventory(text.as_bytes()).unwrap_err()
        }
        assert!(matches!(reason("{\"schema\":\"samehost.inventory/2\"}"), InventoryError::Newer(_)));
        assert!(matches!(reason("{\"schema\":\"samehost.scan/9\"}"), InventoryError::Newer(_)));
        assert!(matches!(reason("{\"schema\":\"samehost.report/1\"}"), InventoryError::Another(_)));
        for damaged in ["", "{", "[]", "{\"schema\":\"samehost.inventory/1\",\"samehost_version\":\"1\"}"] {
            assert!(matches!(reason(damaged), InventoryError::Damaged(_)), "{damaged}");
        }
    }
}
