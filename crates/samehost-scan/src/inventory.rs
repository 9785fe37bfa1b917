//! Reduces a scan to what stays the same while nothing changes: an [`Inventory`], by which `--expect` judges and metrics count.

use std::collections::BTreeMap;

use samehost_model::scan::{
    Hop, Inventory, Listening, Program, Scan, Service, ServiceName, Socket, SocketKind,
};

/// Programs to which everything is connected: a new connection to one of them says nothing new.
const PLUMBING: &[&str] = &["systemd", "systemd-journal", "dbus-daemon", "dbus-broker"];
/// Sockets below it belong to the session of a user, and go with it.
const SESSIONS: &str = "unix:/run/user/";

/// What a scan found, by names that outlive processes: programs, services and endpoints. Process numbers, inodes, ports of clients
/// and addresses of containers differ between two scans while nothing has changed (docs/decisions/0092).
#[must_use]
pub fn inventory(scan: &Scan) -> Inventory {
    Inventory { services: listening(scan), hops: hops(scan) }
}

/// Services of the same name and program are one: its endpoints are those of all of them.
fn listening(scan: &Scan) -> Vec<Listening> {
    let mut all: BTreeMap<(ServiceName, Program), Vec<String>> = BTreeMap::new();
    for service in &scan.services {
        let mut endpoints: Vec<String> = scan.listeners(service).filter_map(endpoint).collect();
        endpoints.retain(|endpoint| !endpoint.starts_with(SESSIONS));
        if endpoints.is_empty() {
            continue;
        }
        let program = match service.pid {
            Some(pid) => program(scan, pid),
            None => Program { other_network: !is_own(scan, service.network_namespace), ..Program::default() },
        };
        all.entry((name(service), program)).or_default().extend(endpoints);
    }
    let mut listening = Vec::new();
    for ((service, program), mut endpoints) in all {
        endpoints.sort_unstable();
        endpoints.dedup();
        listening.push(Listening { service, program, endpoints });
    }
    listening
}

/// Over TCP those of the advice, which has found the programs of clients that were not visible; over Unix sockets those of the
/// connections.
fn hops(scan: &Scan) -> Vec<Hop> {
    let mut all: BTreeMap<(Program, ServiceName, String), u32> = BTreeMap::new();
    for advice in &scan.advice {
        let Some(service) = scan.services.get(advice.service) else { continue };
        let client = match advice.client_pids.first() {
            Some(pid) => Program { name: Some(advice.client.clone()), ..program(scan, *pid) },
            None => unseen(&advice.client),
        };
        *all.entry((client, name(service), advice.now.clone())).or_default() += advice.connections;
    }
    for connection in scan.connections.iter().filter(|connection| connection.kind.is_unix()) {
        let (Some(service), Some((client, server))) = (scan.service_of(connection), scan.ends(connection))
        else {
            continue;
        };
        let Some(endpoint) = endpoint(server) else { continue };
        if PLUMBING.contains(&service.name.as_str()) || endpoint.starts_with(SESSIONS) {
            continue;
        }
        let client = client.pids.first().map_or_else(Program::default, |pid| program(scan, *pid));
        *all.entry((client, name(service), endpoint)).or_default() += 1;
    }
    let mut hops = Vec::new();
    for ((client, service, endpoint), connections) in all {
        hops.push(Hop { client, service, endpoint, connections });
    }
    hops
}

/// A process by what outlives it; nothing is known of one that was not visible.
fn program(scan: &Scan, pid: u32) -> Program {
    let Some(process) = scan.process(pid) else { return Program::default() };
    Program {
        name: Some(process.name.clone()),
        user: Some(process.user.clone().unwrap_or(process.uid.to_string())),
        unit: process.unit.clone().filter(|unit| !is_transient(unit)),
        container: process.container.as_ref().map(|container| container.runtime.clone()),
        other_network: process.network_namespace.is_some_and(|inode| !is_own(scan, inode)),
    }
}

fn is_own(scan: &Scan, namespace: u64) -> bool {
    scan.own_namespace() == Some(namespace)
}

fn name(service: &Service) -> ServiceName {
    ServiceName { kind: service.kind.map(|kind| kind.name().to_owned()), name: service.name.clone() }
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

/// The endpoint of a stream socket in words; none of a socket for datagrams, and of one without a name.
fn endpoint(socket: &Socket) -> Option<String> {
    let address = socket.local.to_string();
    if address.is_empty() {
        return None;
    }
    match socket.kind {
        SocketKind::Tcp | SocketKind::Tcp6 => Some(format!("{}:{address}", socket.kind.label())),
        SocketKind::UnixStream | SocketKind::UnixSeqpacket => Some(match address.strip_prefix('@') {
            Some(name) => format!("abstract:{name}"),
            None => format!("unix:{address}"),
        }),
        SocketKind::Udp | SocketKind::Udp6 | SocketKind::UnixDgram => None,
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
                refused: None,
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
        let first = inventory(&scan(0));
        assert_eq!(first, inventory(&scan(1000)));
        let ends: Vec<&str> = first.hops.iter().map(|hop| hop.endpoint.as_str()).collect();
        assert_eq!(ends, ["tcp:127.0.0.1:80", "unix:/run/a.sock"]);
        let client = &first.hops[0].client;
        assert_eq!((client.name.as_deref(), client.user.as_deref()), (Some("client"), Some("www-data")));
        assert_eq!(client.unit, None, "systemd-run counts its units");
        assert_eq!(first.services[0].endpoints, ends);
        assert_eq!(first.services[0].program.unit.as_deref(), Some("a.service"));
    }
}
