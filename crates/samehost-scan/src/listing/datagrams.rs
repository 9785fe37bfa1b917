//! Who sends datagrams over UDP to a service of this machine, and which service has lost any. The kernel shows a sender only
//! while its socket is connected: one that names its receiver in each `sendto` leaves no trace.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use samehost_model::FindingCode;
use samehost_model::scan::{Dropped, Finding, Found, Scan, Service, Socket, SocketState};
use samehost_services::{Kind, Protocol};

use crate::diag::Diag;

/// Ports where a Unix socket is not a choice: who sends there follows a standard that has none. Names (DNS) and time (NTP).
const STANDARD: [u16; 3] = [53, 123, 5353];

/// A UDP socket of a service that takes datagrams of this machine.
struct Receiver<'a> {
    service: &'a Service,
    service_at: usize,
    socket: &'a Socket,
    socket_at: usize,
    address: SocketAddr,
}

impl Receiver<'_> {
    /// What it is called, with the usual service of its port where it was not recognised.
    fn name(&self) -> String {
        match (self.service.kind, self.kind()) {
            (None, Some(usual)) => {
                format!("{} (port {} is {}'s)", self.service.name, self.address.port(), usual.label())
            }
            _ => self.service.name.clone(),
        }
    }

    fn kind(&self) -> Option<Kind> {
        self.service.kind.or(of_port(self.address.port()))
    }

    /// Its kind, where that takes datagrams over Unix sockets too.
    fn datagram_kind(&self) -> Option<Kind> {
        self.kind().filter(|kind| takes_datagrams(*kind))
    }

    fn takes(&self, to: SocketAddr) -> bool {
        let ip = self.address.ip();
        self.address.port() == to.port() && (ip == to.ip() || ip.is_unspecified() && to.ip().is_loopback())
    }
}

pub(crate) fn takes_datagrams(kind: Kind) -> bool {
    kind.protocol().is_some_and(Protocol::is_datagram)
}

/// The service of datagrams that usually has a port.
pub(crate) fn of_port(port: u16) -> Option<Kind> {
    Kind::all().find(|kind| takes_datagrams(*kind) && kind.descriptor().ports.contains(&port))
}

/// How many datagrams each UDP socket of a service of this network namespace has dropped since it was made, where its receive
/// buffer was full. One entry for each socket that takes datagrams of this machine, also with 0; empty where the kernel does not
/// say (`sk_drops` of INET_DIAG_SKMEMINFO).
#[must_use]
pub fn dropped(scan: &Scan) -> Vec<Dropped> {
    let receivers = receivers(scan);
    if receivers.is_empty() {
        return Vec::new();
    }
    let counts = Diag::open().and_then(|mut diag| diag.dropped()).unwrap_or_default();
    let mut dropped = Vec::new();
    for receiver in receivers {
        let inode = receiver.socket.inode;
        let Some((_, datagrams)) = counts.iter().find(|(socket, _)| socket.inode == inode && inode != 0)
        else {
            continue;
        };
        dropped.push(Dropped {
            service: receiver.service_at,
            socket: receiver.socket_at,
            datagrams: *datagrams,
        });
    }
    dropped
}

/// Findings on lost datagrams, from [`Scan::dropped`], and then on services that get them over UDP.
pub(crate) fn findings(scan: &Scan) -> Vec<Finding> {
    let receivers = receivers(scan);
    let mut found = Vec::new();
    for receiver in &receivers {
        if let Some(dropped) = scan.dropped.iter().find(|dropped| dropped.socket == receiver.socket_at)
            && dropped.datagrams > 0
        {
            found.push(lost(receiver, dropped.datagrams));
        }
    }
    for receiver in &receivers {
        found.extend(senders(scan, receiver));
    }
    found
}

fn receivers(scan: &Scan) -> Vec<Receiver<'_>> {
    let Some(own) = scan.own_namespace() else { return Vec::new() };
    let mut found = Vec::new();
    for (service_at, service) in scan.services.iter().enumerate() {
        for socket_at in service.listeners.iter().copied() {
            let Some(socket) = scan.sockets.get(socket_at) else { continue };
            let Some(address) = socket.local.inet() else { continue };
            let is_local = address.ip().is_loopback() || address.ip().is_unspecified();
            if socket.kind.is_udp() && socket.network_namespace == own && is_local {
                found.push(Receiver { service, service_at, socket, socket_at, address });
            }
        }
    }
    found
}

fn lost(receiver: &Receiver<'_>, drops: u32) -> Finding {
    let unix = match receiver.datagram_kind() {
        Some(kind) => format!("; over a Unix socket a sender waits or is told: samehost how {kind}"),
        None => String::new(),
    };
    Finding {
        code: FindingCode::DatagramsDropped,
        subject: format!("{} {}", receiver.name(), receiver.address),
        found: Found::with(
            format!(
                "{} at udp {}: {drops} datagrams were dropped since it began, because its receive buffer was full",
                receiver.name(),
                receiver.address
            ),
            "no sender was told",
        ),
        remedy: format!(
            "Give it a larger receive buffer (its own setting, up to net.core.rmem_max) or more of a CPU{unix}"
        ),
    }
}

