//! Connections that were opened while traffic was observed, and stayed open: the scan was made before them, and no notice of
//! an end tells of them. Of a program that connects now and then for a second, one scan in three had nothing to say.

use std::collections::{HashMap, HashSet};

use samehost_model::scan::{Connection, Scan, Socket};

use crate::advice::advise;
use crate::join::Listeners;
use crate::observe::Key;

/// The key of a TCP connection, by its client.
pub(crate) fn key(client: &Socket) -> Option<Key> {
    Some((client.network_namespace, client.local.inet()?, client.peer.inet()?))
}

/// Adds the TCP connections that only a later scan of the same machine has, with their processes and with advice on them, and
/// gives their keys. `listeners` and `service_of` are the earlier scan's: a service that came later has no advice.
pub(crate) fn add_opened(
    scan: &mut Scan,
    later: &Scan,
    listeners: &Listeners,
    service_of: &HashMap<usize, usize>,
) -> Vec<Key> {
    let known: HashSet<Key> =
        scan.connections.iter().filter_map(|connection| key(scan.sockets.get(connection.client)?)).collect();
    let mut added = Vec::new();
    for connection in later.connections.iter().filter(|connection| connection.kind.is_tcp()) {
        let (Some(client), Some(server)) =
            (later.sockets.get(connection.client), later.sockets.get(connection.server))
        else {
            continue;
        };
        let Some(key) = key(client).filter(|key| !known.contains(key)) else { continue };
        let (namespace, _, place) = key;
        let listener = listeners.accepts(namespace, place);
        let Some(service) = listener.and_then(|at| service_of.get(&at)) else { continue };
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
            service: Some(*service),
        });
        added.push(key);
    }
    if !added.is_empty() {
        advise(scan);
    }
    added
}
