//! Looks up accounts by name and names by id: in /etc/passwd and /etc/group, and accounts also with `id`,
//! which asks the directories (LDAP, SSSD) that this system is configured for. The latter has a time limit.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::as_user::Account;
use crate::command::Run;
use crate::database;

/// Time limit of a directory lookup.
const PATIENCE: Duration = Duration::from_secs(5);

/// The account of a name, with its groups; `None` if it is unknown.
#[must_use]
pub fn account(name: &str) -> Option<Account> {
    listed(name, &database::passwd(), &database::group()).or_else(|| asked(name))
}

/// The uid of a user name, from /etc/passwd only.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    database::users(&database::passwd()).find(|user| user.name == name).map(|user| user.uid)
}

/// The gid of a group name, from /etc/group only.
#[must_use]
pub fn group(name: &str) -> Option<u32> {
    database::groups(&database::group()).find(|group| group.name == name).map(|group| group.gid)
}

/// The user name of a uid, from /etc/passwd only.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    database::users(&database::passwd()).find(|user| user.uid == uid).map(|user| user.name.to_owned())
}

/// The group name of a gid, from /etc/group only.
#[must_use]
pub fn group_name(gid: u32) -> Option<String> {
    database::groups(&database::group()).find(|group| group.gid == gid).map(|group| group.name.to_owned())
}

/// The members of a group listed in /etc/group.
#[must_use]
pub fn members(gid: u32) -> Vec<String> {
    let text = database::group();
    let found = database::groups(&text).find(|group| group.gid == gid);
    found.into_iter().flat_map(|group| group.members()).map(str::to_owned).collect()
}

/// All uids and gids in these files.
#[must_use]
pub fn numbers() -> BTreeSet<u32> {
    let (passwd, group) = (database::passwd(), database::group());
    let users = database::users(&passwd).flat_map(|user| [user.uid, user.gid]);
    users.chain(database::groups(&group).map(|group| group.gid)).collect()
}

fn listed(name: &str, passwd: &str, group: &str) -> Option<Account> {
    let user = database::users(passwd).find(|user| user.name == name)?;
    let mut groups = database::groups_of(name, group);
    groups.push(user.gid);
    Some(Account { uid: user.uid, gid: user.gid, groups })
}

fn asked(name: &str) -> Option<Account> {
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
}
