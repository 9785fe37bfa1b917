//! Looks up an account by name, also with `id`, which asks the directories (LDAP, SSSD) that this system is configured for.
//! That has a time limit.

use std::time::Duration;

use crate::accounts::account_of;
use crate::as_user::Account;
use crate::command::Run;
use crate::database;

/// Time limit of a directory lookup.
const PATIENCE: Duration = Duration::from_secs(5);

/// The account of a name, with its groups; `None` if it is unknown.
#[must_use]
pub fn account(name: &str) -> Option<Account> {
    account_of(name, &database::passwd(), &database::group()).or_else(|| asked(name))
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
    fn the_system_is_asked_for_what_no_file_has() {
        assert_eq!(account("root").unwrap().uid, 0);
        assert_eq!(asked("root").unwrap().uid, 0);
        assert!(account("no-such-user-here").is_none() && asked("0").is_none() && asked("--help").is_none());
    }
}
