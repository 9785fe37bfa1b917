//! Places on this machine: which hosts are its own, and which endpoints and paths are the same.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use samehost_model::Endpoint;
use samehost_system::lookup;

/// A path without links; itself where it leads nowhere.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether a TCP endpoint leads to this machine's loopback: by its address, or by all addresses of its name. A listener at
/// every address (`0.0.0.0`) is reached there too, and counts.
pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    let Endpoint::Tcp { host, .. } = endpoint else { return false };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return ip.to_canonical().is_loopback() || ip.is_unspecified();
    }
    let found = lookup::addresses(host);
    !found.is_empty() && found.iter().all(|ip| ip.to_canonical().is_loopback())
}

/// Whether a listener accepts connections of this machine only.
pub(crate) fn is_loopback(endpoint: &Endpoint) -> bool {
    if let Endpoint::Tcp { host, .. } = endpoint
        && let Ok(ip) = host.parse::<IpAddr>()
        && ip.is_unspecified()
    {
        return false;
    }
    is_local(endpoint)
}

/// Whether two TCP endpoints may be the same listener: the same port, on hosts that loopback reaches.
pub(crate) fn same_port(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Tcp { port: one, .. }, Endpoint::Tcp { port: other, .. }) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local() {
        for local in ["tcp:127.0.0.1:1", "tcp:[::1]:1", "tcp:127.1.2.3:1", "tcp:[::ffff:127.0.0.1]:1"] {
            assert!(is_local(&local.parse().unwrap()), "{local}");
        }
        for other in ["tcp:192.0.2.1:1", "unix:/x"] {
            assert!(!is_local(&other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn a_listener_for_everybody_is_not_for_loopback_alone() {
        fn endpoint(text: &str) -> Endpoint {
            text.parse().unwrap()
        }
        assert!(is_loopback(&endpoint("tcp:127.0.0.1:80")) && is_loopback(&endpoint("tcp:[::1]:80")));
        assert!(!is_loopback(&endpoint("tcp:0.0.0.0:80")) && !is_loopback(&endpoint("tcp:[::]:80")));
    }
}
