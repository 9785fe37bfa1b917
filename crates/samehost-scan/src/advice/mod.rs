//! Advice on each client and service that talk over TCP: whether they could use a Unix socket, and what prevents
//! it. Each blocker is one file and one line in [`BLOCKERS`]. Blockers only inspect; they change nothing.

mod access;
mod ahead;
mod client;
pub(crate) mod findings;
mod pair;
mod socket;
mod walk;

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::path::Path;

use samehost_model::ObstacleCode;
use samehost_model::scan::{Address, Advice, Connection, Found, Obstacle, Possible, Process, Scan, Weight};
use samehost_services::{Kind, UnixSocket};
use samehost_system::interrupt;

pub use access::rule_of_socket;
pub use ahead::{UnsafeSocket, Unserved, obstacles, service_at, services_at, socket_of};
pub use client::address_lost;
pub use pair::proposed_for;
use pair::{Pair, Program, programs};
pub use socket::without_socket;

pub struct Blocker {
    pub code: ObstacleCode,
    pub decided_by: DecidedBy,
    check: fn(&Pair<'_>) -> Option<Finding>,
}

/// What has the last word on a blocker when a switch is made.
/// A blocker reasons about file modes, namespaces and accounts; a login as the application tries them.
/// Where it succeeds, such blockers do not stop the switch, and a mode that looks wrong does not stop a
/// switch that works. That the login decides everything was rejected: our process is not confined as the
/// application is, so AppArmor and SELinux are left to a page of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    Scan,
    /// A login as the application's user; it overrides what modes and addresses suggest.
    Login,
    /// A request to a page of the application, because a login test is not confined as the application's
    /// processes are.
    Page,
    /// The switch itself: it gives the server a socket and the client the path.
    Switch,
}

/// What decides about the obstacle with this code; the scan, of one that no blocker finds.
#[must_use]
pub fn decided_by(code: ObstacleCode) -> DecidedBy {
    match BLOCKERS.iter().find(|blocker| blocker.code == code) {
        Some(blocker) => blocker.decided_by,
        None => DecidedBy::Scan,
    }
}

struct Finding {
    weight: Weight,
    found: Found,
    remedy: String,
}

impl Finding {
    fn new(weight: Weight, found: impl Into<Found>, remedy: impl Into<String>) -> Self {
        Finding { weight, found: found.into(), remedy: remedy.into() }
    }

    fn obstacle(self, code: ObstacleCode) -> Obstacle {
        Obstacle { code, weight: self.weight, found: self.found, remedy: self.remedy }
    }
}

