//! The kernel's local routes: the source address with which a machine reaches itself, and the initial
//! congestion control of such connections. Only reads routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::diag::Netlink;
use crate::diag::frame::{attributes, u32_at};
use crate::namespaces::network_setting;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// Bytes of `struct rtmsg`.
const FIXED: usize = 12;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TABLE_LOCAL: u32 = 255;
const TYPE_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_PREF: u16 = 20;
const RTAX_LOCK: u16 = 1;
const RTAX_CC_ALGO: u16 = 16;
/// Metrics that `ip` takes as a plain number, with their names.
const METRICS: &[(u16, &str)] = &[
    (2, "mtu"),
    (3, "window"),
    (7, "cwnd"),
    (8, "advmss"),
    (9, "reordering"),
    (10, "hoplimit"),
    (11, "initcwnd"),
    (14, "initrwnd"),
    (15, "quickack"),
];

/// A route of the table `local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRoute {
    /// First address of the destination.
    pub destination: IpAddr,
    /// In bits.
    pub prefix: u8,
    pub device: String,
    /// `RTPROT_…`: who made the route.
    pub protocol: u8,
    /// `RT_SCOPE_…`.
    pub scope: u8,
    pub source: Option<IpAddr>,
    /// The lowest is preferred.
    pub priority: u32,
    /// Initial congestion control of connections; `None` for the machine's default.
    pub congestion: Option<String>,
    /// Other metrics in the syntax of `ip`: `mtu 1500`, `mtu lock 1500`.
    pub metrics: Vec<String>,
    /// Whether it has an attribute that is not represented here.
    pub has_more: bool,
}

impl LocalRoute {
    #[must_use]
    pub fn reaches(&self, address: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (bits(self.destination), bits(address));
        let prefix = u32::from(self.prefix).min(width);
        width == other_width && (prefix == 0 || (own ^ other) >> (128 - prefix) == 0)
    }
}

/// The bits of an address, the first one highest, and how many there are.
fn bits(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    }
}

impl fmt::Display for LocalRoute {
    /// Formats the route for `ip route replace`, without its congestion control.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.destination.is_ipv4() { 32 } else { 128 };
        write!(f, "local {}", self.destination)?;
        if self.prefix != whole {
            write!(f, "/{}", self.prefix)?;
        }
        write!(f, " dev {} proto {}", self.device, protocol(self.protocol))?;
        if self.destination.is_ipv4() {
            write!(f, " scope {}", scope(self.scope))?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if self.priority != 0 {
            write!(f, " metric {}", self.priority)?;
        }
        f.write_str(" table local")?;
        self.metrics.iter().try_for_each(|metric| write!(f, " {metric}"))
    }
}

fn protocol(number: u8) -> String {
    match number {
        2 => "kernel".into(),
        3 => "boot".into(),
        4 => "static".into(),
        other => other.to_string(),
    }
}

fn scope(number: u8) -> String {
    match number {
        0 => "global".into(),
        200 => "site".into(),
        253 => "link".into(),
        254 => "host".into(),
        other => other.to_string(),
    }
}

/// Default congestion control of new connections in the calling thread's network namespace.
#[must_use]
pub fn default_congestion() -> Option<String> {
    network_setting("ipv4/tcp_congestion_control").filter(|name| !name.is_empty())
}

#[must_use]
pub fn available_congestion() -> Vec<String> {
    let text = network_setting("ipv4/tcp_available_congestion_control").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The routes to this machine's own addresses in the calling thread's network namespace, over IPv4 and IPv6. A kernel
/// without IPv6 has no such routes to show.
///
/// # Errors
/// When rtnetlink(7) refuses the listing.
pub fn local_routes() -> Result<Vec<LocalRoute>, Errno> {
    let mut routes = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut request = [0; FIXED];
        request[0] = family;
        let kinds = [RTM_GETROUTE, RTM_NEWROUTE];
        match Netlink::open(None, 0)?.dump(kinds, &request, |payload| routes.extend(parse(payload))) {
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) if family == AF_INET6 => {}
            other => other?,
        }
    }
    for route in &mut routes {
        route.device = device(&route.device).unwrap_or_default();
    }
    Ok(routes)
}

/// The route in `routes` (from [`local_routes`]) that the kernel takes to an address: the longest prefix, then the lowest
/// priority.
#[must_use]
pub fn route_to(routes: &[LocalRoute], address: IpAddr) -> Option<&LocalRoute> {
    let reaching = routes.iter().filter(|route| route.reaches(address));
    reaching.min_by_key(|route| (std::cmp::Reverse(route.prefix), route.priority))
}

