//! What the sockets show beside pairs that could switch: queues that are full now, ports that run out, ports of containers,
//! datagrams, and sockets that every local user may use although the service asks nobody who he is. Each costs one look, and
//! nothing is changed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use samehost_bpf::UnixQueue;
use samehost_model::FindingCode;
use samehost_model::human::format_value;
use samehost_model::scan::{Address, Finding, Found, Queues, Scan, Service, Socket, SocketKind, SocketState};
use samehost_services::Protocol;
use samehost_system::mounts::{Share, share};

use super::socket::enough;
use crate::advice::walk::Root;
use crate::diag::Diag;
use crate::listing::datagrams;
use crate::listing::published::published;
use crate::namespaces::network_setting;

/// Permission of others to write, which connect(2) requires on a socket.
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_SEARCH: u32 = 0o001;
/// The part of the ports that may be taken before it is worth a line.
const MOST_TAKEN: f64 = 0.5;
/// How long the kernel keeps a socket in TIME_WAIT (`TCP_TIMEWAIT_LEN`), in milliseconds.
const TIME_WAIT_MS: u32 = 60_000;
/// Age at which `net.ipv4.tcp_tw_reuse` gives its port to a new connection (`tcp_twsk_unique`), in milliseconds.
const REUSED_AFTER_MS: u32 = 1_000;

/// What a scan shows beside its pairs, the most urgent first. Empty where all is well. Reads file modes, file systems and the
/// sockets in TIME_WAIT as they are now, so it belongs right after the scan.
#[must_use]
pub fn findings(scan: &Scan) -> Vec<Finding> {
    let mut found = Vec::new();
    for service in &scan.services {
        for socket in scan.listeners(service) {
            found.extend(full(service, socket));
        }
    }
    found.extend(ports(scan));
    found.extend(datagrams::findings(scan));
    found.extend(published(scan));
    for service in &scan.services {
        found.extend(open_to_everybody(scan, service));
    }
    found.extend(on_shared_files(scan));
    found
}

/// A listener whose queue is full: `sk_acceptq_is_full` lets one more wait than the backlog says.
fn full(service: &Service, socket: &Socket) -> Option<Finding> {
    let Queues::Listening { waiting, backlog: Some(backlog) } = socket.queues else { return None };
    if waiting <= backlog {
        return None;
    }
    let then = if socket.kind.is_unix() {
        "the next that connects is refused at once (\"Resource temporarily unavailable\"), or waits if it blocks"
    } else {
        "the next that connects waits a second and more for another try"
    };
    Some(Finding {
        code: FindingCode::FullQueue,
        subject: format!("{} {}", service.name, socket.local),
        found: Found::with(
            format!(
                "{} at {}: the queue of new connections is full now ({waiting} wait, backlog {backlog})",
                service.name, socket.local
            ),
            then,
        ),
        remedy: "If it hangs, look at the service; if it is busy, give it more workers, a longer backlog and a net.core.somaxconn to match".to_owned(),
    })
}

/// Fewest connections that came behind one that had waited for 5 ms; fewer are chance, as is less than
/// [`PART_BEHIND`] of all. The queue of a Unix socket is first in, first out. Where a connection is the
/// n-th in it when it comes, the first one came n − 1 before it and has waited at least since then.
/// `accept` passes no tracepoint of its own, so a single connection that waits while no other comes is
/// not seen (docs/method.md §14).
const FEWEST_BEHIND: u64 = 3;
const PART_BEHIND: f64 = 0.01;

pub(crate) fn slow_accepts(scan: &Scan, queues: &[UnixQueue]) -> Vec<Finding> {
    let mut found = Vec::new();
    for service in &scan.services {
        for socket in scan.listeners(service) {
            if let Some(queue) = queues.iter().find(|queue| queue.listener == socket.cookie) {
                found.extend(slow_accept(service, socket, queue));
            }
        }
    }
    found
}

/// A Unix socket whose connections wait until they are accepted, or find the queue full, while they are looked at. A server that
/// accepts at once is silent here, whatever its backlog is: how long one waits is what costs, and not how many may.
fn slow_accept(service: &Service, socket: &Socket, queue: &UnixQueue) -> Option<Finding> {
    let is_behind = queue.behind_long >= FEWEST_BEHIND
        && queue.behind_long as f64 >= PART_BEHIND * queue.connections as f64;
    if queue.full == 0 && !is_behind {
        return None;
    }
    let Queues::Listening { backlog: Some(backlog), .. } = socket.queues else { return None };
    let (name, place) = (&service.name, &socket.local);
    let waited = format_value(queue.longest as f64 / 1000.0, "us");
    let all = queue.connections;
    let fact = match queue.full {
        0 => format!("{name} at {place}: connections wait {waited} and more until it accepts them"),
        full => {
            format!("{name} at {place}: {full} of {all} connections filled its queue (backlog {backlog})")
        }
    };
    let follows = format!(
        "{} of {all} came behind one that had waited for 5 ms or more, the longest for {waited}; at most {} waited at once",
        queue.behind_long, queue.most_waiting
    );
    let backlog = enough(u32::try_from(queue.most_waiting).unwrap_or(u32::MAX));
    let known = service.kind.and_then(|kind| kind.descriptor().backlog_of(backlog));
    let setting = known.unwrap_or(format!("a backlog of {backlog} or more"));
    let remedy = format!(
        "Give it more workers, or less to do before it accepts the next; so that none is refused meanwhile, set {setting}, and net.core.somaxconn to match"
    );
    let subject = format!("{name} {place}");
    Some(Finding { code: FindingCode::SlowAccept, subject, found: Found::with(fact, follows), remedy })
}

