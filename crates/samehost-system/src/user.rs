//! Looks up a user by uid: name, home and groups from /etc/passwd and /etc/group. Does not query directories
//! (LDAP, SSSD): a uid that only they know has no name, no home and no supplementary groups here.

use std::path::PathBuf;

use crate::as_user::Account;
use crate::{accounts, database};

/// The group nogroup, which owns nothing.
const NO_GROUP: u32 = 65_534;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// `None` if /etc/passwd has no line for the uid.
    pub name: Option<String>,
    /// Account for file accesses.
    pub account: Account,
    /// Home; `/` if there is none.
    pub home: PathBuf,
}

impl User {
    /// The user with this uid.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        listed(uid, &database::passwd(), &database::group())
    }

    /// The user with this name; `None` if /etc/passwd has no line for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(User::of(accounts::number(name)?))
    }

    /// An unknown user with a known group.
    #[must_use]
    pub fn of_group(gid: u32) -> Self {
        let account = Account { uid: NO_GROUP, gid, groups: vec![gid] };
        User { name: Some(format!("group {gid}")), account, home: PathBuf::from("/") }
    }

    /// An unknown user.
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
    let Some(user) = database::users(passwd).find(|user| user.uid == uid) else {
        let account = Account { uid, gid: NO_GROUP, groups: Vec::new() };
        return User { name: None, account, home: PathBuf::from("/") };
    };
    let account = Account { uid, gid: user.gid, groups: database::groups_of(user.name, group) };
    let home = if user.home.starts_with('/') { user.home } else { "/" };
    User { name: Some(user.name.to_owned()), account, home: home.into() }
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
