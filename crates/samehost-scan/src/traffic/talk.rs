//! Finds the clients that talk to a service in short connections. A single snapshot rarely contains one, so
//! the kernel's connections are listed repeatedly, and the holders of the client ends looked up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use samehost_model::scan::{Process, Scan};
use samehost_system::interrupt;

use crate::diag::Diag;
use crate::listing::join::Listeners;
use crate::namespaces;
use crate::proc::descriptors::sockets_of;
use crate::proc::{pids, status, users::Names};

/// Interval between listings: shorter than a PHP page keeps its connection open.
const NAP: Duration = Duration::from_millis(2);

/// Processes that connect to a service over TCP during the period, in this program's network namespace. Empty
/// when the scan is of another namespace. Ends early when a client was found or a stop was requested.
#[must_use]
pub fn talkers(scan: &Scan, service: usize, period: Duration) -> Vec<Process> {
    let Some(own) = namespaces::own_of(scan) else { return Vec::new() };
    let listeners = Listeners::of(&scan.sockets);
    let Some(found) = scan.services.get(service) else { return Vec::new() };
    let Ok(mut diag) = Diag::open() else { return Vec::new() };
    let (begun, mut known) = (Instant::now(), BTreeSet::new());
    while begun.elapsed() < period && !interrupt::is_requested() {
        let mut ends = Vec::new();
        for socket in diag.connected(own).unwrap_or_default() {
            let reaches = socket
                .peer
                .inet()
                .is_some_and(|peer| listeners.all(own, peer).iter().any(|at| found.listeners.contains(at)));
            if reaches && socket.inode != 0 && known.insert(socket.inode) {
                ends.push((socket.inode, socket.uid));
            }
        }
        let talking = if ends.is_empty() { Vec::new() } else { holders(&ends) };
        if !talking.is_empty() {
            return talking.into_iter().map(|(process, _)| process).collect();
        }
        std::thread::sleep(NAP);
    }
    Vec::new()
}

/// Processes that hold one of these sockets now, each with all its sockets.
pub(crate) fn holders(ends: &[(u64, Option<u32>)]) -> Vec<(Process, Vec<u64>)> {
    let users = Names::of_users();
    let mut found = Vec::new();
    for pid in pids() {
        // Only processes of the sockets' owners are searched, because the connection is short.
        let uid = status::read(pid).map(|status| status.uid);
        if !ends.iter().any(|(_, maker)| maker.is_none() || *maker == uid) {
            continue;
        }
        let sockets = sockets_of(pid);
        if sockets.iter().any(|inode| ends.iter().any(|(end, _)| end == inode)) {
            found.extend(crate::process(pid, &users).map(|process| (process, sockets)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn who_connects_for_a_moment_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scan = crate::collect("0").unwrap();
        let service = scan.services.iter().position(|service| {
            service.listeners.iter().any(|at| scan.sockets[*at].local.inet() == Some(address))
        });
        let stop = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            // Each connection lasts as long as a page of PHP.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _stream = TcpStream::connect(address);
                    std::thread::sleep(Duration::from_millis(30));
                }
            });
            let found = talkers(&scan, service.unwrap(), Duration::from_secs(20));
            stop.store(true, Ordering::Relaxed);
            found
        });
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert!(
            talkers(&scan, service.unwrap(), Duration::from_millis(20)).is_empty(),
            "nobody talks any more"
        );
    }
}
