//! Connections that were opened while traffic was observed, and stayed open: the scan was made before them, and no notice of
//! an end tells of them. Of a program that connects now and then for a second, one scan in three had nothing to say.

use std::collections::HashSet;
use std::net::SocketAddr;

use samehost_model::scan::{Connection, Scan, Socket, SocketState};

use crate::advice::advise;

/// Namespace and both addresses of a TCP connection's client.
fn key(client: &Socket) -> Option<(u64, SocketAddr, SocketAddr)> {
    Some((client.network_namespace, client.local.inet()?, client.peer.inet()?))
}

/// Adds the TCP connections that only a later scan of the same machine has, to services that both have, with their processes
/// and with advice on them.
pub(crate) fn add_opened(scan: &mut Scan, later: &Scan) {
    let known: HashSet<_> =
        scan.connections.iter().filter_map(|connection| key(scan.sockets.get(connection.client)?)).collect();
    let mut is_any = false;
    for connection in later.connections.iter().filter(|connection| connection.kind.is_tcp()) {
        let (Some(client), Some(server)) =
            (later.sockets.get(connection.client), later.sockets.get(connection.server))
        else {
            continue;
        };
        if key(client).is_none_or(|key| known.contains(&key)) {
            continue;
        }
        let Some(service) = connection.service.and_then(|at| same_service(scan, later, at)) else { continue };
        for pid in client.pids.iter().chain(&server.pids) {
            let Some(process) = later.process(*pid) else { continue };
            if let Err(at) = scan.processes.binary_search_by_key(pid, |process| process.pid) {
                scan.processes.insert(at, process.clone());
            }
        }
        let first = scan.sockets.len();
        scan.sockets.extend([client.clone(), server.clone()]);
        scan.connections.push(Connection {
            kind: connection.kind,
            client: first,
            server: first + 1,
            service: Some(service),
        });
        is_any = true;
    }
    if is_any {
        advise(scan);
    }
}

/// The service of a scan that has a listener of a later scan's service.
fn same_service(scan: &Scan, later: &Scan, service: usize) -> Option<usize> {
    let place = |socket: &Socket| (socket.kind, socket.network_namespace, socket.local.clone());
    let listeners = later.services.get(service)?.listeners.iter();
    let places: Vec<_> = listeners.filter_map(|at| later.sockets.get(*at)).map(place).collect();
    scan.services.iter().position(|one| {
        let sockets = one.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        sockets
            .filter(|socket| socket.state == SocketState::Listen)
            .any(|socket| places.contains(&place(socket)))
    })
}
