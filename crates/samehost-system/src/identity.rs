//! Identifies a process. Its name and command line prove nothing, because the process can change them. Its user,
//! executable and namespaces come from the kernel. Pids are reused, so the start time is part of the identity.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::open::proc_file;
use crate::proc::{container_of, namespace, status};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Path in the process's own view, followed by ` (deleted)` if the file was replaced.
    pub path: PathBuf,
    /// Device and inode.
    pub file: (u64, u64),
    pub owner: u32,
    /// Permission bits, with those above 0o777.
    pub mode: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    pub mount: u64,
    pub network: u64,
    pub user: u64,
    pub pid: u64,
}

/// A process, as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// File-system uid and gid, which decide on file accesses.
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// `None` if it is not visible to us, and for kernel threads.
    pub executable: Option<Executable>,
    /// `None` if they are not visible to us.
    pub namespaces: Option<Namespaces>,
}

impl Identity {
    /// Identifies a process; `None` if it has ended, or its pid was reused meanwhile.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let start = start_time(pid)?;
        let status = status::read(pid)?;
        let found = Identity {
            pid,
            start,
            uid: status.uid,
            gid: status.gid,
            groups: status.groups,
            executable: Executable::of(pid),
            namespaces: Namespaces::of(pid),
        };
        found.is_still_there().then_some(found)
    }

    #[must_use]
    pub fn is_still_there(&self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// Whether only root and the process's own user can have put its executable there.
    #[must_use]
    pub fn runs_trusted_file(&self) -> bool {
        let Some(file) = &self.executable else { return false };
        (file.owner == 0 || file.owner == self.uid) && file.mode & 0o002 == 0
    }
}

impl Executable {
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let path = fs::read_link(&link).ok()?;
        // Read through the link in /proc: the file that runs, whatever its path leads to now.
        let metadata = fs::metadata(&link).ok()?;
        Some(Executable {
            path,
            file: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
        })
    }
}

impl Namespaces {
    /// `None` if one of them is not visible to us.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Namespaces {
            mount: namespace(pid, "mnt")?,
            network: namespace(pid, "net")?,
            user: namespace(pid, "user")?,
            pid: namespace(pid, "pid")?,
        })
    }
}

/// Whether a process has the same as we: `root`, `ns/mnt`, `ns/net`. Device and inode identify a namespace, and a directory;
/// what is not visible to us is not the same.
#[must_use]
pub fn is_shared_with(pid: u32, what: &str) -> bool {
    let ours = identity(format!("/proc/self/{what}"));
    ours.is_some() && identity(format!("/proc/{pid}/{what}")) == ours
}

/// Device and inode of a file; `None` if it is not visible to us.
pub(crate) fn identity(path: impl AsRef<Path>) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Whether root made the namespaces of a process: its user namespace is ours; or it maps our root, which only root
/// can do (systemd's `PrivateUsers=`); or it runs in a container of the system. An ordinary user can make a user
/// namespace, and is root over all namespaces made inside it: what is seen through them cannot be trusted.
#[must_use]
pub fn is_of_the_system(pid: u32) -> bool {
    let Some(theirs) = namespace(pid, "user") else { return false };
    if Some(theirs) == namespace("self", "user") {
        return true;
    }
    let uid_map = proc_file(&format!("/proc/{pid}/uid_map"), 64 << 10).unwrap_or_default();
    if maps_root(&uid_map) {
        return true;
    }
    match container_of(pid) {
        Some(container) => !container.foreign,
        None => false,
    }
}

/// Whether a uid map, seen from our user namespace, contains our root. A line has the first id inside, the first id outside,
/// and how many there are.
fn maps_root(map: &[u8]) -> bool {
    for line in String::from_utf8_lossy(map).lines() {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        if let [_, 0, count] = numbers[..]
            && count > 0
        {
            return true;
        }
    }
    false
}

/// Start time of a process in clock ticks since boot (proc(5), field 22 of stat); `None` if it has ended.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// A field of `/proc/PID/stat`, numbered as in proc(5), from 3 on: the earlier ones include the process name,
/// which may contain anything.
#[must_use]
pub fn stat_field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = String::from_utf8_lossy(stat.get(end + 1..)?).into_owned();
    fields.split_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_who_it_is() {
        let own = Identity::of(std::process::id()).unwrap();
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        assert!(own.is_still_there() && own.runs_trusted_file());
        assert_eq!(own.executable.unwrap().path, std::env::current_exe().unwrap());
        assert!(Identity::of(u32::MAX).is_none());
        assert!(!Identity { start: 1, ..Identity::of(std::process::id()).unwrap() }.is_still_there());
    }

    #[test]
    fn a_map_with_our_root_in_it_is_roots_work() {
        for private_users in
            ["         0          0          1\n        33         33          1\n", "0 0 4294967295\n"]
        {
            assert!(maps_root(private_users.as_bytes()), "{private_users}");
        }
        for ordinary in
            ["         0      54321          1\n", "0 1000 1\n1 100000 65536\n", "", "0 0 0\n", "x\n"]
        {
            assert!(!maps_root(ordinary.as_bytes()), "{ordinary}");
        }
        assert!(is_of_the_system(std::process::id()) && !is_of_the_system(u32::MAX));
    }

    #[test]
    fn an_executable_that_anyone_may_write_is_trusted_by_nobody() {
        let mut own = Identity::of(std::process::id()).unwrap();
        own.executable.as_mut().unwrap().mode = 0o777;
        assert!(!own.runs_trusted_file());
        own.executable =
            Some(Executable { path: "/x".into(), file: (0, 0), owner: own.uid + 1, mode: 0o755 });
        assert!(!own.runs_trusted_file());
    }
}
