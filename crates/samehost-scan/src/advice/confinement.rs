//! FIELD 3: SELinux and AppArmor refuse although modes look right. Reads the domain of both ends; the policy itself is
//! not judged.

use std::fs;

use samehost_model::scan::Weight;

use super::Finding;
use super::pair::Pair;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let of = |pid: u32| {
        let label = fs::read_to_string(format!("/proc/{pid}/attr/current")).ok()?;
        confined(&label)
    };
    let client = pair.client().and_then(|client| Some((client.name.clone(), of(client.pid)?)));
    let server = pair.server().and_then(|server| Some((server.name.clone(), of(server.pid)?)));
    let ends: Vec<String> = [client, server]
        .into_iter()
        .flatten()
        .map(|(name, label)| format!("{name} runs as {label}"))
        .collect();
    if ends.is_empty() {
        return None;
    }
    Some((
        Weight::Note,
        format!("{}: its policy must allow the socket, whatever the modes say", ends.join(", ")),
        "Try one connection as the client and look for denials: ausearch -m avc -ts recent, or dmesg | grep apparmor".to_owned(),
    ))
}

/// The domain, if it confines: an enforced AppArmor profile, or an SELinux type that is not unconfined.
fn confined(label: &str) -> Option<String> {
    let label = label.trim_end_matches(['\0', '\n']).trim();
    if let Some(profile) = label.strip_suffix(" (enforce)") {
        return Some(format!("AppArmor profile {profile}"));
    }
    let kind = label.split(':').nth(2)?;
    let free = ["unconfined_t", "unconfined_service_t", "initrc_t", "kernel_t"];
    (!free.contains(&kind)).then(|| format!("SELinux type {kind}"))
}

#[cfg(test)]
mod tests {
    use super::confined;

    #[test]
    fn only_what_confines_counts() {
        assert_eq!(confined("unconfined\n"), None);
        assert_eq!(
            confined("/usr/sbin/mysqld (enforce)\n").as_deref(),
            Some("AppArmor profile /usr/sbin/mysqld")
        );
        assert_eq!(confined("/usr/sbin/mysqld (complain)\n"), None);
        assert_eq!(confined("system_u:system_r:httpd_t:s0\0").as_deref(), Some("SELinux type httpd_t"));
        assert_eq!(confined("unconfined_u:unconfined_r:unconfined_t:s0"), None);
        assert_eq!(confined(""), None);
    }
}
