//! Resolves the names that a login as another user needs, before anything is entered: in another root directory the C
//! library would load the modules that it finds there. Files of that directory are only read as bytes.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use samehost_model::Endpoint;
use samehost_system::open;
use samehost_system::proc::users::Names;

use super::As;
use super::become_client::shares_our_view;
use crate::error::LoginError;

/// Longest file of names that is read.
const LONGEST: u64 = 1 << 20;

/// Name of the user, from that user's own passwd file; the uid if it has none.
pub(super) fn of_user(who: &As) -> String {
    let names = Names::users_in(&file(who, "/etc/passwd"));
    names.name(who.uid).map_or_else(|| who.uid.to_string(), str::to_owned)
}

/// Resolves the endpoint to addresses: those in that user's hosts file, else those that the name has here.
pub(super) fn addresses(who: &As, endpoint: &Endpoint) -> Result<Vec<Endpoint>, LoginError> {
    let Endpoint::Tcp { host, port } = endpoint else { return Ok(vec![endpoint.clone()]) };
    let endpoint_at = |ip: IpAddr| Endpoint::Tcp { host: ip.to_string(), port: *port };
    if let Ok(ip) = host.parse() {
        return Ok(vec![endpoint_at(ip)]);
    }
    let mut found = in_hosts(&String::from_utf8_lossy(&file(who, "/etc/hosts")), host);
    if found.is_empty() {
        let looked_up = (host.as_str(), *port).to_socket_addrs();
        let looked_up = looked_up.map_err(|error| {
            let reason = format!("its name could not be looked up: {error}; write its address instead");
            LoginError::lost(endpoint, reason)
        })?;
        found = looked_up.map(|address| address.ip()).collect();
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    Ok(found.into_iter().map(endpoint_at).collect())
}

fn file(who: &As, path: &str) -> Vec<u8> {
    let path = Path::new(path);
    match who.pid.filter(|pid| !shares_our_view(*pid)) {
        Some(pid) => open::read_in_root(pid, path, LONGEST),
        None => open::read(path, LONGEST),
    }
    .unwrap_or_default()
}

fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let ip = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(ip)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_names_addresses() {
        let text = "# db\n127.0.0.1 localhost\n::1 LOCALHOST ip6\n10.0.0.7 db # localhost\nx localhost\n";
        assert_eq!(
            in_hosts(text, "localhost"),
            ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]
        );
        assert_eq!(in_hosts(text, "nobody"), Vec::<IpAddr>::new());
    }

    #[test]
    fn nothing_is_left_to_look_up() {
        let who = As::default();
        for text in ["tcp:localhost:1", "tcp:127.0.0.1:1", "unix:/s"] {
            for endpoint in addresses(&who, &text.parse().unwrap()).unwrap() {
                assert!(!endpoint.to_string().contains("localhost"), "{endpoint}");
            }
        }
        assert_eq!(of_user(&who), "root");
    }
}
