//! Whom a login to a service may meet: the policy that connections are tied by.

use samehost_login::{Expected, Known};
use samehost_model::Protocol;
use samehost_model::scan::Scan;
use samehost_system::Identity;

use crate::trust::Trusted;

/// Who may be at the other end: a server of this protocol, as its packages run it, as root, or as who runs this program;
/// or as whom the configuration trusts, its owner above all, for whose credentials it is.
#[must_use]
pub fn expected(protocol: Protocol, trusted: &Trusted) -> Expected {
    trusted.users().fold(Expected::of_service(protocol), Expected::or_account)
}

/// The same, where a service was found and may be taken for the server: also those very processes that hold its sockets,
/// be they in a container.
#[must_use]
pub fn expected_of(scan: &Scan, service: usize, protocol: Protocol, trusted: &Trusted) -> Expected {
    let listeners = scan.services.get(service).map(|found| found.listeners.as_slice()).unwrap_or_default();
    let sockets = listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let mut pids: Vec<u32> = sockets.flat_map(|socket| socket.pids.iter().copied()).collect();
    pids.sort_unstable();
    pids.dedup();
    // The init system holds sockets for services, and is none.
    let holders = pids.into_iter().filter(|pid| *pid != 1).filter_map(Identity::of);
    Expected::processes(holders.map(|holder| Known::from(&holder))).or(expected(protocol, trusted))
}
