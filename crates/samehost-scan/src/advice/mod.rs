//! Advice on each client and service that talk over TCP: whether they could use a Unix socket, and what prevents
//! it. Each blocker is one file and one line in [`BLOCKERS`]. Blockers only inspect; they change nothing.

mod access;
mod ahead;
mod client;
pub(crate) mod findings;
mod pair;
mod socket;
mod walk;

use std::net::SocketAddr;

use samehost_model::ObstacleCode;
use samehost_model::scan::{Advice, Connection, Found, Obstacle, Possible, Process, Scan, Weight};
use samehost_services::UnixSocket;
use samehost_system::interrupt;

pub use access::rule_of_socket;
pub use ahead::{Identity, UnsafeSocket, Unserved, identity, obstacles, service_at, services_at, socket_of};
pub use client::address_lost;
pub(crate) use pair::proposed_socket;
use pair::{Pair, Program, programs};

/// A check for something that may prevent a switch.
pub struct Blocker {
    pub code: ObstacleCode,
    pub decided_by: DecidedBy,
    check: fn(&Pair<'_>) -> Option<Finding>,
}

/// What has the last word on a blocker when a switch is made.
/// A blocker reasons about file modes, namespaces and accounts; a login as the application tries them.
/// Where it succeeds, such blockers do not stop the switch, and a mode that looks wrong does not stop a
/// switch that works. That the login decides everything was rejected: our process is not confined as the
/// application is, so AppArmor and SELinux are left to a page of the application (docs/decisions/0068).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The finding of the scan.
    Scan,
    /// A login as the application's user; it overrides what modes and addresses suggest.
    Login,
    /// A request to a page of the application, because a login test is not confined as the application's
    /// processes are.
    Page,
    /// The switch itself: it gives the server a socket and the client the path.
    Switch,
}

/// What decides about the obstacle with this code.
#[must_use]
pub fn decided_by(code: ObstacleCode) -> DecidedBy {
    let blocker = BLOCKERS.iter().find(|blocker| blocker.code == code);
    blocker.map_or(DecidedBy::Scan, |blocker| blocker.decided_by)
}

/// What a blocker found.
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

/// All blockers, in the order in which users usually meet them.
pub const BLOCKERS: &[Blocker] = &[
    Blocker { code: ObstacleCode::Server, decided_by: DecidedBy::Switch, check: socket::server },
    Blocker { code: ObstacleCode::Backlog, decided_by: DecidedBy::Scan, check: socket::backlog },
    Blocker {
        code: ObstacleCode::Permissions,
        decided_by: DecidedBy::Login,
        check: access::check_permissions,
    },
    Blocker {
        code: ObstacleCode::Confinement,
        decided_by: DecidedBy::Page,
        check: access::check_confinement,
    },
    Blocker {
        code: ObstacleCode::MountNamespace,
        decided_by: DecidedBy::Login,
        check: client::mount_namespace,
    },
    Blocker { code: ObstacleCode::Localhost, decided_by: DecidedBy::Switch, check: client::localhost },
    Blocker { code: ObstacleCode::Accounts, decided_by: DecidedBy::Login, check: access::check_accounts },
    Blocker { code: ObstacleCode::Container, decided_by: DecidedBy::Login, check: client::container },
    Blocker { code: ObstacleCode::Driver, decided_by: DecidedBy::Scan, check: client::driver },
    Blocker { code: ObstacleCode::Stale, decided_by: DecidedBy::Login, check: socket::stale },
    Blocker { code: ObstacleCode::AnotherSocket, decided_by: DecidedBy::Scan, check: socket::another_socket },
    Blocker { code: ObstacleCode::ClientAddress, decided_by: DecidedBy::Scan, check: client::client_address },
    Blocker { code: ObstacleCode::Tls, decided_by: DecidedBy::Scan, check: client::tls },
    Blocker { code: ObstacleCode::PathLength, decided_by: DecidedBy::Scan, check: socket::path_length },
    Blocker { code: ObstacleCode::FileSystem, decided_by: DecidedBy::Scan, check: socket::file_system },
];

/// Fills in the advice of a scan: one for each program that talks to a service over TCP.
pub fn advise(scan: &mut Scan) {
    let mut advice: Vec<Advice> = programs(scan)
        .into_iter()
        .take_while(|_| !interrupt::is_requested())
        .filter_map(|(program, connections)| advise_pair(scan, program, connections, None))
        .collect();
    advice.sort_by_key(|advice| (advice.possible, std::cmp::Reverse(advice.connections)));
    scan.advice = advice;
}

