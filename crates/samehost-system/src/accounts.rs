//! Accounts by name: /etc/passwd and /etc/group, and where they know none what `id` says, which asks the directories
//! (LDAP, SSSD) that this system is set up for, for a limited time.

use std::path::Path;
use std::time::Duration;

use crate::{Account, Run, open};

/// How long a directory may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The account of a name, with its groups; none where nobody knows it.
#[must_use]
pub fn account(name: &str) -> Option<Account> {
    let text = |path: &str| open::read(Path::new(path), open::LONGEST).unwrap_or_default();
    let (passwd, group) = (text("/etc/passwd"), text("/etc/group"));
    listed(name, &String::from_utf8_lossy(&passwd), &String::from_utf8_lossy(&group)).or_else(|| asked(name))
}

/// The number of a user's name, by /etc/passwd alone.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    let passwd = open::read(Path::new("/etc/passwd"), open::LONGEST).ok()?;
    Some(listed(name, &String::from_utf8_lossy(&passwd), "")?.uid)
}

fn listed(name: &str, passwd: &str, group: &str) -> Option<Account> {
    let fields = |line: &str| -> Vec<String> { line.split(':').map(str::to_owned).collect() };
    let user = passwd.lines().map(fields).find(|fields| fields.first().is_some_and(|found| found == name))?;
    let (uid, gid) = (user.get(2)?.parse().ok()?, user.get(3)?.parse().ok()?);
    let groups = group.lines().map(fields).filter_map(|fields| {
        let is_member = fields.get(3)?.split(',').any(|member| member == name);
        fields.get(2)?.parse().ok().filter(|_| is_member)
    });
    Some(Account { uid, gid, groups: groups.chain([gid]).collect() })
}

fn asked(name: &str) -> Option<Account> {
    // A number would be taken for one, and a dash for an option.
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
    fn names_are_read_with_their_groups() {
        let passwd = "root:x:0:0::/root:/bin/sh\nmysql:x:110:114::/:/bin/false\nbad:x:no:1::/:\n";
        let group = "root:x:0:\nweb:x:33:mysql,www-data\nmysql:x:114:\n";
        let found = listed("mysql", passwd, group).unwrap();
        assert_eq!((found.uid, found.gid, found.groups), (110, 114, vec![33, 114]));
        assert!(listed("bad", passwd, group).is_none() && listed("my", passwd, group).is_none());
    }

    #[test]
    fn the_system_is_asked_for_what_no_file_has() {
        assert_eq!(account("root").unwrap().uid, 0);
        assert_eq!(asked("root").unwrap().uid, 0);
        assert!(account("no-such-user-here").is_none() && asked("0").is_none() && asked("--help").is_none());
    }
}
