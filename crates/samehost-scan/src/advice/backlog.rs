//! Blocker `backlog`: with a full backlog connect(2) on a Unix socket fails at once (EAGAIN, a 502 behind
//! nginx), while TCP queues and retries.

use samehost_model::scan::{Queues, Weight};

use super::Finding;
use super::pair::Pair;

/// Default of net.core.somaxconn before Linux 5.4, still requested by many servers; anything lower is a risk.
const FEW: u32 = 128;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let space = |inode| pair.scan.network_namespaces.iter().find(|space| space.inode == inode);
    let somaxconn = space(pair.service.network_namespace).and_then(|space| space.somaxconn);
    // All clients may reconnect at once after the service restarts.
    let seen = pair.service.connections.max(pair.connections.len() as u32);
    let Some(listener) = pair.listener else {
        let limit = somaxconn.filter(|limit| *limit < seen)?;
        return Some((
            Weight::Setting,
            format!("net.core.somaxconn is {limit}, and {seen} connections are open"),
            format!("Raise it first: sysctl net.core.somaxconn={}", enough(seen)),
        ));
    };
    let Queues::Listening { waiting, backlog: Some(backlog) } = listener.queues else { return None };
    let found = |what: String| {
        format!(
            "{what}; a Unix socket refuses the next one at once (EAGAIN, a 502 behind nginx), where TCP waits"
        )
    };
    let remedy = match somaxconn.filter(|limit| *limit <= backlog && *limit < enough(seen)) {
        Some(limit) => format!(
            "net.core.somaxconn ({limit}) is the limit: sysctl net.core.somaxconn={0}, then a backlog of {0} in the service, and restart it",
            enough(seen)
        ),
        None => format!("Set the service's backlog to {} or more, and restart it", enough(seen)),
    };
    if waiting > backlog {
        Some((
            Weight::Setting,
            found(format!("{waiting} connections wait at a backlog of {backlog}: it is full")),
            remedy,
        ))
    } else if backlog < seen {
        Some((
            Weight::Setting,
            found(format!("the backlog is {backlog}, and {seen} connections are open")),
            remedy,
        ))
    } else if backlog < FEW {
        Some((Weight::Note, found(format!("the backlog is only {backlog}")), remedy))
    } else {
        None
    }
}

/// Twice the connections seen, rounded up to a power of two; at least 512 (nginx uses 511).
fn enough(seen: u32) -> u32 {
    seen.saturating_mul(2).max(512).checked_next_power_of_two().unwrap_or(u32::MAX)
}
