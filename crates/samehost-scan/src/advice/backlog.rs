//! Blocker `backlog`: with a full backlog connect(2) on a Unix socket fails at once (EAGAIN, a 502 behind
//! nginx), while TCP queues and retries.

use samehost_model::human::capitalised;
use samehost_model::scan::{Found, Queues, Weight};

use super::Finding;
use super::pair::Pair;

/// Default of net.core.somaxconn before Linux 5.4, still requested by many servers. A lower one is a risk where twice the
/// clients that are here would reach it: 80 is what every MariaDB has, and three workers of PHP never fill it.
const FEW: u32 = 128;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let mut spaces = pair.scan.network_namespaces.iter();
    let space = spaces.find(|space| space.inode == pair.service.network_namespace);
    let somaxconn = space.and_then(|space| space.somaxconn);
    // All clients may reconnect at once after the service restarts.
    let seen = pair.service.connections.max(pair.connections.len() as u32);
    let Some(listener) = pair.listener else {
        let limit = somaxconn.filter(|limit| *limit < seen)?;
        return Some(Finding::new(
            Weight::Setting,
            format!("net.core.somaxconn is {limit}, and {seen} connections are open"),
            format!("Raise it first: sysctl net.core.somaxconn={}", enough(seen)),
        ));
    };
    let Queues::Listening { waiting, backlog: Some(backlog) } = listener.queues else { return None };
    let remedy = match somaxconn.filter(|limit| *limit <= backlog && *limit < enough(seen)) {
        Some(limit) => format!(
            "net.core.somaxconn ({limit}) is the limit: sysctl net.core.somaxconn={}, then {}",
            enough(seen),
            setting(pair, enough(seen))
        ),
        None => capitalised(&setting(pair, enough(seen))),
    };
    // A client process may open at least one.
    let may_be = seen.max(pair.clients.len() as u32);
    let (weight, what) = if waiting > backlog {
        (Weight::Setting, format!("{waiting} connections wait at a backlog of {backlog}: it is full"))
    } else if backlog < seen {
        (Weight::Setting, format!("the backlog is {backlog}, and {seen} connections are open"))
    } else if backlog < FEW && backlog < may_be.saturating_mul(2) {
        (
            Weight::Note,
            format!("the backlog is only {backlog}, and clients here may open {may_be} or more at once"),
        )
    } else {
        return None;
    };
    let follows = "a Unix socket refuses the next client that does not block (EAGAIN, a 502 behind nginx), where TCP waits";
    Some(Finding::new(weight, Found::with(what, follows), remedy))
}

/// What gives the service this backlog.
fn setting(pair: &Pair<'_>, backlog: u32) -> String {
    let known = pair.known.and_then(|known| Some((known.label.as_str(), known.backlog_of(backlog)?)));
    match known {
        Some((label, setting)) => format!("set {setting} ({label}), and restart it"),
        None => format!("set the service's backlog to {backlog} or more, and restart it"),
    }
}

/// Twice the connections seen, rounded up to a power of two; at least 512 (nginx uses 511).
pub(crate) fn enough(seen: u32) -> u32 {
    seen.saturating_mul(2).max(512).checked_next_power_of_two().unwrap_or(u32::MAX)
}
