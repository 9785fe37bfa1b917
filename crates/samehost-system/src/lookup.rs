//! Looks up what a name stands for: the addresses of a host, from /etc/hosts, else with the system's resolver; the
//! account of a user, from the system's files, else with `id`, which asks the directories (LDAP, SSSD) that this system
//! is configured for. Each has a time limit, because a server of names may be down.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use crate::accounts::{self, Account, account_of};
use crate::command::Run;
use crate::open;

/// Time limit of the resolver and of a lookup in directories.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of a name, each once; empty if it is unknown.
#[must_use]
pub fn addresses(name: &str) -> Vec<IpAddr> {
    let text = open::read(Path::new("/etc/hosts"), open::LONGEST).unwrap_or_default();
    let listed = listed(name, &String::from_utf8_lossy(&text));
    let is_localhost =
        name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    match (listed.is_empty(), is_localhost) {
        (false, _) => listed,
        (true, true) => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
        (true, false) => asked(name),
    }
}

/// Whether a name stands in this machine's file of hosts. No name server is asked.
#[must_use]
pub fn is_listed(name: &str) -> bool {
    let text = open::read(Path::new("/etc/hosts"), open::LONGEST).unwrap_or_default();
    !listed(name, &String::from_utf8_lossy(&text)).is_empty()
}

fn listed(name: &str, hosts: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in hosts.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

fn asked(name: &str) -> Vec<IpAddr> {
    let is_name = !name.is_empty()
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    let answer = is_name.then(|| Run::new("getent", ["ahosts", name], PATIENCE).run().ok()).flatten();
    let mut found = Vec::new();
    for line in answer.map(|ended| ended.output).unwrap_or_default().lines() {
        if let Some(Ok(ip)) = line.split_whitespace().next().map(str::parse::<IpAddr>)
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

/// The account of a name, with its groups; `None` if it is unknown.
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
    let numbers = |option: &str| -> Option<Vec<u32>> {
        let ended = Run::new("id", [option, "--", name], PATIENCE).run().ok()?;
        let words = ended.output.split_whitespace().map(str::parse);
        words.collect::<Result<_, _>>().ok().filter(|_| ended.status.success())
    };
    Some(Account { uid: *numbers("-u")?.first()?, gid: *numbers("-g")?.first()?, groups: numbers("-G")? })
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
