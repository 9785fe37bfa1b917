//! Chooses the user that runs the PHP code of an existing site: the account with the fewest permissions that
//! can read it. The site's owner may be a person with many permissions, and anyone who can write one file of
//! the site would get them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_system::accounts;

use crate::error::BenchError;
use crate::private_servers::Account;

/// Groups of web servers: sites of root are often readable for them only.
const WEB_GROUPS: &[&str] = &["www-data", "apache", "nginx", "http", "www"];
/// Most files examined; a site has some ten thousand.
const MOST_FILES: usize = 200_000;

/// A user who can read a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reader {
    /// `None` for our own user.
    pub(super) account: Option<Account>,
    /// Note about the account for the report.
    pub(super) told: String,
}

/// Users who may be able to read a site, those with the fewest permissions first. For root: an account of its
/// own, the same with the group that may read the site's settings, and the site's owner. Never root, and
/// never a web server's user.
///
/// # Errors
/// When no account can be made.
pub(super) fn readers(root: &Path, settings: &Path) -> Result<Vec<Reader>, BenchError> {
    let Some(made) = Account::made()? else {
        return Ok(vec![Reader { account: None, told: String::new() }]);
    };
    let site = Site::of(root, settings);
    let owner = fs::metadata(root).ok().map(|metadata| (metadata.uid(), metadata.gid()));
    let group = fs::metadata(settings).ok().map(|metadata| metadata.gid()).filter(|gid| *gid != 0);
    let web = WEB_GROUPS
        .iter()
        .find_map(|name| accounts::group(name))
        .filter(|_| owner.is_some_and(|(uid, _)| uid == 0));
    let mut readers = vec![Reader { account: Some(made), told: String::new() }];
    let mut groups: Vec<u32> = group.into_iter().chain(web).collect();
    groups.dedup();
    readers.extend(groups.into_iter().map(|gid| Reader {
        account: Some(Account { gid, ..made }),
        told: format!(", read with the group {gid}, for not everybody may read it"),
    }));
    readers.retain(|reader| reader.account.is_some_and(|account| site.is_open_to(account)));
    if let Some((uid, gid)) = owner.filter(|(uid, _)| *uid != 0) {
        let name = accounts::user_name(uid).unwrap_or_else(|| uid.to_string());
        let run_as = format!(", run as its owner {name}, for nobody else may read it");
        readers.push(Reader { account: Some(Account::of(uid, gid)), told: run_as });
    }
    Ok(readers)
}

/// What has to be readable: the directories above the site, its own directories, and its scripts.
struct Site {
    directories: Vec<fs::Metadata>,
    scripts: Vec<fs::Metadata>,
}

impl Site {
    fn of(root: &Path, settings: &Path) -> Self {
        let above = root.ancestors().skip(1).chain(settings.parent());
        let mut directories: Vec<_> = above.filter_map(|path| path.metadata().ok()).collect();
        let mut scripts: Vec<_> = settings.metadata().into_iter().collect();
        let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = waiting.pop() {
            directories.extend(folder.metadata());
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    // The target of a symbolic link is checked, but a linked directory is not searched.
                    Ok(kind) if kind.is_dir() => waiting.push(path),
                    _ if path.extension().is_some_and(|name| name == "php") => {
                        scripts.extend(path.metadata());
                    }
                    _ => {}
                }
            }
            if directories.len() + scripts.len() > MOST_FILES {
                break;
            }
        }
        Site { directories, scripts }
    }

    fn is_open_to(&self, account: Account) -> bool {
        self.directories.iter().all(|metadata| account.may(metadata, 1))
            && self.scripts.iter().all(|metadata| account.may(metadata, 4))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn advice(root: &Path) -> Vec<String> {
        readers(root, &root.join("wp-config.php")).unwrap().into_iter().map(|reader| reader.told).collect()
    }

    #[test]
    fn who_may_least_comes_first_and_root_never_as_root() {
        assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(root.path(), 0o755);
        let settings = root.path().join("wp-config.php");
        fs::write(&settings, "").unwrap();
        fs::write(root.path().join("index.php"), "").unwrap();
        mode(&settings, 0o644);
        mode(&root.path().join("index.php"), 0o644);
        assert_eq!(advice(root.path())[0], "");

        mode(&settings, 0o640);
        chown(&settings, None, Some(3)).unwrap();
        let with_group = readers(root.path(), &settings).unwrap();
        let first = with_group[0].account.unwrap();
        assert!(first.gid == 3 && first.uid > 60_000, "{with_group:?}");
        assert!(with_group.iter().all(|reader| reader.account.unwrap().uid > 60_000), "{with_group:?}");

        chown(&settings, Some(0), Some(0)).unwrap();
        mode(&settings, 0o600);
        assert!(advice(root.path()).is_empty(), "root alone may read it");
        chown(root.path(), Some(1), Some(1)).unwrap();
        chown(&settings, Some(1), Some(1)).unwrap();
        let alone = readers(root.path(), &settings).unwrap();
        assert_eq!(alone.len(), 1);
        assert!(alone[0].account.unwrap().uid == 1 && alone[0].told.contains("its owner"), "{alone:?}");
    }
}
