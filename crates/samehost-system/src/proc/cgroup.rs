//! Parses `/proc/PID/cgroup`: the systemd unit and the container of a process. A user cannot move a process
//! above the subtree delegated to him, so the beginning of the path can be trusted. The rest is chosen by the
//! owner of the subtree: a user's own manager, a container. Pure.
//!
//! Finds control groups by the kernel's number: sock_diag names the group that made a socket even when the process is
//! gone. The number is the inode of the group's directory in the cgroup2 file system.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use samehost_model::scan::Container;

/// How container runtimes name a container's control group: prefix and suffix of the container's id, and the runtime.
const SCOPES: &[(&str, &str, &str)] = &[
    ("docker-", ".scope", "docker"),
    ("cri-containerd-", ".scope", "containerd"),
    ("nerdctl-", ".scope", "containerd"),
    ("libpod-", ".scope", "podman"),
    ("libpod-conmon-", ".scope", "podman"),
    ("crio-", ".scope", "crio"),
    ("lxc.payload.", "", "lxc"),
    ("machine-", ".scope", "nspawn"),
];

/// Parent folders of control groups whose whole name is a container's id, and the runtime.
const FOLDERS: &[(&str, &str)] = &[("docker", "docker"), ("lxc", "lxc"), ("libpod_parent", "podman")];

/// The unit (`mariadb.service`) and the container of a process. One in a container is in no unit of this system, whatever its
/// control group is called.
pub fn parse(bytes: &[u8]) -> (Option<String>, Option<Container>) {
    let text = String::from_utf8_lossy(bytes);
    let mut unit = None;
    let mut container = None;
    for line in text.lines() {
        // hierarchy:controllers:path
        let Some(path) = line.splitn(3, ':').nth(2) else { continue };
        if container.is_none() {
            container = container_of(path);
        }
        if unit.is_none() {
            unit = unit_of(path);
        }
    }
    match container {
        Some(container) => (None, Some(container)),
        None => (unit, None),
    }
}

/// The unit or the container, as a name.
pub(super) fn of_text(bytes: &[u8]) -> Option<String> {
    match parse(bytes) {
        (Some(unit), _) => Some(unit),
        (None, container) => Some(container?.to_string()),
    }
}

/// The unit of the system manager: the component after its slices, from the root of the tree. Users' managers and
/// their processes are below `user.slice`, registered containers and virtual machines below `machine.slice`.
fn unit_of(path: &str) -> Option<String> {
    let mut parts = path.strip_prefix('/')?.split('/');
    let mut first = parts.next()?;
    if !first.ends_with(".slice") || ["user.slice", "machine.slice"].contains(&first) {
        return None;
    }
    while first.ends_with(".slice") {
        first = parts.next()?;
    }
    let unit = unescaped(first);
    let is_users_manager = unit.starts_with("user@");
    (unit.ends_with(".service") && !is_users_manager).then(|| unit.to_owned())
}

/// systemd prefixes `_` to a name that could be a file of the control group.
fn unescaped(part: &str) -> &str {
    part.strip_prefix('_').unwrap_or(part)
}

/// The container of a path; `foreign` if an ordinary user made it, so that its name cannot be trusted.
fn container_of(path: &str) -> Option<Container> {
    let parts: Vec<&str> = path.split('/').collect();
    let foreign = parts.get(1) == Some(&"user.slice");
    let is_of_kubernetes = path.contains("/kubepods");
    for (index, part) in parts.iter().enumerate().rev() {
        let folder = if index == 0 { "" } else { parts[index - 1] };
        let mut found = runtime_and_id(folder, part);
        if found.is_none() && is_of_kubernetes && is_identifier(part) {
            found = Some(("kubernetes", part));
        }
        if let Some((runtime, id)) = found {
            return Some(Container { runtime: runtime.into(), id: id.into(), foreign });
        }
    }
    None
}

/// The runtime of a container and its id, by the name of its control group and that of the group above it.
fn runtime_and_id<'a>(folder: &str, part: &'a str) -> Option<(&'static str, &'a str)> {
    for (prefix, suffix, runtime) in SCOPES {
        if let Some(rest) = part.strip_prefix(prefix)
            && let Some(id) = rest.strip_suffix(suffix)
        {
            return Some((runtime, id));
        }
    }
    for (name, runtime) in FOLDERS {
        if *name == folder && !part.is_empty() {
            return Some((runtime, part));
        }
    }
    None
}