fn senders(scan: &Scan, receiver: &Receiver<'_>) -> Option<Finding> {
    if STANDARD.contains(&receiver.address.port()) {
        return None;
    }
    let mut programs: BTreeMap<String, usize> = BTreeMap::new();
    for (at, socket) in scan.sockets.iter().enumerate() {
        if socket.kind.is_udp()
            && socket.network_namespace == receiver.socket.network_namespace
            && socket.state == SocketState::Established
            && let Some(peer) = socket.peer.inet()
            && receiver.takes(peer)
        {
            let name = match scan.holder(at) {
                Some(process) => format!("{} {}", process.name, process.pid),
                None => "a process that is not visible".to_owned(),
            };
            *programs.entry(name).or_default() += 1;
        }
    }
    let sockets: usize = programs.values().sum();
    let names: Vec<String> = programs.into_keys().collect();
    let who = match names.as_slice() {
        [] => return None,
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, others @ ..] => format!("{one} and {} more programs", others.len()),
    };
    let verb = if names.len() == 1 { "sends" } else { "send" };
    let many = if sockets == 1 { String::new() } else { format!(" through {sockets} sockets") };
    let remedy = match receiver.datagram_kind() {
        Some(kind) => {
            format!("A Unix datagram socket would tell them: samehost how {kind}")
        }
        None => "If the service can take a Unix datagram socket, that would tell them".to_owned(),
    };
    Some(Finding {
        code: FindingCode::DatagramsOverUdp,
        subject: format!("{} {}", receiver.name(), receiver.address),
        found: format!(
            "{who} {verb} datagrams to {} at udp {}{many}: what finds its receive buffer full is dropped, and the sender is not told",
            receiver.name(),
            receiver.address
        )
        .into(),
        remedy,
    })
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Address, NetworkNamespace, Process, ReadBy, SocketKind};

    use super::*;

    fn udp(state: SocketState, local: &str, peer: &str, pid: u32) -> Socket {
        Socket {
            local: Address::Inet(local.parse().unwrap()),
            peer: Address::Inet(peer.parse().unwrap()),
            pids: vec![pid],
            ..Socket::new(SocketKind::Udp, state, u64::from(pid), 1)
        }
    }

    fn scan(receiver: &str, peers: &[&str]) -> Scan {
        let mut sockets = vec![udp(SocketState::Close, receiver, "0.0.0.0:0", 1)];
        let senders = peers.iter().enumerate();
        sockets.extend(
            senders.map(|(at, peer)| udp(SocketState::Established, "127.0.0.1:40000", peer, at as u32 + 10)),
        );
        Scan {
            network_namespaces: vec![NetworkNamespace {
                inode: 1,
                own: true,
                foreign: false,
                name: None,
                pid: None,
                read_by: ReadBy::SockDiag,
                refused: None,
                somaxconn: None,
            }],
            services: vec![Service {
                kind: None,
                recognised_by: None,
                name: "collector".to_owned(),
                pid: Some(1),
                processes: 1,
                network_namespace: 1,
                listeners: vec![0],
                connections: 0,
            }],
            processes: (10..10 + peers.len() as u32)
                .map(|pid| Process { pid, name: "app".to_owned(), ..Process::default() })
                .collect(),
            sockets,
            ..Scan::default()
        }
    }

    fn sent(receiver: &str, peers: &[&str]) -> Vec<String> {
        let scan = scan(receiver, peers);
        let receivers = receivers(&scan);
        receivers
            .iter()
            .filter_map(|one| senders(&scan, one))
            .map(|finding| finding.found.to_string())
            .collect()
    }

    #[test]
    fn connected_senders_are_named_with_the_service_of_the_port() {
        let found = sent("0.0.0.0:8125", &["127.0.0.1:8125", "127.0.0.1:9", "10.0.0.7:8125"]);
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with("app 10 sends datagrams to collector (port 8125 is DogStatsD's) at udp 0.0.0.0:8125:")),
            "{found:?}"
        );
        let found = sent("127.0.0.1:9000", &["127.0.0.1:9000"; 3]);
        assert!(
            matches!(found.as_slice(), [one] if one.contains("and 2 more programs") && one.contains("through 3 sockets")),
            "{found:?}"
        );
    }

    #[test]
    fn names_and_other_hosts_are_left_alone() {
        for receiver in ["127.0.0.53:53", "127.0.0.1:8125", "192.0.2.1:8125"] {
            assert_eq!(sent(receiver, &["127.0.0.53:53", "192.0.2.1:8125"]), [""; 0], "{receiver}");
        }
    }

    #[test]
    fn what_was_dropped_is_counted_and_how_is_named() {
        let scan = scan("127.0.0.1:8125", &[]);
        let receiver = receivers(&scan).remove(0);
        let finding = lost(&receiver, 1234);
        assert!(finding.found.fact.contains("1234 datagrams were dropped"), "{finding:?}");
        assert!(finding.remedy.contains("samehost how dogstatsd"), "{finding:?}");
    }
}
