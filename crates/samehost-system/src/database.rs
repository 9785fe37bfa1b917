//! Parses `/etc/passwd` and `/etc/group`; the only module that knows their paths and format. Does not query
//! other sources of users.

use std::path::Path;

use crate::open;

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

/// Text of `/etc/passwd`; empty if it cannot be read.
pub(crate) fn passwd() -> String {
    text("/etc/passwd")
}

/// Text of `/etc/group`; empty if it cannot be read.
pub(crate) fn group() -> String {
    text("/etc/group")
}

fn text(path: &str) -> String {
    let bytes = open::read(Path::new(path), open::LONGEST).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Users in a text, in order; skips malformed lines.
pub(crate) fn users(text: &str) -> impl Iterator<Item = UserLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(UserLine { name, uid, gid, home: fields.nth(1).unwrap_or_default() })
    })
}

/// Groups in a text, in order; skips malformed lines.
pub(crate) fn groups(text: &str) -> impl Iterator<Item = GroupLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        Some(GroupLine { name, gid, members: fields.next().unwrap_or_default() })
    })
}

/// Gids of the groups that list a user as member.
pub(crate) fn groups_of(name: &str, text: &str) -> Vec<u32> {
    groups(text).filter(|group| group.members().any(|member| member == name)).map(|group| group.gid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
