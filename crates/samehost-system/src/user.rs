//! A user by number: the name, the home and the groups that /etc/passwd and /etc/group have for it. Asks no directory
//! (LDAP, SSSD): a number that they alone know has no name here, no home and no other groups.

use std::path::{Path, PathBuf};

use crate::{Account, open};

/// The group of those who have none (nogroup): it owns nothing.
const NO_GROUP: u32 = 65_534;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name; none where there is no line for the number.
    pub name: Option<String>,
    /// What file accesses are judged by.
    pub account: Account,
    /// The home; `/` where there is none.
    pub home: PathBuf,
}

impl User {
    /// The user of a number.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        let text = |path: &str| open::read(Path::new(path), open::LONGEST).unwrap_or_default();
        let (passwd, group) = (text("/etc/passwd"), text("/etc/group"));
        listed(uid, &String::from_utf8_lossy(&passwd), &String::from_utf8_lossy(&group))
    }

    /// The user of a name; none where there is no line for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let passwd = open::read(Path::new("/etc/passwd"), open::LONGEST).ok()?;
        let passwd = String::from_utf8_lossy(&passwd).into_owned();
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        Some(User::of(line.split(':').nth(2)?.parse().ok()?))
    }

    /// Somebody of whom nothing is known but a group.
    #[must_use]
    pub fn of_group(gid: u32) -> Self {
        let account = Account { uid: NO_GROUP, gid, groups: vec![gid] };
        User { name: Some(format!("group {gid}")), account, home: PathBuf::from("/") }
    }

    /// Somebody of whom nothing is known.
    #[must_use]
    pub fn anyone() -> Self {
        User { name: Some("everyone".into()), ..User::of_group(NO_GROUP) }
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "user {}", self.account.uid),
        }
    }
}

fn listed(uid: u32, passwd: &str, group: &str) -> User {
    let wanted = uid.to_string();
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.get(2) == Some(&wanted.as_str()));
    let Some((fields, gid)) = line.and_then(|fields| Some((fields.clone(), fields.get(3)?.parse().ok()?)))
    else {
        let account = Account { uid, gid: NO_GROUP, groups: Vec::new() };
        return User { name: None, account, home: PathBuf::from("/") };
    };
    let name = fields[0];
    let groups = group.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_member = fields.get(3)?.split(',').any(|member| member == name);
        fields.get(2)?.parse().ok().filter(|_| is_member)
    });
    let home = fields.get(5).filter(|home| home.starts_with('/')).map_or(PathBuf::from("/"), PathBuf::from);
    User { name: Some(name.to_owned()), account: Account { uid, gid, groups: groups.collect() }, home }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_name_home_and_groups() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbad:x:7:no::/:\nbob:x:1000:100:Bob:/home/bob:/bin/sh\n";
        let group = "root:x:0:\nweb:x:33:alice,bob\nusers:x:100:\nbobs:x:34:bobby\n";
        let bob = listed(1000, passwd, group);
        assert_eq!((bob.to_string(), bob.home), ("bob".into(), PathBuf::from("/home/bob")));
        assert_eq!(bob.account, Account { uid: 1000, gid: 100, groups: vec![33] });
        for unknown in [7, 1001] {
            let user = listed(unknown, passwd, group);
            assert_eq!((user.to_string(), user.account.gid), (format!("user {unknown}"), NO_GROUP));
        }
        assert_eq!(User::of(0).name.as_deref(), Some("root"));
        assert_eq!(User::named("root"), Some(User::of(0)));
        assert_eq!(User::named("no-such-user-here"), None);
    }
}
