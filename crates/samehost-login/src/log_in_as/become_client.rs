//! Becomes another user: changes network namespace, root directory, groups and user, in this order, because
//! each step needs privileges that the next one drops. The change cannot be undone: the process keeps no
//! capability, cannot gain one, and can neither start a program nor write a file.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, chroot, fchdir, geteuid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, clear_ambient_capability_set,
    move_into_link_name_space, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use samehost_system::identity::is_shared_with;
use samehost_system::proc::status;

use super::As;
use super::message::Which;
use crate::error::LoginError;

/// Memory limit of the process in bytes: far more than connecting takes.
const MEMORY: u64 = 1 << 30;
/// Capabilities that override file permissions, which decide whether a process reaches a socket.
const FOR_FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// A process's view of files and network, as descriptors opened before anything changes; each is `None` if it
/// is the same as ours.
#[derive(Debug, Default)]
pub(super) struct Doors {
    pub(super) root: Option<OwnedFd>,
    pub(super) network: Option<OwnedFd>,
    pub(super) user: Option<OwnedFd>,
}

/// Whether a process has our root directory and network. If that is not visible to us, we assume that it has not.
pub(super) fn shares_our_view(pid: u32) -> bool {
    is_shared_with(pid, "ns/mnt") && is_shared_with(pid, "ns/net") && is_shared_with(pid, "root")
}

/// Capabilities over file permissions of a process of root; in a container it may have none. Other users lose
/// them in the change of user.
pub(super) fn capabilities_for_files(who: &As) -> u64 {
    if who.uid != 0 {
        return 0;
    }
    let Some(pid) = who.pid else { return FOR_FILES.bits() };
    match status::read(pid) {
        Some(status) => status.capabilities & FOR_FILES.bits(),
        None => 0,
    }
}

/// # Errors
/// What was denied, and as which user it would be possible.
pub(super) fn become_client(who: &As, doors: &Doors, capabilities: u64) -> Result<(), LoginError> {
    let failed = |what: &str, reason: &dyn std::fmt::Display| {
        let advice = if geteuid().is_root() { "" } else { "; run this as root" };
        who.failed(format!("{what}: {reason}{advice}"))
    };
    // Checked before entering a user namespace, which has its own ids.
    let is_already = !geteuid().is_root() && who.has_our_rights();
    doors.enter().map_err(|(what, error)| failed(what, &error))?;
    limit().map_err(|error| failed("limiting what it may use", &error))?;
    if !is_already {
        give_up_bounds();
        let gid = Gid::from_raw(who.gid);
        let uid = Uid::from_raw(who.uid);
        let groups: Vec<Gid> = who.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups).map_err(|error| failed("setgroups", &error))?;
        setresgid(gid, gid, gid).map_err(|error| failed("setresgid", &error))?;
        setresuid(uid, uid, uid).map_err(|error| failed("setresuid", &error))?;
    }
    let kept = CapabilitySet::from_bits_retain(capabilities) & FOR_FILES;
    let kept = if who.uid == 0 && !is_already { kept } else { CapabilitySet::empty() };
    keep(kept).map_err(|error| failed("giving up capabilities", &error))?;
    // Set last, because a change of user clears it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed("prctl", &error))
}

pub(super) fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// Prevents capabilities from coming back by exec. If that needs a capability that we lack, there is none to drop.
fn give_up_bounds() {
    let _ = clear_ambient_capability_set();
    for number in 0..64 {
        let _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number));
    }
}

/// Forbids writes, core dumps, other processes and new privileges, and limits memory.
fn limit() -> rustix::io::Result<()> {
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::Nproc, 0), (Resource::As, MEMORY)]
    {
        // What it may have no more of already stays as it is (`ulimit -v`).
        let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)
}

impl Doors {
    /// Opens what differs from ours. The error has the path that could not be opened.
    ///
    /// Root may enter namespaces that belong to a user namespace below it, and entering that one too has more risk than
    /// use. Another user must be in it first.
    pub(super) fn of(pid: u32) -> Result<Self, (String, std::io::Error)> {
        let mut doors = Doors::default();
        if !is_shared_with(pid, "ns/net") {
            doors.network = Some(open(pid, "ns/net")?);
        }
        if !geteuid().is_root() && !is_shared_with(pid, "ns/user") {
            doors.user = Some(open(pid, "ns/user")?);
        }
        if !is_shared_with(pid, "ns/mnt") || !is_shared_with(pid, "root") {
            doors.root = Some(open(pid, "root")?);
        }
        Ok(doors)
    }

    pub(super) fn all(&self) -> Vec<BorrowedFd<'_>> {
        [&self.root, &self.network, &self.user].into_iter().flatten().map(AsFd::as_fd).collect()
    }

    pub(super) fn which(&self) -> Which {
        Which { root: self.root.is_some(), network: self.network.is_some(), user: self.user.is_some() }
    }

    /// Descriptors received with a request; `None` if their number differs from the request.
    pub(super) fn received(which: Which, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let mut doors = Doors::default();
        for (is_there, door) in [
            (which.root, &mut doors.root),
            (which.network, &mut doors.network),
            (which.user, &mut doors.user),
        ] {
            if is_there {
                *door = Some(descriptors.next()?);
            }
        }
        descriptors.next().is_none().then_some(doors)
    }

    /// The root directory of a process leads into its mounts, so its mount namespace need not be entered.
    fn enter(&self) -> Result<(), (&'static str, rustix::io::Errno)> {
        for (namespace, kind, what) in [
            (&self.user, LinkNameSpaceType::User, "entering its user namespace"),
            (&self.network, LinkNameSpaceType::Network, "entering its network namespace"),
        ] {
            let Some(namespace) = namespace else { continue };
            move_into_link_name_space(namespace.as_fd(), Some(kind)).map_err(|errno| (what, errno))?;
        }
        if let Some(root) = &self.root {
            change_root(root).map_err(|errno| ("entering its root directory", errno))?;
        }
        Ok(())
    }
}

fn open(pid: u32, what: &str) -> Result<OwnedFd, (String, std::io::Error)> {
    let path = format!("/proc/{pid}/{what}");
    match File::open(&path) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err((path, error)),
    }
}

fn change_root(root: &OwnedFd) -> rustix::io::Result<()> {
    fchdir(root)?;
    chroot(".")?;
    rustix::process::chdir("/")
}