const fn blocker(
    code: ObstacleCode,
    decided_by: DecidedBy,
    check: fn(&Pair<'_>) -> Option<Finding>,
) -> Blocker {
    Blocker { code, decided_by, check }
}

/// All blockers, in the order in which users usually meet them.
pub const BLOCKERS: &[Blocker] = &[
    blocker(ObstacleCode::Server, DecidedBy::Switch, socket::server),
    blocker(ObstacleCode::Backlog, DecidedBy::Scan, socket::backlog),
    blocker(ObstacleCode::Permissions, DecidedBy::Login, access::check_permissions),
    blocker(ObstacleCode::Confinement, DecidedBy::Page, client::check_confinement),
    blocker(ObstacleCode::MountNamespace, DecidedBy::Login, access::mount_namespace),
    blocker(ObstacleCode::Localhost, DecidedBy::Switch, client::localhost),
    blocker(ObstacleCode::Accounts, DecidedBy::Login, access::check_accounts),
    blocker(ObstacleCode::Container, DecidedBy::Login, access::container),
    blocker(ObstacleCode::Driver, DecidedBy::Scan, client::driver),
    blocker(ObstacleCode::Stale, DecidedBy::Login, socket::stale),
    blocker(ObstacleCode::AnotherSocket, DecidedBy::Scan, socket::another_socket),
    blocker(ObstacleCode::ClientAddress, DecidedBy::Scan, client::client_address),
    blocker(ObstacleCode::Tls, DecidedBy::Scan, client::tls),
    blocker(ObstacleCode::PathLength, DecidedBy::Scan, socket::path_length),
    blocker(ObstacleCode::FileSystem, DecidedBy::Scan, socket::file_system),
];

/// Fills in the advice of a scan: one for each program that talks to a service over TCP, the easiest switches first, and of
/// those the ones with the most connections. Replaces what was there, with its traffic. Ends early, with what is done by then,
/// when an interrupt is requested.
pub fn advise(scan: &mut Scan) {
    let mut advice: Vec<Advice> = Vec::new();
    for (program, connections) in programs(scan) {
        if interrupt::is_requested() {
            break;
        }
        advice.extend(advise_pair(scan, program, connections, None));
    }
    advice.sort_by_key(|advice| (advice.possible, Reverse(advice.connections)));
    scan.advice = advice;
}

/// Adds advice for the programs that were seen to open short connections to a service, where the scan has none on them.
/// Where some are left, they are those of short-lived clients: never of a program that happens to stay connected to the same
/// service. Connections that the scan saw without their holder are filled in.
///
/// They came to one address of the service, which may have several. `is_left` is false where too few connections are left to speak of.
pub(crate) fn add_short_lived(
    scan: &mut Scan,
    (service, address): (usize, SocketAddr),
    senders: &[Process],
    is_left: bool,
) {
    let now = endpoint(address);
    let is_there = |advice: &Advice| advice.service == service && advice.now == now;
    for sender in senders {
        if scan.advice.iter().any(|advice| is_there(advice) && is_of(scan, advice, sender)) {
            continue;
        }
        let unheld = scan.advice.iter().position(|one| is_there(one) && one.client_pids.is_empty());
        let members = unheld.map(|at| scan.advice.remove(at).members).unwrap_or_default();
        if let Err(at) = scan.processes.binary_search_by_key(&sender.pid, |process| process.pid) {
            scan.processes.insert(at, sender.clone());
        }
        add(scan, service, &now, sender.name.clone(), members, &[sender.pid]);
    }
    if is_left && !scan.advice.iter().any(|advice| is_there(advice) && advice.client_pids.is_empty()) {
        add(scan, service, &now, "short-lived clients".to_owned(), Vec::new(), &[]);
    }
}

/// `tcp:127.0.0.1:3306`
pub(crate) fn endpoint(address: SocketAddr) -> String {
    format!("{}:{address}", if address.is_ipv4() { "tcp" } else { "tcp6" })
}

/// Whether two processes are of one program: they have one name, user and unit.
pub(crate) fn are_of_one_program(one: &Process, other: &Process) -> bool {
    (&one.name, one.uid, &one.unit) == (&other.name, other.uid, &other.unit)
}

pub(crate) fn is_of(scan: &Scan, advice: &Advice, sender: &Process) -> bool {
    let mut processes = advice.client_pids.iter().filter_map(|pid| scan.process(*pid));
    processes.any(|process| are_of_one_program(sender, process))
}

fn add(scan: &mut Scan, service: usize, now: &str, name: String, members: Vec<usize>, clients: &[u32]) {
    let now = now.to_owned();
    let program = Program { service, now, name, uid: None, mount_namespace: None, network_namespace: 0 };
    let advice = advise_pair(scan, program, members, Some(clients));
    scan.advice.extend(advice);
}

/// Advice on a pair; its clients are those that hold the connections, unless others are given.
fn advise_pair(
    scan: &Scan,
    program: Program,
    members: Vec<usize>,
    clients: Option<&[u32]>,
) -> Option<Advice> {
    let (mut connections, mut pids): (Vec<&Connection>, Vec<u32>) = Default::default();
    let mut unseen = 0;
    for at in &members {
        let Some(connection) = scan.connections.get(*at) else { continue };
        connections.push(connection);
        if let Some(client) = scan.sockets.get(connection.client) {
            unseen += u32::from(client.pids.is_empty());
            pids.extend(client.pids.first());
        }
    }
    pids.sort_unstable();
    pids.dedup();
    // Of short connections none is open, and the address is known all the same.
    let port = program.now.rsplit(':').next().and_then(|port| port.parse().ok());
    let service = scan.services.get(program.service)?;
    let pair = Pair::ahead(scan, service, clients.unwrap_or(&pids), connections, port);
    let obstacles = obstacles_between(std::slice::from_ref(&pair));
    let is_tool = Kind::has_tool(&program.name);
    Some(Advice {
        service: program.service,
        client: program.name,
        client_pids: pair.clients.iter().map(|client| client.pid).collect(),
        now: program.now,
        connections: pair.connections.len() as u32,
        unseen,
        members,
        socket: socket(&pair),
        possible: if is_tool { Possible::Tool } else { possible(&pair, &obstacles) },
        obstacles,
        traffic: None,
        saving: None,
    })
}

/// Of each blocker the heaviest obstacle of these pairs, heaviest first.
fn obstacles_between(pairs: &[Pair<'_>]) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = Vec::new();
    for blocker in BLOCKERS {
        let found = pairs.iter().filter_map(|pair| (blocker.check)(pair));
        if let Some(heaviest) = found.max_by_key(|finding| finding.weight) {
            obstacles.push(heaviest.obstacle(blocker.code));
        }
    }
    obstacles.sort_by_key(|obstacle| Reverse(obstacle.weight));
    obstacles
}

/// The socket that the client could use: the service's own, or else the one that a switch would give it.
fn socket(pair: &Pair<'_>) -> Option<String> {
    if let Some(listener) = pair.listener {
        return Some(match pair.path() {
            Some(path) => format!("unix:{}", show(&path)),
            None => format!("abstract:{}", listener.local.to_string().trim_start_matches('@')),
        });
    }
    pair.known.filter(|known| matches!(known.unix(), UnixSocket::Setting(_)))?;
    let path = pair.proposed_socket()?;
    if path.is_empty() { None } else { Some(format!("unix:{path}")) }
}

fn possible(pair: &Pair<'_>, obstacles: &[Obstacle]) -> Possible {
    let heaviest = obstacles.iter().map(|obstacle| obstacle.weight).max();
    match heaviest {
        Some(Weight::Blocks) => Possible::Cannot,
        _ if pair.listener.is_none() && pair.known.is_none() => Possible::Unknown,
        Some(Weight::Setting) => Possible::AfterSetting,
        _ => Possible::Now,
    }
}

/// Path as text for people and JSON, escaped as the addresses of sockets are.
fn show(path: &Path) -> String {
    Address::Path(path.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_explained() {
        for (index, blocker) in BLOCKERS.iter().enumerate() {
            assert!(BLOCKERS[..index].iter().all(|other| other.code != blocker.code));
        }
    }
}
