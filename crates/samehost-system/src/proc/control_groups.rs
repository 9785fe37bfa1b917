//! Finds control groups by the kernel's number: sock_diag names the group that made a socket even when the process is
//! gone. The number is the inode of the group's directory in the cgroup2 file system.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use super::cgroup;

/// Where cgroup2 is mounted, alone or beside cgroup1.
const MOUNTS: &[&str] = &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2: i64 = 0x6367_7270;
/// Number of the root group, which says nothing about a process.
const ROOT: u64 = 1;
/// Most directories that are read.
const MOST: usize = 20_000;

/// The unit (`php8.2-fpm.service`) or the container (`docker container 0123456789ab`) of each of these groups that is in
/// one and still there.
#[must_use]
pub fn names(mut wanted: BTreeSet<u64>) -> HashMap<u64, String> {
    wanted.remove(&ROOT);
    let mount = MOUNTS.iter().map(Path::new).find(|path| is_cgroup2(path));
    mount.map(|mount| names_below(mount, wanted)).unwrap_or_default()
}

fn is_cgroup2(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == CGROUP2)
}

fn names_below(mount: &Path, mut wanted: BTreeSet<u64>) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    let mut folders = VecDeque::from([PathBuf::new()]);
    for _ in 0..MOST {
        if wanted.is_empty() {
            break;
        }
        let Some(folder) = folders.pop_front() else { break };
        for entry in fs::read_dir(mount.join(&folder)).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = folder.join(entry.file_name());
            if wanted.remove(&entry.ino()) {
                found.extend(name(&path).map(|name| (entry.ino(), name)));
            }
            folders.push_back(path);
        }
    }
    found
}

/// Reads a path as that of a process in `/proc/PID/cgroup`.
fn name(path: &Path) -> Option<String> {
    let (unit, container) = cgroup::parse(&[b"0::/", path.as_os_str().as_bytes()].concat());
    unit.or_else(|| container.map(|container| container.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_group_is_found_by_its_inode_and_named_after_its_unit() {
        let mount = tempfile::tempdir().unwrap();
        let group = |path: &str| {
            fs::create_dir_all(mount.path().join(path)).unwrap();
            fs::metadata(mount.path().join(path)).unwrap().ino()
        };
        let unit = group("system.slice/php8.2-fpm.service");
        let container = group("system.slice/docker-0123456789abcdef.scope");
        let session = group("user.slice/user-1000.slice/session-3.scope");
        let named = names_below(mount.path(), BTreeSet::from([unit, container, session, u64::MAX]));
        assert_eq!(named.get(&unit).map(String::as_str), Some("php8.2-fpm.service"));
        assert_eq!(named.get(&container).map(String::as_str), Some("docker container 0123456789ab"));
        assert_eq!(named.len(), 2, "a session is no unit: {named:?}");
    }
}