#[derive(Default)]
struct Taken {
    connected: usize,
    in_time_wait: usize,
}

/// The destinations of this network namespace for which ports run out. The kernel gives a local port once for each local address
/// and destination, so each such pair has all ports of the range to itself.
fn ports(scan: &Scan) -> Vec<Finding> {
    let Some((first, last)) = port_range() else { return Vec::new() };
    let reuse = network_setting("ipv4/tcp_tw_reuse").unwrap_or_default();
    let own = scan.own_namespace().unwrap_or(0);
    let mut taken: BTreeMap<(IpAddr, SocketAddr), Taken> = BTreeMap::new();
    for socket in &scan.sockets {
        if socket.kind.is_tcp()
            && socket.network_namespace == own
            && socket.state == SocketState::Established
            && let (Some(local), Some(peer)) = (socket.local.inet(), socket.peer.inet())
            && (first..=last).contains(&local.port())
        {
            taken.entry((local.ip(), peer)).or_default().connected += 1;
        }
    }
    let count = |local: SocketAddr, peer: SocketAddr, left_ms| {
        if (first..=last).contains(&local.port()) && !is_free_again(left_ms, peer.ip(), &reuse) {
            taken.entry((local.ip(), peer)).or_default().in_time_wait += 1;
        }
    };
    if Diag::open().and_then(|mut diag| diag.in_time_wait(count)).is_err() {
        return Vec::new();
    }
    let all = usize::from(last - first) + 1;
    let mut found = Vec::new();
    for ((_, to), Taken { connected, in_time_wait }) in taken {
        let number = connected + in_time_wait;
        if number as f64 >= MOST_TAKEN * all as f64 {
            found.push(Finding {
                code: FindingCode::PortsRunOut,
                subject: to.to_string(),
                found: Found::with(
                    format!(
                        "{number} of the {all} ports for connections to {to} are taken ({connected} connected, {in_time_wait} in TIME_WAIT)"
                    ),
                    format!("at {all} new ones fail with \"Cannot assign requested address\""),
                ),
                remedy: "Keep connections open instead of making one for each request, or use a Unix socket: it has no ports".to_owned(),
            });
        }
    }
    found
}

fn is_free_again(left_ms: u32, peer: IpAddr, reuse: &str) -> bool {
    let may = match reuse {
        "1" => true,
        // 2 is for connections inside of this machine only.
        "2" => peer.to_canonical().is_loopback(),
        _ => false,
    };
    let age = TIME_WAIT_MS.saturating_sub(left_ms);
    may && age >= REUSED_AFTER_MS
}

fn port_range() -> Option<(u16, u16)> {
    let text = network_setting("ipv4/ip_local_port_range")?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A socket file that everybody may use, of a service that does not ask for a login. MySQL and PostgreSQL always ask,
/// and their sockets are meant to be open.
fn open_to_everybody(scan: &Scan, service: &Service) -> Option<Finding> {
    let protocol = service.kind?.protocol()?;
    if matches!(protocol, Protocol::Mysql | Protocol::Postgres) {
        return None;
    }
    let root = Root::of(service.pid?).ok()?;
    let mut paths: Vec<String> = Vec::new();
    for socket in scan.listeners(service).filter(|socket| is_unix_stream(socket)) {
        if let Address::Path(path) = &socket.local
            && may_everybody_connect(&root, path)
        {
            paths.push(path.display().to_string());
        }
    }
    let (first, more) = paths.split_first()?;
    let others = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    Some(Finding {
        code: FindingCode::OpenToEverybody,
        subject: format!("{} {}", service.name, paths.join(" ")),
        found: format!(
            "{}: every local user may connect to {first}{others}, as to a port of 127.0.0.1",
            service.name
        )
        .into(),
        remedy: "Set the socket's mode to 0660 and its group to one that the clients are in, or put it into a directory that only they may pass; leave it if everybody is meant".to_owned(),
    })
}

fn is_unix_stream(socket: &Socket) -> bool {
    matches!(socket.kind, SocketKind::UnixStream | SocketKind::UnixSeqpacket)
}

fn may_everybody_connect(root: &Root, path: &Path) -> bool {
    let steps = root.walk(path).unwrap_or_default();
    let Some((file, directories)) = steps.split_last() else { return false };
    file.mode() & OTHERS_WRITE != 0 && directories.iter().all(|step| step.mode() & OTHERS_SEARCH != 0)
}

/// Sockets on file systems that others have too, who see the file and cannot connect: one for each service that listens there.
fn on_shared_files(scan: &Scan) -> Vec<Finding> {
    // By device, because each question reads all mounts of a process.
    let mut known: BTreeMap<u64, Option<Share>> = BTreeMap::new();
    let mut found = Vec::new();
    for service in &scan.services {
        for socket in scan.listeners(service).filter(|socket| is_unix_stream(socket)) {
            let (Some(file), Some(path)) = (socket.file, socket.local.path()) else { continue };
            let share = known.entry(file.device).or_insert_with(|| share(file.device, service.pid));
            if let Some(share) = share {
                found.push(on_shared_file(service, path, share));
                break;
            }
        }
    }
    found
}

fn on_shared_file(service: &Service, path: &Path, share: &Share) -> Finding {
    Finding {
        code: FindingCode::SharedFiles,
        subject: format!("{} {}", service.name, path.display()),
        found: Found::with(
            format!("{}: {} is on {}", service.name, path.display(), share.kind),
            format!("{} see the file, and their connections are refused", share.others),
        ),
        remedy: "For programs here put the socket into a directory below /run; for the others keep a port"
            .to_owned(),
    }
}
