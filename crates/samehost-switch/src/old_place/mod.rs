//! Who still uses the place that a server leaves in the last stages of a switch. They are deferred while anybody else
//! still uses that place, or a client needs a restart that this program does not make. If the stages before make
//! something serve at both places, only those are performed; otherwise there is no switch.

pub(crate) mod elsewhere;
pub(crate) mod leading;
pub(crate) mod left;
mod processes;
mod started;
mod texts;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use samehost_edit::leads;
use samehost_model::scan::{Process, Scan};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::services_at;
use samehost_system::diag::{Diag, Endings};
use samehost_system::proc;

use self::leading::who_leads_there;
use self::left::{Left, is_there};
use crate::changed_lines::{ChangedLine, changed_lines};
use crate::findings::{bar, place, stays_open};
use crate::place::{real, same_port};
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::stages::{Leaving, PlannedStage, moves_away};
use crate::request::{Environment, SwitchRequest};

/// Minimum time for observing each of several servers.
const SHORTEST: Duration = Duration::from_millis(500);

impl Plan {
    /// Observes who else uses the places that this plan would close, and returns the plan. If somebody does, its last
    /// stages are deferred, where the stages before make something serve at both places; else it is barred. Others keep
    /// their address: a client that nobody knew of is not cut off by somebody else's switch (docs/decisions/0069).
    #[must_use]
    pub fn look_who_stays(
        self,
        request: &SwitchRequest,
        scan: &Scan,
        look: Look<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Self {
        let mut plan = self;
        for at in 0..plan.stages.len() {
            let leaves = plan.stages[at].leaves.clone();
            let (mut to_wait, mut to_bar) = (Vec::new(), Vec::new());
            let mut all_may_wait = true;
            for leaving in &leaves {
                // What is observed again before it goes, after its clients moved, needs no long look here too.
                let all =
                    if leaving.moved && leaving.can_wait { request.look_first } else { request.observe };
                // Several servers share the time.
                let observe = (all / leaves.len().max(1) as u32).max(all.min(SHORTEST));
                let one = SwitchRequest { observe, ..request.clone() };
                let (reasons, notes) = reasons(leaving, &plan, &one, scan, look, is_interrupted);
                plan.findings.note(notes);
                for why in reasons {
                    all_may_wait &= may_wait(leaving, request);
                    to_bar.push(barring(leaving, request, why.clone()));
                    to_wait.push(why);
                }
            }
            if to_wait.is_empty() {
                continue;
            }
            if all_may_wait {
                return plan.hold_back(at, to_wait);
            }
            plan.findings.add(to_bar);
            return plan;
        }
        plan
    }

    /// The plan with the stages from this one on deferred, and with notes that say what stays open for that.
    #[must_use]
    pub(crate) fn hold_back(mut self, at: usize, reasons: Vec<SwitchObstacle>) -> Self {
        let later = self.stages.split_off(at);
        let leaves: Vec<&Leaving> = later.iter().flat_map(|stage| &stage.leaves).collect();
        for leaving in &leaves {
            let obsolete = moves_away(&leaving.from);
            self.findings.notes.retain(|note| *note != obsolete);
        }
        for leaving in &leaves {
            self.findings.note([stays_open(&leaving.from, None)]);
        }
        self.findings.add(reasons);
        Plan { later, ..self }
    }
}

/// Whether a server can stay at its old place for now, after the stages before.
fn may_wait(leaving: &Leaving, request: &SwitchRequest) -> bool {
    leaving.can_wait && (leaving.moved || request.keep_tcp)
}

/// A reason to keep the old place, as an obstacle that bars the switch.
fn barring(leaving: &Leaving, request: &SwitchRequest, mut why: SwitchObstacle) -> SwitchObstacle {
    why.bars = true;
    if leaving.can_wait && !leaving.moved && !request.keep_tcp {
        why.remedy.push_str(". Or first have it listen at both places: the same command with --keep-tcp, and then samehost switch finish");
    }
    why
}

fn reason_to_keep(found: String, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { bars: false, ..bar(ObstacleCode::StillUsed, found, remedy) }
}

/// The lines that the plan itself writes anew, as they are named: an editor may move several lines for one setting. What still
/// leads to the old place as it is written anew, as the second value of a line does, is none.
fn rewritten(plan: &Plan, scan: &Scan, from: &Endpoint) -> Vec<String> {
    let stays = |text: &str| {
        let found = leads(text);
        found.iter().flat_map(|lead| &lead.endpoints).any(|endpoint| is_there(scan, endpoint, from))
    };
    let mut places = Vec::new();
    for change in plan.stages.iter().chain(&plan.later).flat_map(|stage| &stage.changes) {
        let (before, after) =
            (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
        let changed = changed_lines(before, after);
        // Lines that go, with those that come in their place.
        for run in changed.chunk_by(|one, next| (one.sign, next.sign) != ('+', '-')) {
            let (gone, come): (Vec<ChangedLine<'_>>, Vec<ChangedLine<'_>>) =
                run.iter().partition(|one| one.sign == '-');
            let come: Vec<&[u8]> = come.iter().map(|one| one.text).collect();
            if !stays(&String::from_utf8_lossy(&come.concat())) {
                places.extend(gone.iter().map(|one| format!("{}:", place(&change.path, one.line))));
            }
        }
    }
    places
}

/// Why a server must not leave its old place yet; with notes.
fn reasons(
    leaving: &Leaving,
    plan: &Plan,
    request: &SwitchRequest,
    scan: &Scan,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> (Vec<SwitchObstacle>, Vec<String>) {
    let mut reasons = Vec::new();
    let left = Left { from: &leaving.from, to: &leaving.to, hops: &plan.hops };
    let rewritten = rewritten(plan, scan, &leaving.from);
    let (leading, cut) = who_leads_there(scan, left, &plan.sources);
    for named in leading {
        if rewritten.iter().any(|place| named.found.starts_with(place)) {
            continue;
        }
        reasons.push(reason_to_keep(named.found, named.remedy));
    }
    if let Some(client) = &leaving.restart {
        reasons.push(reason_to_keep(
            format!(
                "{client} takes the change only when it is restarted, and uses {} until then",
                leaving.from
            ),
            "Say how it is restarted: --reload 'COMMAND'",
        ));
    }
    if request.keep_tcp {
        reasons.push(reason_to_keep(format!("{} stays open, as --keep-tcp asks", leaving.from), ""));
        // Nothing else could defer it.
        return (reasons, Vec::new());
    }
    let watch =
        Watch { endpoint: &leaving.from, hops: &plan.hops, period: request.observe, look, is_interrupted };
    let seen = watch.for_the_period();
    reasons.extend(used(leaving, &seen, request.observe));
    let mut notes: Vec<String> = cut.into_iter().collect();
    if leaving.moved && !leaving.can_wait && seen.unnamed > 0 {
        notes.push(format!(
            "{} connections to {} came and went within {} s: whose they were was not to be seen, and everybody who uses it has to move",
            seen.unnamed,
            leaving.from,
            request.observe.as_secs_f32()
        ));
    }
    (reasons, notes)
}

pub(crate) fn used(leaving: &Leaving, seen: &Seen, period: Duration) -> Vec<SwitchObstacle> {
    let from = &leaving.from;
    let mut reasons = Vec::new();
    for who in &seen.others {
        reasons.push(reason_to_keep(
            format!("{who} speaks to {from} and is not moved by this"),
            "Have it use the socket first: name its configuration as well, or edit it by hand",
        ));
    }
    if !leaving.moved && seen.unnamed > 0 && reasons.is_empty() {
        reasons.push(reason_to_keep(
            format!("{} connections to {from} came and went within {} s", seen.unnamed, period.as_secs_f32()),
            "See who makes them (samehost top), and have that use the socket first",
        ));
    }
    reasons
}

/// Reasons to keep an address that was still used after its clients had moved: who should have moved counts as everybody
/// else.
fn still_used(leaving: &Leaving, seen: &Seen, period: Duration) -> Vec<SwitchObstacle> {
    let alone = Leaving { moved: false, ..leaving.clone() };
    let all = Seen { others: seen.others.union(&seen.movers).cloned().collect(), ..seen.clone() };
    used(&alone, &all, period)
}

/// Who still used the old place before this stage, although they should have moved.
pub(crate) fn still_in_use(
    stage: &PlannedStage,
    hops: &[Hop],
    period: Duration,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Vec<SwitchObstacle> {
    let mut reasons = Vec::new();
    for leaving in stage.leaves.iter().filter(|leaving| leaving.moved && leaving.can_wait) {
        let watch = Watch { endpoint: &leaving.from, hops, period, look, is_interrupted };
        let seen = watch.until_quiet();
        reasons.extend(still_used(leaving, &seen, period));
    }
    reasons
}

/// Clients still connected over TCP to a service that these moves took clients away from, each with its address once.
pub(crate) fn still_tcp(hops: &[Hop], scan: &Scan) -> Vec<String> {
    let mut found = Vec::new();
    for hop in hops {
        let services = services_at(scan, &hop.setting.endpoint);
        for connection in &scan.connections {
            let Some(service) = connection.service else { continue };
            if !services.contains(&service) || !connection.kind.is_tcp() {
                continue;
            }
            let Some(process) = scan.holder(connection.client) else { continue };
            let text = format!("{} {} → {}", process.name, process.pid, hop.setting.endpoint);
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

/// How often it is looked whether a server has left its old place: one that is loaded anew closes it a moment later.
const LOOKS_AT_LEFT: u32 = 10;

/// The places that the servers of these stages left: those at which nobody listens any more, and the others with who does. Nothing
/// where this machine cannot be looked at.
pub(crate) fn left_places(
    stages: &[PlannedStage],
    environment: &Environment<'_>,
) -> (Vec<String>, Vec<String>) {
    let (mut closed, mut open) = (BTreeSet::new(), BTreeSet::new());
    let left: Vec<&Leaving> = stages.iter().flat_map(|stage| &stage.leaves).collect();
    let looks = if left.is_empty() { 0 } else { LOOKS_AT_LEFT };
    for look in 0..looks {
        let Some(scan) = (environment.scan)() else { break };
        open.clear();
        for leaving in &left {
            let there = services_at(&scan, &leaving.from);
            if there.is_empty() {
                closed.insert(leaving.from.to_string());
            }
            for service in there.into_iter().filter_map(|at| scan.services.get(at)) {
                open.insert(format!("{} ({})", leaving.from, service.name));
            }
        }
        if open.is_empty() || (environment.is_interrupted)() {
            break;
        }
        if look + 1 < looks {
            std::thread::sleep(STEP * 2);
        }
    }
    (closed.into_iter().collect(), open.into_iter().collect())
}

const STEP: Duration = Duration::from_millis(50);
/// Longest wait for a quiet period, in periods.
const PATIENCE: u32 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Who is connected and does not move, by name: `apache2 4711 (www-data)`.
    pub(crate) others: BTreeSet<String>,
    /// Who is connected and is to move.
    pub(crate) movers: BTreeSet<String>,
    /// Connections that closed before a look could show who held them.
    pub(crate) unnamed: u64,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.others.extend(other.others);
        self.movers.extend(other.movers);
        self.unnamed += other.unnamed;
    }
}

pub(crate) type Look<'a> = &'a dyn Fn() -> Option<Scan>;

#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The moves: their clients are expected there until they have moved.
    pub(crate) hops: &'a [Hop],
    pub(crate) period: Duration,
    pub(crate) look: Look<'a>,
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Who is connected in the period: open connections with the processes that hold them, and short ones, which the kernel
    /// reports when they close. The clients that are to move still are there too.
    pub(crate) fn for_the_period(&self) -> Seen {
        let mut port = Port::open(self.endpoint);
        let mut seen = self.connected();
        let begun = Instant::now();
        while begun.elapsed() < self.period && !(self.is_interrupted)() {
            std::thread::sleep(STEP.min(self.period));
            let (open, ended) = port.poll();
            seen.unnamed += ended;
            if open {
                seen.add(self.connected());
            }
        }
        seen
    }

    /// Waits until nobody was connected for a whole period, after the clients have moved; who still is, if that does not
    /// happen.
    pub(crate) fn until_quiet(&self) -> Seen {
        let mut port = Port::open(self.endpoint);
        let begun = Instant::now();
        let mut last_used = Instant::now();
        let mut seen = self.connected();
        while seen.others.is_empty() && !(self.is_interrupted)() {
            if last_used.elapsed() >= self.period {
                return Seen::default();
            }
            if begun.elapsed() >= self.period * PATIENCE {
                break;
            }
            std::thread::sleep(STEP.min(self.period));
            let (open, ended) = port.poll();
            if open || ended > 0 {
                last_used = Instant::now();
            }
            if open {
                seen.add(self.connected());
            }
            seen.unnamed += ended;
        }
        seen
    }

    fn connected(&self) -> Seen {
        match (self.look)() {
            Some(scan) => connected(&scan, self.endpoint, self.hops),
            None => Seen::default(),
        }
    }
}

/// Who is connected to an address, by a scan: those that the moves concern apart from all others. This program and what it
/// starts are not counted, for its own logins come there too.
pub(crate) fn connected(scan: &Scan, endpoint: &Endpoint, hops: &[Hop]) -> Seen {
    let mut seen = Seen::default();
    let services = services_at(scan, endpoint);
    for connection in &scan.connections {
        let Some(service) = connection.service else { continue };
        if !services.contains(&service) || !is_at(scan, connection.server, endpoint) {
            continue;
        }
        // A connection that nobody holds is about to close, and is counted then.
        let Some(process) = scan.holder(connection.client) else { continue };
        if is_ours(process) {
            continue;
        }
        let user = process.user.clone().unwrap_or_else(|| process.uid.to_string());
        let name = format!("{} {} ({user})", process.name, process.pid);
        let moves =
            hops.iter().any(|hop| same_port(&hop.setting.endpoint, endpoint) && is_mover(hop, process));
        if moves { &mut seen.movers } else { &mut seen.others }.insert(name);
    }
    seen
}

/// Whether a process is this program, or one of its logins. Of one that ended while it was looked at neither its words nor who started
/// it are known: a login of a switch counted as somebody who goes on, once in some hundred.
fn is_ours(process: &Process) -> bool {
    let own = std::process::id();
    let is_login = process.command_line.get(1).is_some_and(|word| word == "log-in-as");
    let has_ended = process.parent == 0 && process.name == proc::name(own);
    process.pid == own || process.parent == own || is_login || has_ended
}

/// Whether the accepted end of a connection is at the port of an endpoint; a service may have several ports.
fn is_at(scan: &Scan, server: usize, endpoint: &Endpoint) -> bool {
    let Some(local) = scan.sockets.get(server).map(|socket| &socket.local) else { return false };
    match (endpoint, local.inet(), local.path()) {
        (Endpoint::Tcp { port, .. }, Some(local), _) => local.port() == *port,
        (Endpoint::Unix(path), _, Some(local)) => real(local) == real(path),
        _ => false,
    }
}

/// Whether a process takes part in a move: one of the clients found, their siblings, or their children.
fn is_mover(hop: &Hop, process: &Process) -> bool {
    for client in &hop.client.identities {
        for known in [client.pid, client.parent].into_iter().flatten() {
            // Everybody descends from the first process.
            if known > 1 && (process.pid == known || process.parent == known) {
                return true;
            }
        }
    }
    false
}

struct Port {
    number: u16,
    endings: Option<Endings>,
    /// Those that were open at the start: that one of them ends does not mean that somebody connects now.
    before: BTreeSet<Ends>,
    closed: BTreeSet<Ends>,
}

type Ends = (SocketAddr, SocketAddr);

impl Port {
    fn open(endpoint: &Endpoint) -> Self {
        let number = if let Endpoint::Tcp { port, .. } = endpoint { *port } else { 0 };
        // Subscribed first, so that no connection is missed in between.
        let endings = Endings::open().ok();
        let before = connections(number).into_iter().collect();
        Port { number, endings, before, closed: BTreeSet::new() }
    }

    /// Whether any connection is open, and how many opened and closed since the last call.
    fn poll(&mut self) -> (bool, u64) {
        let mut ended = 0;
        let (number, before, closed) = (self.number, &self.before, &mut self.closed);
        if let Some(endings) = &mut self.endings {
            // Events that the kernel dropped on a busy machine are like those that arrive.
            let _ = endings.hear(|one| {
                let (Some(local), Some(peer)) = (one.local.inet(), one.peer.inet()) else { return };
                // The server's end, or the client's of this machine: where the server resets a connection its own end has lost the
                // addresses. A listener that closes has no peer.
                let is_inside = local.ip() == peer.ip() || peer.ip().is_loopback();
                let ends = match (local.port() == number, peer.port() == number) {
                    _ if peer.port() == 0 => return,
                    (true, _) => (local, peer),
                    (false, true) if is_inside => (peer, local),
                    _ => return,
                };
                if !before.contains(&ends) {
                    ended += u64::from(closed.insert(ends));
                }
            });
        }
        (!connections(number).is_empty(), ended)
    }
}

fn connections(port: u16) -> Vec<Ends> {
    let found = Diag::open().and_then(|mut diag| diag.activity()).unwrap_or_default();
    let mut open = Vec::new();
    for socket in found {
        let (Some(local), Some(peer)) = (socket.local.inet(), socket.peer.inet()) else { continue };
        if socket.counters.is_some() && local.port() == port {
            open.push((local, peer));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    fn look() -> Option<Scan> {
        samehost_scan::collect("test").ok()
    }

    #[test]
    fn quiet_is_waited_for_and_short_connections_are_counted_as_root() {
        assert!(
            rustix::process::geteuid().is_root(),
            "the kernel tells only root of connections that end: run this test as root"
        );
        for resets in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
            // On a busy machine a thread of the test may not run for a tenth of a second.
            let period = Duration::from_millis(600);
            let watch =
                Watch { endpoint: &endpoint, hops: &[], period, look: &look, is_interrupted: &|| false };
            assert_eq!(watch.until_quiet(), Seen::default());
            let address = listener.local_addr().unwrap();
            let stop = &std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        drop(TcpStream::connect(address).unwrap());
                        let (mut accepted, _) = listener.accept().unwrap();
                        if resets {
                            sockopt::set_socket_linger(&accepted, Some(Duration::ZERO)).unwrap();
                        } else {
                            let _ = accepted.read(&mut [0]);
                        }
                        drop(accepted);
                        std::thread::sleep(Duration::from_millis(30));
                    }
                });
                let seen = watch.until_quiet();
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                assert!(seen.unnamed > 0, "resets: {resets}, {seen:?}");
            });
        }
    }
}
