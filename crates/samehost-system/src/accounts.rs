//! Users and groups of /etc/passwd and /etc/group, by name and by number; no other module knows the paths and the format
//! of these files. Does not query directories (LDAP, SSSD), as `lookup` does: a uid that only they know has no name, no
//! home and no supplementary groups here.

use crate::threads;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::process::geteuid;
use rustix::thread::set_thread_groups;

use crate::open;

/// The group nogroup, which owns nothing.
const NO_GROUP: u32 = 65_534;

/// A user as the kernel checks file accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// `None` if /etc/passwd has no line for the uid.
    pub name: Option<String>,
    pub account: Account,
    /// `/` if there is none.
    pub home: PathBuf,
}

impl User {
    /// The user with this uid, with a group that owns nothing if /etc/passwd has no line for it.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        user_of(uid, &text_of_passwd(), &text_of_group())
    }

    /// `None` if /etc/passwd has no line for the name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(User::of(number(name)?))
    }

    /// Stands for any member of a group, with no other permissions.
    #[must_use]
    pub fn of_group(gid: u32) -> Self {
        let account = Account { uid: NO_GROUP, gid, groups: vec![gid] };
        User { name: Some(format!("group {gid}")), account, home: PathBuf::from("/") }
    }

    /// Stands for any user, with the permissions of everyone alone.
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

fn user_of(uid: u32, passwd: &str, group: &str) -> User {
    let Some(user) = users(passwd).find(|user| user.uid == uid) else {
        let account = Account { uid, gid: NO_GROUP, groups: Vec::new() };
        return User { name: None, account, home: PathBuf::from("/") };
    };
    let account = Account { uid, gid: user.gid, groups: groups_of(user.name, group) };
    let home = if user.home.starts_with('/') { user.home } else { "/" };
    User { name: Some(user.name.to_owned()), account, home: home.into() }
}

#[must_use]
pub fn number(name: &str) -> Option<u32> {
    let text = text_of_passwd();
    let user = users(&text).find(|user| user.name == name)?;
    Some(user.uid)
}

#[must_use]
pub fn group(name: &str) -> Option<u32> {
    let text = text_of_group();
    let group = groups(&text).find(|group| group.name == name)?;
    Some(group.gid)
}

#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    let text = text_of_passwd();
    let user = users(&text).find(|user| user.uid == uid)?;
    Some(user.name.to_owned())
}

/// Name of the user of this process: the default login name of clients.
#[must_use]
pub fn own_name() -> Option<String> {
    user_name(geteuid().as_raw())
}

#[must_use]
pub fn group_name(gid: u32) -> Option<String> {
    let text = text_of_group();
    let group = groups(&text).find(|group| group.gid == gid)?;
    Some(group.name.to_owned())
}

/// The members of a group that /etc/group lists: without those whose own group it is.
#[must_use]
pub fn members(gid: u32) -> Vec<String> {
    let text = text_of_group();
    match groups(&text).find(|group| group.gid == gid) {
        Some(group) => group.members().map(str::to_owned).collect(),
        None => Vec::new(),
    }
}

#[must_use]
pub fn numbers() -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for user in users(&text_of_passwd()) {
        numbers.extend([user.uid, user.gid]);
    }
    numbers.extend(groups(&text_of_group()).map(|group| group.gid));
    numbers
}

/// The account of a name in these texts; its own group is among its groups.
pub(crate) fn account_of(name: &str, passwd: &str, group: &str) -> Option<Account> {
    let user = users(passwd).find(|user| user.name == name)?;
    let mut groups = groups_of(name, group);
    groups.push(user.gid);
    Some(Account { uid: user.uid, gid: user.gid, groups })
}

/// A user's line: `name:password:uid:gid:about:home:shell`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: &'a str,
}

/// A group's line: `name:password:gid:member,member`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) gid: u32,
    members: &'a str,
}

impl<'a> GroupLine<'a> {
    pub(crate) fn members(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.members.split(',').filter(|name| !name.is_empty())
    }
}

pub(crate) fn text_of_passwd() -> String {
    open::text("/etc/passwd")
}

pub(crate) fn text_of_group() -> String {
    open::text("/etc/group")
}

/// In the order of the text; malformed lines are left out.
pub(crate) fn users(text: &str) -> impl Iterator<Item = UserLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(UserLine { name, uid, gid, home: fields.nth(1).unwrap_or_default() })
    })
}

pub(crate) fn groups(text: &str) -> impl Iterator<Item = GroupLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        Some(GroupLine { name, gid, members: fields.next().unwrap_or_default() })
    })
}

fn groups_of(name: &str, text: &str) -> Vec<u32> {
    groups(text).filter(|group| group.members().any(|member| member == name)).map(|group| group.gid).collect()
}

#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    #[must_use]
    pub fn of_users() -> Self {
        Names::users_in(text_of_passwd().as_bytes())
    }

    #[must_use]
    pub fn of_groups() -> Self {
        let text = text_of_group();
        Names::first(groups(&text).map(|group| (group.gid, group.name)))
    }

    /// User names in a text with the format of `/etc/passwd`: that of another root directory.
    pub fn users_in(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        Names::first(users(&text).map(|user| (user.uid, user.name)))
    }

    /// The first name of an id counts, as in the C library.
    fn first<'a>(lines: impl Iterator<Item = (u32, &'a str)>) -> Self {
        let mut names = HashMap::new();
        for (number, name) in lines {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
        Names(names)
    }

    /// The id of a name; the lowest if a file has several.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.0.iter().filter(|(_, its)| its.as_str() == name).map(|(number, _)| *number).min()
    }

    pub fn name(&self, number: u32) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }
}