fn is_identifier(part: &str) -> bool {
    part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where cgroup2 is mounted, alone or beside cgroup1.
const MOUNTS: &[&str] = &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2: i64 = 0x6367_7270;
/// The kernel's number of the root group, which says nothing about a process.
const ROOT: u64 = 1;
/// Most directories that are read, breadth first.
const MOST: usize = 20_000;

/// The unit (`php8.2-fpm.service`) or the container (`docker container 0123456789ab`) of each of these groups that is in
/// one and still there.
#[must_use]
pub fn names(mut wanted: BTreeSet<u64>) -> HashMap<u64, String> {
    wanted.remove(&ROOT);
    match MOUNTS.iter().map(Path::new).find(|path| is_cgroup2(path)) {
        Some(mount) => names_below(mount, wanted),
        None => HashMap::new(),
    }
}

fn is_cgroup2(path: &Path) -> bool {
    match statfs(path) {
        Ok(found) => found.f_type == CGROUP2,
        Err(_) => false,
    }
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
            let Ok(kind) = entry.file_type() else { continue };
            if !kind.is_dir() {
                continue;
            }
            let path = folder.join(entry.file_name());
            if wanted.remove(&entry.ino())
                && let Some(name) = name(&path)
            {
                found.insert(entry.ino(), name);
            }
            folders.push_back(path);
        }
    }
    found
}

/// The unit or the container of a group, by its path below the mount.
fn name(path: &Path) -> Option<String> {
    of_text(&[b"0::/", path.as_os_str().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    fn container(text: &str) -> Option<(String, String)> {
        parse(text.as_bytes()).1.map(|container| (container.runtime, container.id))
    }

    #[test]
    fn units_and_containers_of_real_hosts() {
        fn expected(runtime: &str, id: &str) -> Option<(String, String)> {
            Some((runtime.to_owned(), id.to_owned()))
        }
        fn is_foreign(text: &str) -> Option<bool> {
            parse(text.as_bytes()).1.map(|container| container.foreign)
        }
        for (text, name) in [
            ("0::/system.slice/mariadb.service\n", "mariadb.service"),
            (
                "12:pids:/system.slice/nginx.service\n1:name=systemd:/system.slice/nginx.service\n0::/\n",
                "nginx.service",
            ),
            (
                "0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n",
                "postgresql@15-main.service",
            ),
            // A slice that the administrator made, and a unit with groups of its own below it.
            ("0::/web.slice/web-shop.slice/php8.2-fpm.service\n", "php8.2-fpm.service"),
            ("0::/system.slice/_cpu.service/worker\n", "cpu.service"),
        ] {
            assert_eq!(parse(text.as_bytes()).0.as_deref(), Some(name), "{text}");
        }
        assert_eq!(container("0::/system.slice/docker-ab12.scope"), expected("docker", "ab12"));
        assert_eq!(container("5:memory:/docker/ab12\n0::/\n"), expected("docker", "ab12"));
        assert_eq!(container("0::/machine.slice/libpod-77.scope/container"), expected("podman", "77"));
        assert_eq!(container("0::/lxc.payload.web/system.slice/nginx.service"), expected("lxc", "web"));
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(container(&format!("0::/kubepods/besteffort/pod1/{id}")), expected("kubernetes", &id));
        assert_eq!(container("0::/system.slice/docker.service"), None);
        let users = "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-77.scope/container";
        assert_eq!((container(users), is_foreign(users)), (expected("podman", "77"), Some(true)));
        assert_eq!(is_foreign("0::/system.slice/docker-ab12.scope"), Some(false));
    }

    #[test]
    fn what_users_and_containers_call_a_group_is_no_unit_of_the_system() {
        for text in [
            "0::/lxc.payload.web/system.slice/nginx.service\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope\n",
            "0::/user.slice/user-1000.slice/session-3.scope/systemd-poweroff.service\n",
            "0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service\n",
            "0::/system.slice/docker-ab12.scope/system.slice/nginx.service\n",
            "0::/system.slice/user@1000.service/x.service\n",
            "0::/nginx.service\n",
            "0::/../../system.slice/nginx.service\n",
            "0::/\n",
        ] {
            assert_eq!(parse(text.as_bytes()).0, None, "{text}");
        }
        // A subtree delegated to bob's unit and named after another unit: the unit is still bob's.
        let delegated = b"0::/system.slice/bob.service/system.slice/mariadb.service\n";
        assert_eq!(parse(delegated).0.as_deref(), Some("bob.service"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        #[test]
        fn no_text_panics(text in "(0::|/|docker-|\\.scope|docker|kubepods|a|é){0,20}") {
            parse(text.as_bytes());
        }
    }

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
