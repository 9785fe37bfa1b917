//! Who a process is. Its name and its command line say nothing: every process writes those itself. Its user, its
//! executable and its namespaces are the kernel's word; its number alone is not, for numbers are used again, so the time
//! of its start goes with it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::proc::status;

/// The file that a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its path in the process' own view; ` (deleted)` behind it once the file was replaced.
    pub path: PathBuf,
    /// Its device and inode.
    pub file: (u64, u64),
    /// Its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// The namespaces of a process, by inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// Mounts.
    pub mount: u64,
    /// Network.
    pub network: u64,
    /// Users.
    pub user: u64,
    /// Processes.
    pub pid: u64,
}

/// A process, as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// The user that its file accesses are judged by.
    pub uid: u32,
    /// The group that its file accesses are judged by.
    pub gid: u32,
    /// Its other groups, as they were when it started.
    pub groups: Vec<u32>,
    /// What it runs; none where that may not be seen, and for threads of the kernel.
    pub executable: Option<Executable>,
    /// Its namespaces; none where they may not be seen.
    pub namespaces: Option<Namespaces>,
}

impl Identity {
    /// Who a process is; none when it is gone, or another one took its number meanwhile.
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

    /// Whether that same process is still there.
    #[must_use]
    pub fn is_still_there(&self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// Whether nobody but root and the process' own user could have put its executable there.
    #[must_use]
    pub fn runs_trusted_file(&self) -> bool {
        self.executable
            .as_ref()
            .is_some_and(|file| (file.owner == 0 || file.owner == self.uid) && file.mode & 0o002 == 0)
    }

    /// Whether it sees the files, the network and the users that this program sees.
    #[must_use]
    pub fn shares_our_namespaces(&self) -> bool {
        let ours = Namespaces::of(std::process::id());
        let seen = |all: Namespaces| (all.mount, all.network, all.user);
        self.namespaces.map(seen).is_some_and(|theirs| ours.map(seen) == Some(theirs))
    }
}

impl Executable {
    /// What a process runs; none where that may not be seen.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let path = fs::read_link(&link).ok()?;
        // Through the link of /proc: the file that runs, whatever its path leads to by now.
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
    /// The namespaces of a process; none where they may not be seen.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let inode = |kind: &str| Some(fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?.ino());
        Some(Namespaces {
            mount: inode("mnt")?,
            network: inode("net")?,
            user: inode("user")?,
            pid: inode("pid")?,
        })
    }
}

/// When a process started, in clock ticks since boot (proc(5), field 22 of stat); none when it is gone.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// A field of `/proc/PID/stat`, numbered as proc(5) does, from 3: those before stand in front of the end of the name,
/// which may hold anything.
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
        assert!(own.is_still_there() && own.runs_trusted_file() && own.shares_our_namespaces());
        assert_eq!(own.executable.unwrap().path, std::env::current_exe().unwrap());
        assert!(Identity::of(u32::MAX).is_none());
        assert!(!Identity { start: 1, ..Identity::of(std::process::id()).unwrap() }.is_still_there());
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
