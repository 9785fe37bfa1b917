//! Sockets on file systems that others have too: they see the file, and cannot connect.

use std::collections::BTreeMap;

use samehost_model::scan::{Finding, Found, Scan, Service, SocketKind};
use samehost_system::mounts::{Share, share};

/// One for each service that listens on such a socket.
pub(crate) fn findings(scan: &Scan) -> Vec<Finding> {
    let mut known: BTreeMap<u64, Option<Share>> = BTreeMap::new();
    scan.services.iter().filter_map(|service| finding(scan, service, &mut known)).collect()
}

fn finding(scan: &Scan, service: &Service, known: &mut BTreeMap<u64, Option<Share>>) -> Option<Finding> {
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let streams =
        sockets.filter(|socket| matches!(socket.kind, SocketKind::UnixStream | SocketKind::UnixSeqpacket));
    let mut on_shares = streams.filter_map(|socket| {
        let device = socket.file?.device;
        let share = known.entry(device).or_insert_with(|| share(device, service.pid)).clone()?;
        Some((socket.local.path()?, share))
    });
    let (path, share) = on_shares.next()?;
    Some(Finding {
        code: "shared-files",
        subject: format!("{} {}", service.name, path.display()),
        found: Found::with(
            format!("{}: {} is on {}", service.name, path.display(), share.kind),
            format!("{} see the file, and their connections are refused", share.others),
        ),
        remedy: "For programs here put the socket into a directory below /run; for the others keep a port"
            .to_owned(),
    })
}
