//! Detects local connections that use BBR, whose pacing is useless without a network in between. Suggests a
//! command to give them CUBIC: the current route of each address in use, with all its attributes and another
//! congestion control. Changes no route: that samehost changes a setting of the host by itself was rejected
//! (docs/congestion.md).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use samehost_model::scan::{Scan, SlowCongestion};
use samehost_system::routes::{LocalRoute, available_congestion, default_congestion, local_routes, route_to};

const SLOW: &str = "bbr";
/// Default of most distributions.
const USUAL: &str = "cubic";

/// Addresses in use in this network namespace whose connections start with BBR; empty when the kernel does
/// not report it.
pub(crate) fn slow(scan: &Scan) -> Vec<SlowCongestion> {
    let Ok(routes) = local_routes() else { return Vec::new() };
    let default = default_congestion().unwrap_or_default();
    let has_usual = available_congestion().iter().any(|name| name == USUAL);
    let mut found = Vec::new();
    for address in in_use(scan) {
        found.extend(of(address, &routes, &default, has_usual));
    }
    found
}

/// Local addresses of connections with both ends on this machine, and loopback addresses with a listener.
fn in_use(scan: &Scan) -> BTreeSet<IpAddr> {
    let own = scan.own_namespace().unwrap_or(0);
    let mut found = Vec::new();
    for socket in &scan.sockets {
        if !socket.kind.is_tcp() || !socket.is_listening() || socket.network_namespace != own {
            continue;
        }
        match socket.local.inet().map(|address| address.ip()) {
            Some(IpAddr::V4(any)) if any.is_unspecified() => found.push(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(IpAddr::V6(any)) if any.is_unspecified() => {
                found.push(IpAddr::V6(Ipv6Addr::LOCALHOST));
                if socket.v6only != Some(true) {
                    found.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
                }
            }
            Some(address) if address.is_loopback() => found.push(address),
            _ => {}
        }
    }
    for connection in &scan.connections {
        let Some((client, server)) = scan.ends(connection) else { continue };
        for end in [client, server] {
            if end.kind.is_tcp() && end.network_namespace == own {
                found.extend(end.local.inet().map(|address| address.ip()));
            }
        }
    }
    if found.is_empty() {
        found.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    found.into_iter().collect()
}

fn of(address: IpAddr, routes: &[LocalRoute], default: &str, has_usual: bool) -> Option<SlowCongestion> {
    let route = route_to(routes, address)?;
    let congestion = route.congestion.as_deref().unwrap_or(default);
    if congestion != SLOW {
        return None;
    }
    let mut note = String::new();
    if route.has_more {
        note = "its route has options that cannot be shown here: see `ip -d route show table local`, and keep them"
            .to_owned();
    }
    let (mut cure, undo) = cure(address, route);
    if !has_usual {
        cure.insert(0, format!("modprobe tcp_{USUAL}"));
    }
    Some(SlowCongestion {
        address: address.to_string(),
        congestion: congestion.to_owned(),
        from: match route.congestion {
            Some(_) => "its route".to_owned(),
            None => "net.ipv4.tcp_congestion_control".to_owned(),
        },
        cure,
        undo,
        note,
    })
}

/// Commands that give an address's connections the usual congestion control, and commands that undo this.
fn cure(address: IpAddr, route: &LocalRoute) -> (Vec<String>, Vec<String>) {
    // The kernel's own IPv6 route has priority 0, which no request can name, so it cannot be replaced. A second
    // route is added behind it, and then the first is deleted. The route that undoes this has the usual priority.
    if address.is_ipv6() && route.priority == 0 {
        let ours = LocalRoute { protocol: 4, priority: 1024, ..route.clone() };
        let cure =
            vec![format!("ip -6 route add {ours} congctl {USUAL}"), format!("ip -6 route del {route}")];
        return (cure, vec![format!("ip -6 route replace {}", back(&ours))]);
    }
    let ip = if address.is_ipv6() { "ip -6" } else { "ip" };
    let cure = vec![format!("{ip} route replace {route} congctl {USUAL}")];
    (cure, vec![format!("{ip} route replace {}", back(route))])
}

fn back(route: &LocalRoute) -> String {
    match &route.congestion {
        Some(name) => format!("{route} congctl {name}"),
        None => route.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, prefix: u8) -> LocalRoute {
        let destination: IpAddr = destination.parse().unwrap();
        LocalRoute {
            destination,
            prefix,
            device: "lo".into(),
            protocol: 2,
            scope: if destination.is_ipv4() { 254 } else { 0 },
            source: destination.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            priority: 0,
            congestion: None,
            metrics: Vec::new(),
            has_more: false,
        }
    }

    fn found(routes: &[LocalRoute], default: &str) -> Option<SlowCongestion> {
        of(IpAddr::V4(Ipv4Addr::LOCALHOST), routes, default, true)
    }

    #[test]
    fn the_setting_and_the_route_both_count_and_the_route_goes_first() {
        fn with(name: &str) -> [LocalRoute; 1] {
            [LocalRoute { congestion: Some(name.into()), ..route("127.0.0.1", 32) }]
        }
        let plain = [route("127.0.0.0", 8), route("127.0.0.1", 32)];
        let slow = found(&plain, "bbr").unwrap();
        assert_eq!(slow.from, "net.ipv4.tcp_congestion_control");
        let kept = "local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 table local";
        assert_eq!(slow.cure, [format!("ip route replace {kept} congctl cubic")]);
        assert_eq!(slow.undo, [format!("ip route replace {kept}")]);
        assert_eq!(found(&plain, "cubic"), None);
        assert_eq!(found(&with("cubic"), "bbr"), None);
        let by_route = found(&with("bbr"), "cubic").unwrap();
        assert_eq!(by_route.from, "its route");
        assert!(by_route.undo[0].ends_with(" congctl bbr"), "{by_route:?}");
    }

    #[test]
    fn what_a_route_has_is_kept_and_what_is_not_known_is_said() {
        let rich =
            LocalRoute { metrics: vec!["mtu lock 1500".into()], has_more: true, ..route("127.0.0.1", 32) };
        let slow = found(&[rich], "bbr").unwrap();
        assert!(slow.cure[0].contains("mtu lock 1500 congctl cubic"), "{slow:?}");
        assert!(slow.note.contains("ip -d route show"), "{slow:?}");
    }

    #[test]
    fn the_kernels_ipv6_route_cannot_be_replaced_and_is_followed() {
        let slow = of(IpAddr::V6(Ipv6Addr::LOCALHOST), &[route("::1", 128)], "bbr", true).unwrap();
        assert_eq!(
            slow.cure,
            [
                "ip -6 route add local ::1 dev lo proto static metric 1024 table local congctl cubic",
                "ip -6 route del local ::1 dev lo proto kernel table local"
            ]
        );
        assert_eq!(slow.undo, ["ip -6 route replace local ::1 dev lo proto static metric 1024 table local"]);
        let cured = LocalRoute { congestion: Some("cubic".into()), priority: 1024, ..route("::1", 128) };
        assert_eq!(of(IpAddr::V6(Ipv6Addr::LOCALHOST), &[cured], "bbr", true), None);
    }

    #[test]
    fn a_kernel_without_cubic_is_told_to_load_it_first() {
        let slow = of(IpAddr::V4(Ipv4Addr::LOCALHOST), &[route("127.0.0.1", 32)], "bbr", false).unwrap();
        assert_eq!(slow.cure[0], "modprobe tcp_cubic");
    }
}
