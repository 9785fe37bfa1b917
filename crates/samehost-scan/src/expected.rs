//! Which processes a login to a service may reach. Connections are tied to their server by this policy.

use samehost_login::{Expected, Known};
use samehost_model::Protocol;
use samehost_model::scan::{Scan, Service};
use samehost_system::Identity;

use crate::trust::Trusted;

/// Accepts a server of this protocol that runs as its package's account, as root, as the user of this program, or
/// as a user whom the configuration trusts. The configuration's owner is trusted, as the owner of the credentials.
#[must_use]
pub fn expected(protocol: Protocol, trusted: &Trusted) -> Expected {
    trusted.users().fold(Expected::of_service(protocol), Expected::or_account)
}

/// Like [`expected`], for a service that was found and identified: also accepts the processes that hold its
/// sockets, even in a container.
#[must_use]
pub fn expected_of(scan: &Scan, service: usize, protocol: Protocol, trusted: &Trusted) -> Expected {
    let known = scan.services.get(service).map(|found| holders_of(scan, found)).unwrap_or_default();
    Expected::processes(known).or(expected(protocol, trusted))
}

/// The processes that hold a service's listening sockets. The init system holds them on behalf of services and is not
/// the server.
#[must_use]
pub fn holders_of(scan: &Scan, service: &Service) -> Vec<Known> {
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let mut pids: Vec<u32> = sockets.flat_map(|socket| socket.pids.iter().copied()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| *pid != 1);
    pids.into_iter().filter_map(Identity::of).map(|holder| Known::from(&holder)).collect()
}
