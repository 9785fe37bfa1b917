//! Looks up what a name stands for: the addresses of a host, from /etc/hosts, else with the system's resolver; the
//! account of a user, from the system's files, else with `id`, which asks the directories (LDAP, SSSD) that this system
//! is configured for. Each has a time limit, because a server of names may be down.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::accounts::{self, Account, account_of};
use crate::command::Run;
use crate::open;
use crate::routes::{local_routes, route_to};

/// Time limit of the resolver and of a lookup in directories.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of a name, each once; empty if it is unknown.
#[must_use]
pub fn addresses(name: &str) -> Vec<IpAddr> {
    let known = known(name, &open::text("/etc/hosts"));
    if known.is_empty() { asked(name) } else { known }
}

/// Whether a host, a name or an address, is this machine, by each address that its file of hosts has for it. No name server is
/// asked: a word of somebody's text may be anything. That a name stands in the file says nothing: `10.0.0.5 db` is another machine,
/// and a socket in its place led to other data.
#[must_use]
pub fn is_here(host: &str) -> bool {
    let found = match host.parse() {
        Ok(ip) => vec![ip],
        Err(_) => known(host, &open::text("/etc/hosts")),
    };
    !found.is_empty() && found.into_iter().all(is_own)
}

/// Whether an address is one of this machine: of its loopback, of an interface, or none, which leads to its loopback (Linux).
#[must_use]
pub fn is_own(ip: IpAddr) -> bool {
    is_of_loopback(ip) || local_routes().is_ok_and(|routes| route_to(&routes, ip.to_canonical()).is_some())
}

fn is_of_loopback(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

/// What leads to this machine in some text, in small letters: the names in its file of hosts, and the addresses of its interfaces.
#[must_use]
pub fn own_names() -> Vec<String> {
    let routes = local_routes().unwrap_or_default();
    // A list of a hundred thousand blocked names is read once, and not for each of them.
    let mut names: BTreeMap<String, bool> = BTreeMap::new();
    for (ip, of_line) in lines(&open::text("/etc/hosts")) {
        let is_own = is_of_loopback(ip) || route_to(&routes, ip.to_canonical()).is_some();
        for name in of_line {
            *names.entry(name.to_ascii_lowercase()).or_insert(true) &= is_own;
        }
    }
    let here = names.into_iter().filter_map(|(name, is_here)| is_here.then_some(name));
    here.chain(routes.iter().map(|route| route.destination.to_string())).collect()
}

/// What a name stands for without a name server. `localhost` and names below it are this machine, whatever a server would say.
fn known(name: &str, hosts: &str) -> Vec<IpAddr> {
    let listed = listed(name, hosts);
    let name = name.to_ascii_lowercase();
    if listed.is_empty() && (name == "localhost" || name.ends_with(".localhost")) {
        return vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
    }
    listed
}

fn listed(name: &str, hosts: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for (ip, mut names) in lines(hosts) {
        if names.any(|own| own.eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// The lines of a file of hosts: an address, and its names.
fn lines(hosts: &str) -> impl Iterator<Item = (IpAddr, impl Iterator<Item = &str>)> {
    hosts.lines().filter_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        Some((words.next()?.parse().ok()?, words))
    })
}

fn asked(name: &str) -> Vec<IpAddr> {
    let is_name = !name.is_empty()
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if !is_name {
        return Vec::new();
    }
    let Ok(answer) = Run::new("getent", ["ahosts", name], PATIENCE).run() else { return Vec::new() };
    let mut found = Vec::new();
    for line in answer.output.lines() {
        if let Some(Ok(ip)) = line.split_whitespace().next().map(str::parse::<IpAddr>)
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

/// The account of a name, with all of its groups; `None` if neither the files nor the directories have it.
#[must_use]
pub fn account(name: &str) -> Option<Account> {
    account_of(name, &accounts::text_of_passwd(), &accounts::text_of_group())
        .or_else(|| asked_for_account(name))
}

fn asked_for_account(name: &str) -> Option<Account> {
    // `id` would take a number for a uid, and a dash for an option.
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let uid = *numbers("-u", name)?.first()?;
    let gid = *numbers("-g", name)?.first()?;
    Some(Account { uid, gid, groups: numbers("-G", name)? })
}

/// The numbers that `id` prints; `None` if it fails or prints anything else.
fn numbers(option: &str, name: &str) -> Option<Vec<u32>> {
    let ended = Run::new("id", [option, "--", name], PATIENCE).run().ok()?;
    if !ended.status.success() {
        return None;
    }
    ended.output.split_whitespace().map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_first() {
        let hosts =
            "127.0.0.1 localhost\n::1\tip6-localhost localhost # c db\n10.0.0.5 DB.example db\nx db\n";
        assert_eq!(listed("localhost", hosts), ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        assert_eq!(listed("db", hosts), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert!(listed("nobody", hosts).is_empty());
        assert!(addresses("localhost").iter().all(IpAddr::is_loopback));
        assert!(asked("-h").is_empty() && asked("a b").is_empty() && asked("").is_empty());
    }

    #[test]
    fn a_host_is_here_by_its_addresses_and_not_by_being_listed() {
        let here =
            ["localhost", "LOCALHOST", "db.localhost", "127.1.2.3", "::1", "::ffff:127.0.0.1", "0.0.0.0"];
        assert!(here.into_iter().all(is_here));
        assert!(["203.0.113.7", "no-such-name", "", "127.0.0.1:80"].into_iter().all(|host| !is_here(host)));
        for (line, is) in
            [("10.0.0.5 db", false), ("127.0.1.1 db", true), ("127.0.0.1 db\n10.0.0.5 db", false)]
        {
            assert_eq!(known("db", line).into_iter().all(is_own), is, "{line}");
        }
    }

    #[test]
    fn the_system_is_asked_for_what_no_file_has() {
        assert_eq!(account("root").unwrap().uid, 0);
        assert_eq!(asked_for_account("root").unwrap().uid, 0);
        assert!(
            account("no-such-user-here").is_none()
                && asked_for_account("0").is_none()
                && asked_for_account("--help").is_none()
        );
    }
}
