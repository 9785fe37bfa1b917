//! Pools of PHP-FPM without a worker at this moment (`pm = ondemand`): the user that PHP will run as there, from their
//! master's configuration. The master itself belongs to root and runs no PHP. Only reads.

use samehost_edit::formats::php_fpm::{RunsAs, runs_as};
use samehost_model::scan::{Process, Scan};
use samehost_system::{Account, User, accounts, identity};

use super::effective::fpm_config;

/// A worker that there will be.
pub(super) struct Worker {
    /// Whose it will be.
    pub(super) account: Account,
    /// For people: `www-data, pool www, which has no process now`.
    pub(super) name: String,
}

/// Workers that a master will start for pools without any; with notes on pools that remain unknown.
pub(super) fn workers(scan: &Scan, master: &Process, notes: &mut Vec<String>) -> Vec<Worker> {
    let Some(config) = fpm_config(scan, master.pid) else { return Vec::new() };
    let running: Vec<(u32, u32)> = scan
        .processes
        .iter()
        .filter(|process| process.parent == master.pid)
        .filter_map(|worker| identity::Identity::of(worker.pid))
        .map(|worker| (worker.uid, worker.gid))
        .collect();
    let mut found = Vec::new();
    for pool in runs_as(&config.file, &config.files()) {
        let Some(account) = account(&pool) else { continue };
        if running.contains(&(account.uid, account.gid)) {
            continue;
        }
        let RunsAs { pool, user, has_own_root, .. } = pool;
        if has_own_root {
            let note = format!(
                "pool {pool} of PHP-FPM {} has a root directory of its own and no process now, so that nobody can look as it; send it a request, and switch again",
                master.pid
            );
            notes.push(note);
            continue;
        }
        found.push(Worker { account, name: format!("{user}, pool {pool}, which has no process now") });
    }
    found
}

/// The account of a pool's workers, as PHP-FPM creates it: a user by name or number, with that user's other groups.
fn account(pool: &RunsAs) -> Option<Account> {
    let mut account = match pool.user.parse() {
        Ok(uid) => User::of(uid).account,
        Err(_) => accounts::account(&pool.user)?,
    };
    if let Some(group) = &pool.group {
        let own = std::mem::replace(&mut account.gid, group.parse().ok().or_else(|| accounts::group(group))?);
        // The list contains the user's own group, which the pool's group replaces.
        if let Some(at) = account.groups.iter().rposition(|one| *one == own) {
            account.groups.remove(at);
        }
    }
    Some(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pools_account_is_by_name_or_number() {
        let account = |user: &str, group: Option<&str>| {
            let group = group.map(str::to_owned);
            account(&RunsAs { pool: "www".into(), user: user.into(), group, has_own_root: false })
        };
        let nobody = accounts::account("nobody").unwrap();
        assert_eq!(account("nobody", None), Some(nobody.clone()));
        assert_eq!(account("nobody", Some("root")).unwrap().gid, 0);
        let numbers = account("54321", Some("54322")).unwrap();
        assert_eq!((numbers.uid, numbers.gid, numbers.groups), (54_321, 54_322, Vec::new()));
        assert_eq!(
            (account("no-such-user-here", None), account("nobody", Some("no-such-group"))),
            (None, None)
        );
    }
}
