//! The endpoints of a service that was named and not addressed: `samehost verify mariadb`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use samehost_model::scan::{Address, Scan, Socket};
use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use crate::namespaces;

/// What the running services of this name speak, and where they listen for streams in this network namespace. `None` where
/// no service has such a name; without endpoints where none of them runs.
#[must_use]
pub fn endpoints_of(scan: &Scan, name: &str) -> Option<(Protocol, Vec<Endpoint>)> {
    let kind = Kind::called(name)?;
    let own = namespaces::own_of(scan);
    let mut found = Vec::new();
    for service in &scan.services {
        let is_asked = service.kind.is_some_and(|of| of.family() == kind.family());
        if !is_asked || Some(service.network_namespace) != own {
            continue;
        }
        let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        for endpoint in sockets.filter_map(endpoint) {
            if !found.contains(&endpoint) {
                found.push(endpoint);
            }
        }
    }
    Some((kind.protocol().unwrap_or(Protocol::Plain), found))
}

/// Where a client of this machine reaches a listener of streams.
fn endpoint(socket: &Socket) -> Option<Endpoint> {
    match &socket.local {
        Address::Inet(address) if socket.kind.is_tcp() => {
            let ip = match address.ip() {
                IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            format!("tcp:{}", SocketAddr::new(ip, address.port())).parse().ok()
        }
        Address::Path(path) if socket.kind.is_unix() => Some(Endpoint::Unix(path.clone())),
        _ => None,
    }
}
