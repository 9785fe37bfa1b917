//! Becoming another: its network, its root directory, its groups and its user, in this order, for each step needs the
//! rights that the next gives up. There is no way back.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{chroot, fchdir, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::As;
use crate::LoginError;

/// What a process sees of files and network, as opened before anything changes.
struct Doors {
    network: Option<File>,
    user: Option<File>,
    root: Option<File>,
}

/// Whether a process has the root directory and the network that we have. One that cannot be looked at is taken for
/// one that has not.
pub(super) fn shares_our_view(pid: u32) -> bool {
    is_ours(pid, "ns/mnt") && is_ours(pid, "ns/net") && is_ours(pid, "root")
}

/// Device and inode tell a namespace, and a directory.
fn is_ours(pid: u32, what: &str) -> bool {
    let identity = |path: String| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let ours = identity(format!("/proc/self/{what}"));
    ours.is_some() && identity(format!("/proc/{pid}/{what}")) == ours
}

/// Becomes that one.
///
/// # Errors
/// What may not be done, and as whom it could be.
pub(super) fn become_client(who: &As) -> Result<(), LoginError> {
    let failed = |what: &str, reason: &dyn std::fmt::Display| LoginError::Become {
        who: who.in_words(),
        reason: format!("{what}: {reason}{}", if geteuid().is_root() { "" } else { "; run this as root" }),
    };
    // Asked before a user namespace is entered, which has numbers of its own.
    let is_already = !geteuid().is_root() && who.has_our_rights();
    if let Some(pid) = who.pid {
        let doors = Doors::of(pid).map_err(|(what, error)| failed(&what, &error))?;
        doors.enter().map_err(|(what, error)| failed(what, &error))?;
    }
    if is_already {
        return Ok(());
    }
    let gid = Gid::from_raw(who.gid);
    let uid = Uid::from_raw(who.uid);
    let groups: Vec<Gid> = who.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(|error| failed("setgroups", &error))?;
    setresgid(gid, gid, gid).map_err(|error| failed("setresgid", &error))?;
    setresuid(uid, uid, uid).map_err(|error| failed("setresuid", &error))
}

impl Doors {
    /// Opens what differs from ours.
    fn of(pid: u32) -> Result<Self, (String, std::io::Error)> {
        let open = |what: &str| {
            let path = format!("/proc/{pid}/{what}");
            File::open(&path).map_err(|error| (path, error))
        };
        let other = |what: &str| if is_ours(pid, what) { Ok(None) } else { open(what).map(Some) };
        let same_files = is_ours(pid, "ns/mnt") && is_ours(pid, "root");
        Ok(Doors {
            network: other("ns/net")?,
            // Root may enter what belongs to a user namespace below it; another must be in that one first.
            user: if geteuid().is_root() { None } else { other("ns/user")? },
            root: if same_files { None } else { Some(open("root")?) },
        })
    }

    /// The directory of a process leads into its mounts, so that its mount namespace need not be entered itself.
    fn enter(&self) -> Result<(), (&'static str, rustix::io::Errno)> {
        let setns = |file: &File, kind| move_into_link_name_space(file.as_fd(), Some(kind));
        if let Some(user) = &self.user {
            setns(user, LinkNameSpaceType::User).map_err(|errno| ("entering its user namespace", errno))?;
        }
        if let Some(network) = &self.network {
            setns(network, LinkNameSpaceType::Network)
                .map_err(|errno| ("entering its network namespace", errno))?;
        }
        if let Some(root) = &self.root {
            fchdir(root)
                .and_then(|()| chroot("."))
                .and_then(|()| rustix::process::chdir("/"))
                .map_err(|errno| ("entering its root directory", errno))?;
        }
        Ok(())
    }
}