/// Parses one route; `None` for another table or type. The device is still its number.
fn parse(payload: &[u8]) -> Option<LocalRoute> {
    let fixed = payload.get(..FIXED)?;
    let (family, prefix, table, kind) = (fixed[0], fixed[1], fixed[4], fixed[7]);
    let destination = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let mut route = LocalRoute {
        destination,
        prefix,
        device: String::new(),
        protocol: fixed[5],
        scope: fixed[6],
        source: None,
        priority: 0,
        congestion: None,
        metrics: Vec::new(),
        has_more: false,
    };
    let mut table = u32::from(table);
    for (kind, value) in attributes(&payload[FIXED..]) {
        match kind {
            RTA_DST => route.destination = address(value)?,
            RTA_OIF => route.device = u32_at(value, 0)?.to_string(),
            RTA_PREFSRC => route.source = address(value),
            RTA_PRIORITY => route.priority = u32_at(value, 0)?,
            RTA_TABLE => table = u32_at(value, 0)?,
            RTA_METRICS => read_metrics(&mut route, value),
            RTA_CACHEINFO | RTA_PREF => {}
            _ => route.has_more = true,
        }
    }
    (table == TABLE_LOCAL && kind == TYPE_LOCAL).then_some(route)
}

/// Adds a route's metrics: congestion control by its name, those that `ip` takes as a number, and whether there are others.
fn read_metrics(route: &mut LocalRoute, value: &[u8]) {
    let mut locked = 0;
    if let Some((_, bits)) = attributes(value).find(|(kind, _)| *kind == RTAX_LOCK) {
        locked = u32_at(bits, 0).unwrap_or(0);
    }
    for (kind, value) in attributes(value) {
        if kind == RTAX_CC_ALGO {
            let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
            route.congestion = Some(String::from_utf8_lossy(name).into_owned());
            continue;
        }
        let word = METRICS.iter().find(|(known, _)| *known == kind);
        match (word, u32_at(value, 0)) {
            (Some((_, word)), Some(number)) => {
                let lock = if locked >> kind & 1 == 1 { "lock " } else { "" };
                route.metrics.push(format!("{word} {lock}{number}"));
            }
            _ if kind == RTAX_LOCK => {}
            _ => route.has_more = true,
        }
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(value) {
        return Some(bytes.into());
    }
    let bytes = <[u8; 16]>::try_from(value).ok()?;
    Some(bytes.into())
}

/// Name of an interface by its number, in the calling thread's network namespace.
fn device(number: &str) -> Option<String> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::netdevice::index_to_name(socket, number.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diag::frame::attribute;

    #[test]
    fn this_machine_reaches_its_loopback() {
        let routes = local_routes().unwrap();
        let route = route_to(&routes, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!((route.device.as_str(), route.prefix), ("lo", 32));
        let wide = route_to(&routes, "127.9.9.9".parse().unwrap()).unwrap();
        assert_eq!((wide.prefix, wide.destination), (8, "127.0.0.0".parse().unwrap()));
        assert!(route_to(&routes, "203.0.113.7".parse().unwrap()).is_none());
        assert!(available_congestion().contains(&default_congestion().unwrap()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let of_route = route.congestion.clone().or_else(default_congestion);
        assert_eq!(of_route, Some(rustix::net::sockopt::tcp_congestion(&client).unwrap()));
    }

    #[test]
    fn every_attribute_of_a_route_is_told_or_known_to_be_left_out() {
        let mut bytes = vec![AF_INET, 32, 0, 0, 255, 2, 254, TYPE_LOCAL, 0, 0, 0, 0];
        bytes.extend(attribute(RTA_DST, &[127, 0, 0, 1]));
        bytes.extend(attribute(RTA_OIF, &1_u32.to_ne_bytes()));
        bytes.extend(attribute(RTA_PREFSRC, &[127, 0, 0, 1]));
        let mut metrics = attribute(RTAX_LOCK, &(1_u32 << 2).to_ne_bytes());
        metrics.extend(attribute(2, &1500_u32.to_ne_bytes()));
        metrics.extend(attribute(11, &20_u32.to_ne_bytes()));
        metrics.extend(attribute(RTAX_CC_ALGO, b"bbr\0"));
        bytes.extend(attribute(RTA_METRICS, &metrics));
        let mut route = parse(&bytes).unwrap();
        route.device = "lo".into();
        assert_eq!((route.congestion.as_deref(), route.has_more), (Some("bbr"), false));
        assert_eq!(
            route.to_string(),
            "local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 table local mtu lock 1500 initcwnd 20"
        );
        // A gateway, which a local route never has: it must not be dropped silently.
        bytes.extend(attribute(5, &[192, 0, 2, 1]));
        assert!(parse(&bytes).unwrap().has_more);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
