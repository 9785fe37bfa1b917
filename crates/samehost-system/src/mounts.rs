//! Which file system a device number is, from `/proc/PID/mountinfo`, and whether programs that share its files share the
//! sockets in it too. A Unix socket is the kernel's that made it: another host or guest that has the same files sees the
//! name, and cannot connect. The files themselves are not touched: a FUSE file system of a user could make that wait.

use std::path::Path;

use rustix::fs::{major, minor};

use crate::open::proc_file;

/// Most bytes read of a table of mounts; a machine with thousands of containers has some megabytes.
const LONGEST: u64 = 16 << 20;

/// File systems that carry no socket to the others who have their files, each with who those are. Of FUSE a subtype
/// follows after a dot.
const SHARED: &[(&str, &str)] = &[
    ("9p", "the host, or the guests, that have the same files"),
    ("virtiofs", "the host, or the guests, that have the same files"),
    ("drvfs", "Windows programs"),
    ("vboxsf", "the host, or the guests, that have the same files"),
    ("nfs", "other hosts"),
    ("nfs4", "other hosts"),
    ("cifs", "other hosts"),
    ("smb3", "other hosts"),
    ("ceph", "other hosts"),
    ("afs", "other hosts"),
    ("fuse", "programs that have the same files by another mount"),
];

/// FUSE file systems that only one container or user sees.
const OWN: &[&str] = &["fuse.fuse-overlayfs", "fuse.lxcfs"];

/// A file system whose sockets not everybody who has its files can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Type of the file system: `9p`, `fuse.sshfs`.
    pub kind: String,
    pub others: &'static str,
}

impl Share {
    /// Why no socket belongs into a directory of it.
    #[must_use]
    pub fn refusal(&self, directory: &Path) -> String {
        format!(
            "{} is on {}: a socket there cannot be made, or not be used by {}",
            directory.display(),
            self.kind,
            self.others
        )
    }
}

/// The share with this device number (stat(2)'s) among the mounts that this program has, else among those of the process
/// `pid`. `None` for a file system whose sockets work for everybody, and for one that neither has mounted.
#[must_use]
pub fn share(device: u64, pid: Option<u32>) -> Option<Share> {
    let kind = match type_in("self", device) {
        Some(kind) => kind,
        None => type_in(&pid?.to_string(), device)?,
    };
    let others = of_kind(&kind)?;
    Some(Share { kind, others })
}

/// The type of the file system on a device, in the mount namespace of a process.
fn type_in(pid: &str, device: u64) -> Option<String> {
    let bytes = proc_file(&format!("/proc/{pid}/mountinfo"), LONGEST).ok()?;
    file_system(&String::from_utf8_lossy(&bytes), device).map(str::to_owned)
}

fn file_system(mountinfo: &str, device: u64) -> Option<&str> {
    let wanted = format!("{}:{}", major(device), minor(device));
    let mut lines = mountinfo.lines().filter(|line| line.split(' ').nth(2) == Some(wanted.as_str()));
    lines.next()?.split_once(" - ")?.1.split(' ').next()
}

/// Who has the files of such a file system and cannot connect; `None` where that is nobody.
fn of_kind(kind: &str) -> Option<&'static str> {
    if OWN.contains(&kind) {
        return None;
    }
    let base = kind.split('.').next().unwrap_or(kind);
    SHARED.iter().find(|(name, _)| *name == base).map(|(_, others)| *others)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
60 28 0:48 / /mnt/host\\040files rw,relatime shared:30 master:2 - virtiofs share rw
61 28 0:49 / /home/u/far rw,nosuid - fuse.sshfs u@far:/ rw,user_id=1000
62 28 0:50 / /var/lib/containers/overlay - fuse.fuse-overlayfs fuse-overlayfs rw
";

    #[test]
    fn a_device_is_found_by_its_numbers_and_named_by_its_type() {
        fn kind(major: u32, minor: u32) -> Option<&'static str> {
            file_system(MOUNTS, rustix::fs::makedev(major, minor))
        }
        assert_eq!(kind(8, 1), Some("ext4"));
        assert_eq!(kind(0, 48), Some("virtiofs"));
        assert_eq!(kind(0, 49), Some("fuse.sshfs"));
        assert_eq!(kind(0, 99), None);
    }

    #[test]
    fn file_systems_of_this_machine_alone_are_no_shares() {
        for kind in ["ext4", "tmpfs", "overlay", "fuse.fuse-overlayfs", "btrfs", "nfsd"] {
            assert_eq!(of_kind(kind), None, "{kind}");
        }
        for kind in ["9p", "virtiofs", "nfs4", "fuse", "fuse.sshfs", "cifs"] {
            assert!(of_kind(kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn the_root_of_this_machine_is_no_share() {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(share(std::fs::metadata("/proc").unwrap().dev(), None), None);
    }
}
