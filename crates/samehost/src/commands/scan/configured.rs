//! What configurations say about a scan: where the sites of an application connect to, and which connections are plain.

use std::collections::BTreeSet;

use samehost_model::scan::{Obstacle, Scan, Weight};
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::services_at;

/// Where what a switch of this target would read connects to.
pub(super) fn connected_to(scan: &Scan, target: &str) -> Vec<Endpoint> {
    let lines = samehost_switch::connecting(target, scan).map(|(lines, _)| lines).unwrap_or_default();
    lines.into_iter().map(|line| line.setting.endpoint).collect()
}

/// Takes "may be encrypted" back where a web server's own configuration says that it is not: `proxy_pass http://…`. That both
/// programs have a TLS library loaded is all that the scan itself sees.
pub(super) fn say_what_is_plain(scan: &mut Scan) {
    let is_guess = |one: &Obstacle| one.code == ObstacleCode::Tls && one.weight == Weight::Note;
    if !scan.advice.iter().any(|advice| advice.obstacles.iter().any(is_guess)) {
        return;
    }
    let (mut names, mut proxies, mut plain) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for service in &scan.services {
        if let Some(kind) = service.kind.filter(|kind| kind.descriptor().proxy) {
            names.insert(kind.name());
            proxies.extend(service.pid);
        }
    }
    for name in names {
        for line in samehost_switch::connecting_services(name, scan).unwrap_or_default() {
            if matches!(line.setting.endpoint, Endpoint::Tcp { .. }) {
                plain.extend(services_at(scan, &line.setting.endpoint));
            }
        }
    }
    let family = |pid: &u32| [Some(*pid), scan.process(*pid).map(|process| process.parent)];
    let is_plain: Vec<bool> = scan
        .advice
        .iter()
        .map(|advice| {
            let mut pids = advice.client_pids.iter().flat_map(family).flatten();
            plain.contains(&advice.service) && pids.any(|pid| proxies.contains(&pid))
        })
        .collect();
    for (advice, is_plain) in scan.advice.iter_mut().zip(is_plain) {
        advice.obstacles.retain(|one| !(is_plain && is_guess(one)));
    }
}