/// Runs `work` with an account's file permissions. A caller other than root keeps its own permissions.
///
/// # Errors
/// When root may not take on another user's permissions, or the thread cannot be started.
pub fn as_user<T: Send>(account: &Account, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !geteuid().is_root() || account.uid == 0 {
        return Ok(work());
    }
    threads::apart(|| {
        become_it(account)?;
        Ok(work())
    })?
}

fn become_it(account: &Account) -> io::Result<()> {
    let groups: Vec<_> = account.groups.iter().map(|id| rustix::process::Gid::from_raw(*id)).collect();
    // Changes only this thread; the C library's setgroups would change all threads.
    set_thread_groups(&groups)?;
    let (gid, uid) = (Gid::from_raw(account.gid), Uid::from_raw(account.uid));
    setfsgid(gid);
    setfsuid(uid);
    // These calls report no failure; the second call returns what is set. Leaving root's file-system uid
    // also drops the capabilities that override permissions (capabilities(7)).
    if setfsgid(gid) != gid || setfsuid(uid) != uid {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_number_has_its_name_home_and_groups() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbad:x:7:no::/:\nbob:x:1000:100:Bob:/home/bob:/bin/sh\n";
        let group = "root:x:0:\nweb:x:33:alice,bob\nusers:x:100:\nbobs:x:34:bobby\n";
        let bob = user_of(1000, passwd, group);
        assert_eq!((bob.to_string(), bob.home), ("bob".into(), PathBuf::from("/home/bob")));
        assert_eq!(bob.account, Account { uid: 1000, gid: 100, groups: vec![33] });
        for unknown in [7, 1001] {
            let user = user_of(unknown, passwd, group);
            assert_eq!((user.to_string(), user.account.gid), (format!("user {unknown}"), NO_GROUP));
        }
        assert_eq!(User::of(0).name.as_deref(), Some("root"));
        assert_eq!(User::named("root"), Some(User::of(0)));
        assert_eq!(User::named("no-such-user-here"), None);
    }

    #[test]
    fn names_are_read_with_their_groups() {
        let passwd = "root:x:0:0::/root:/bin/sh\nmysql:x:110:114::/:/bin/false\nbad:x:no:1::/:\n";
        let group = "root:x:0:\nweb:x:33:mysql,www-data\nmysql:x:114:\n";
        let found = account_of("mysql", passwd, group).unwrap();
        assert_eq!((found.uid, found.gid, found.groups), (110, 114, vec![33, 114]));
        assert!(account_of("bad", passwd, group).is_none() && account_of("my", passwd, group).is_none());
    }

    #[test]
    fn numbers_and_names_lead_to_each_other() {
        assert_eq!((number("root"), group("root")), (Some(0), Some(0)));
        assert_eq!((user_name(0).as_deref(), group_name(0).as_deref()), (Some("root"), Some("root")));
        assert_eq!(
            (number("no-such-user-here"), group("no-such-group"), user_name(54_321)),
            (None, None, None)
        );
        assert!(numbers().contains(&0) && !numbers().contains(&54_321));
    }

    #[test]
    fn lines_are_taken_apart_and_odd_ones_passed_over() {
        let passwd = "root:x:0:0::/root:/bin/sh\n#\nbad:x:no:1::/:\nshort:x:7\nbob:x:1000:100:Bob:/home/bob:/bin/sh\nlast:x:8:9";
        let found: Vec<_> = users(passwd).map(|user| (user.name, user.uid, user.gid, user.home)).collect();
        assert_eq!(found, [("root", 0, 0, "/root"), ("bob", 1000, 100, "/home/bob"), ("last", 8, 9, "")]);
        let group = "root:x:0:\nweb:x:33:alice,bob\n+::\nbobs:x:34:bobby\nbare:x:35\n";
        let found: Vec<_> =
            groups(group).map(|group| (group.name, group.gid, group.members().count())).collect();
        assert_eq!(found, [("root", 0, 0), ("web", 33, 2), ("bobs", 34, 1), ("bare", 35, 0)]);
        assert_eq!((groups_of("bob", group), groups_of("b", group)), (vec![33], Vec::new()));
    }

    #[test]
    fn the_first_name_counts_and_odd_lines_are_passed_over() {
        let names = Names::users_in(
            b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n#\nbad:x:no\n\xff:x:7:7::/:/x\n",
        );
        assert_eq!(names.name(0), Some("root"));
        assert_eq!(names.name(7), Some("\u{fffd}"));
        assert_eq!(names.name(1), None);
        assert_eq!((names.number("root"), names.number("nobody")), (Some(0), None));
        assert_eq!((Names::of_users().name(0), Names::of_groups().name(0)), (Some("root"), Some("root")));
    }

    #[test]
    fn what_the_user_may_not_read_is_not_read_as_root() {
        assert!(geteuid().is_root(), "this test is about root's permissions: run it as root");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        std::os::unix::fs::chown(&path, None, Some(33)).unwrap();
        let other = Account { uid: 65534, gid: 65534, groups: Vec::new() };
        let read = || open::read(&path, 10);
        assert_eq!(as_user(&other, read).unwrap().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let member = Account { groups: vec![33], ..other };
        assert_eq!(as_user(&member, read).unwrap().unwrap(), b"x");
        assert_eq!(read().unwrap(), b"x", "this thread is who it was");
        assert_eq!(as_user(&Account { uid: 0, gid: 0, groups: Vec::new() }, read).unwrap().unwrap(), b"x");
    }
}