/// Adds advice for the programs that were seen to open short connections to a service, where the scan has none on them.
/// Where some are left, they are those of short-lived clients: never of a program that happens to stay connected to the same
/// service. Connections that the scan saw without their holder are filled in. Beside each program, and for those that are left, is
/// the address that they came to, where it is known: a service may have several.
pub(crate) fn add_short_lived(
    scan: &mut Scan,
    service: usize,
    senders: &[(&Sender, Option<SocketAddr>)],
    left: Option<Option<SocketAddr>>,
) {
    for (sender, came_to) in senders {
        if scan.advice.iter().any(|advice| is_of(scan, advice, service, sender)) {
            continue;
        }
        let unheld = scan.advice.iter().position(|one| one.service == service && one.client_pids.is_empty());
        let (now, members) = match unheld.map(|at| scan.advice.remove(at)) {
            Some(advice) => (Some(advice.now), advice.members),
            None => (came_to.map(endpoint), Vec::new()),
        };
        if let Err(at) = scan.processes.binary_search_by_key(&sender.process.pid, |process| process.pid) {
            scan.processes.insert(at, sender.process.clone());
        }
        add(scan, service, now, sender.process.name.clone(), members, &[sender.process.pid]);
    }
    let mut of_service = scan.advice.iter().filter(|advice| advice.service == service);
    if let Some(came_to) = left
        && !of_service.any(|advice| advice.client_pids.is_empty())
    {
        add(scan, service, came_to.map(endpoint), "short-lived clients".to_owned(), Vec::new(), &[]);
    }
}

/// `tcp:127.0.0.1:3306`
pub(crate) fn endpoint(address: SocketAddr) -> String {
    format!("{}:{address}", if address.is_ipv4() { "tcp" } else { "tcp6" })
}

/// A program that opens short connections to a service: its processes have one name, user and unit.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// One of its processes, as it was when it was seen.
    pub(crate) process: Process,
}

impl Sender {
    /// Whether a process is of this program.
    pub(crate) fn is_of(&self, process: &Process) -> bool {
        let own = &self.process;
        (&own.name, own.uid, &own.unit) == (&process.name, process.uid, &process.unit)
    }
}

/// Whether advice is on a program that opens short connections to a service.
pub(crate) fn is_of(scan: &Scan, advice: &Advice, service: usize, sender: &Sender) -> bool {
    let mut processes = advice.client_pids.iter().filter_map(|pid| scan.process(*pid));
    advice.service == service && processes.any(|process| sender.is_of(process))
}

fn add(
    scan: &mut Scan,
    service: usize,
    now: Option<String>,
    name: String,
    members: Vec<usize>,
    clients: &[u32],
) {
    let listeners = scan.services.get(service).map(|service| service.listeners.as_slice());
    let mut sockets = listeners.unwrap_or_default().iter().filter_map(|at| scan.sockets.get(*at));
    let Some(port) = sockets.find(|socket| socket.kind.is_tcp()) else { return };
    let now = now.unwrap_or_else(|| format!("tcp:{}", port.local));
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
    let connections: Vec<&Connection> = members.iter().filter_map(|at| scan.connections.get(*at)).collect();
    let clients_ends = connections.iter().filter_map(|connection| scan.sockets.get(connection.client));
    let unseen = clients_ends.filter(|client| client.pids.is_empty()).count() as u32;
    let mut pair = Pair::new(scan, scan.services.get(program.service)?, connections);
    if let Some(clients) = clients {
        pair.clients = clients.iter().filter_map(|pid| scan.process(*pid)).collect();
    }
    let mut obstacles: Vec<Obstacle> =
        BLOCKERS.iter().filter_map(|blocker| Some((blocker.check)(&pair)?.obstacle(blocker.code))).collect();
    obstacles.sort_by_key(|obstacle| std::cmp::Reverse(obstacle.weight));
    Some(Advice {
        service: program.service,
        client: program.name,
        client_pids: pair.clients.iter().map(|client| client.pid).collect(),
        now: program.now,
        connections: pair.connections.len() as u32,
        unseen,
        members,
        socket: socket(&pair),
        possible: possible(&pair, &obstacles),
        obstacles,
        traffic: None,
        saving: None,
    })
}

/// Endpoint that the client could use.
fn socket(pair: &Pair<'_>) -> Option<String> {
    if let Some(listener) = pair.listener {
        return Some(match pair.path() {
            Some(path) => format!("unix:{}", samehost_model::scan::Address::Path(path)),
            None => format!("abstract:{}", listener.local.to_string().trim_start_matches('@')),
        });
    }
    let known = pair.known.filter(|known| matches!(known.unix(), UnixSocket::Setting(_)))?;
    let path = proposed_socket(known, pair.server());
    (!path.is_empty()).then(|| format!("unix:{path}"))
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

/// Path as text for people and JSON.
fn show(path: &std::path::Path) -> String {
    samehost_model::scan::Address::Path(path.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_explained() {
        for (index, blocker) in BLOCKERS.iter().enumerate() {
            assert!(BLOCKERS[..index].iter().all(|other| other.code != blocker.code));
            assert!(crate::explanation(blocker.code.name()).is_some(), "{}", blocker.code);
        }
    }
}
