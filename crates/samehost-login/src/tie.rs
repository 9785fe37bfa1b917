//! Ties a connection to an expected peer before a secret is sent: the creator of the listener for Unix
//! sockets, and for both families the processes that have the accepted socket open. Sends nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use samehost_system::identity::{Namespaces, stat_field};
use samehost_system::peer::{self, Accepted, Creator, Peer};
use samehost_system::proc::container_of;
use samehost_system::{Identity, open, start_time};

use crate::error::{LoginError, Untied, UntiedClass};
use crate::expected::{Expected, Known};

/// Interval between two checks whether a connection was accepted.
const MOMENT: Duration = Duration::from_millis(2);
const GENERATIONS: usize = 16;
const MOST_REMEMBERED: usize = 8;

enum NotTied {
    /// No process has accepted the connection yet.
    Waiting,
    Never(Untied),
}

/// Ties a connected socket to a process by the kernel's word, before a secret is sent over it.
/// A password must not go to another process than the server, and any user can choose a process name, a
/// command line and an unused port. Looking at the machine before connecting was rejected, because
/// another process may listen by then. So this very connection is asked for: the creator of the listener
/// and the holders of the accepted socket. `network` is its network namespace, `None` for our own;
/// `endpoint` is for messages (docs/decisions/0065).
///
/// # Errors
/// [`LoginError::Untied`] if the peer is not an expected one; other errors if the connection broke, or was
/// not accepted before the deadline.
pub(crate) fn tie(
    socket: impl AsFd,
    network: Option<&File>,
    expected: &Expected,
    endpoint: &str,
    deadline: Instant,
) -> Result<(), LoginError> {
    let begun = Instant::now();
    let refused = |untied: Untied| LoginError::Untied(Box::new(untied.at(endpoint)));
    loop {
        match attempt(&socket, network, expected) {
            Ok(()) => return Ok(()),
            Err(NotTied::Never(untied)) => return Err(refused(untied)),
            Err(NotTied::Waiting) => {}
        }
        if has_hung_up(&socket) {
            return Err(LoginError::lost(endpoint, "it closed the connection without an answer"));
        }
        if samehost_system::interrupt::is_requested() {
            return Err(LoginError::interrupted(endpoint));
        }
        if Instant::now() >= deadline {
            return Err(LoginError::TimedOut { endpoint: endpoint.to_owned(), after: begun.elapsed() });
        }
        std::thread::sleep(MOMENT);
    }
}

fn has_hung_up(socket: &impl AsFd) -> bool {
    let mut all = [PollFd::new(socket, PollFlags::RDHUP)];
    let _ = poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    all[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// The creator of the listener is asked first. For root it has to hold the accepted socket too, since its pid may have been
/// reused; without permission to see other users' descriptors, the kernel's record of it has to do. If it does not fit, the
/// accepting process decides, because the creator may have passed the listener on, have ended, or be the system's manager.
/// A connection that nobody has accepted yet is waited for, unless its creator is known and not an expected one.
fn attempt(socket: &impl AsFd, network: Option<&File>, expected: &Expected) -> Result<(), NotTied> {
    let found = match Peer::of(socket.as_fd(), network) {
        Ok(found) => found,
        Err(error) => {
            let reason = format!("the kernel does not list its sockets: {error}");
            return Err(NotTied::Never(Untied::new(UntiedClass::Unseen).with(reason)));
        }
    };
    if expected.again
        && let Some(uid) = recorded_uid(&found)
        && was_tied_to(uid, expected)
    {
        return Ok(());
    }
    let creator = found.creator.and_then(deciding_creator);
    let fits = match &creator {
        Some(identity) => judge(identity, expected).is_ok(),
        None => false,
    };
    match (found.accepted, &creator) {
        (_, Some(_)) if fits && !rustix::process::geteuid().is_root() => Ok(()),
        (Some(accepted), Some(identity)) if fits && holds(identity, accepted) => {
            remember(expected, &[Known::from(identity)]);
            Ok(())
        }
        (Some(accepted), _) => checked(accepted, expected),
        (None, _) if !found.is_here => Err(NotTied::Never(Untied::new(UntiedClass::Elsewhere))),
        (None, Some(identity)) if !fits => Err(NotTied::Never(denied(identity, expected))),
        (None, _) => Err(NotTied::Waiting),
    }
}

/// The user that the kernel recorded for the other end.
fn recorded_uid(peer: &Peer) -> Option<u32> {
    match peer.creator {
        Some(creator) => Some(creator.uid),
        None => peer.accepted?.uid,
    }
}

/// The process that made the listener. `None` if it has ended; if its pid was reused, which shows by another user than the
/// recorded one (root may have changed user); and for systemd, whose sockets another process accepts from.
fn deciding_creator(creator: Creator) -> Option<Identity> {
    let identity = Identity::of(creator.pid)?;
    let is_the_same = identity.uid == creator.uid || creator.uid == 0;
    (is_the_same && identity.pid != 1).then_some(identity)
}

/// Whether the creator of a listener or one of its children has the accepted socket open: the recorded pid
/// may have been reused.
fn holds(creator: &Identity, accepted: Accepted) -> bool {
    let mut pids = vec![creator.pid];
    pids.extend(peer::children(creator.pid));
    accepted.uid.is_none_or(|uid| uid == 0 || uid == creator.uid)
        && peer::holder_among(&pids, accepted.inode).is_some()
        && creator.is_still_there()
}

/// Whether all processes that have the accepted socket open are expected.
fn checked(accepted: Accepted, expected: &Expected) -> Result<(), NotTied> {
    if quickly(accepted, expected) {
        return Ok(());
    }
    let holders = peer::holders(accepted.inode);
    let mut fitting = Vec::new();
    for pid in &holders.pids {
        // A process that ended meanwhile has nothing open. A process that got its pid either has the socket
        // open itself, or not.
        let Some(identity) = Identity::of(*pid) else { continue };
        if peer::holder_among(&[*pid], accepted.inode).is_none() || !identity.is_still_there() {
            continue;
        }
        judge(&identity, expected).map_err(NotTied::Never)?;
        if accepted.uid.is_some_and(|uid| uid != 0 && uid != identity.uid) {
            return Err(NotTied::Never(denied(&identity, expected)));
        }
        fitting.push(Known::from(&identity));
    }
    if !fitting.is_empty() {
        remember(expected, &fitting);
        return Ok(());
    }
    match accepted.uid {
        // Without permission to look at other processes, only the user from the kernel's record is known.
        Some(uid) if holders.some_hidden && fits_account(uid, expected) => Ok(()),
        Some(uid) if holders.some_hidden => {
            Err(NotTied::Never(Untied::new(UntiedClass::OtherAccount).with(format!("uid {uid}"))))
        }
        _ => Err(NotTied::Waiting),
    }
}

/// Checks known processes first: a scan of all processes takes time.
fn quickly(accepted: Accepted, expected: &Expected) -> bool {
    let mut known = expected.processes.clone();
    if let Ok(tied) = expected.tied.lock() {
        known.extend(tied.iter().copied());
    }
    for one in known {
        if start_time(one.pid) != Some(one.start) {
            continue;
        }
        let mut pids = vec![one.pid];
        pids.extend(peer::children(one.pid));
        let Some(holder) = peer::holder_among(&pids, accepted.inode).and_then(Identity::of) else { continue };
        let has_recorded_user = match accepted.uid {
            Some(uid) => uid == 0 || uid == holder.uid || uid == one.uid,
            None => true,
        };
        // Looked up again: the pid may have been reused while it was judged.
        if has_recorded_user
            && judge(&holder, expected).is_ok()
            && peer::holder_among(&[holder.pid], accepted.inode).is_some()
            && holder.is_still_there()
        {
            return true;
        }
    }
    false
}

/// Whether a process of this user that is still running was the peer of an earlier connection.
fn was_tied_to(uid: u32, expected: &Expected) -> bool {
    let Ok(tied) = expected.tied.lock() else { return false };
    tied.iter().any(|known| known.uid == uid && start_time(known.pid) == Some(known.start))
}

/// Remembers the peers, and the parents of those that are expected too: a server's workers come and go, and their
/// parent stays.
fn remember(expected: &Expected, fitting: &[Known]) {
    let mut peers = fitting.to_vec();
    for one in fitting {
        let Some(parent) = parent(one.pid).and_then(Identity::of) else { continue };
        if parent.pid > 1 && judge(&parent, expected).is_ok() {
            peers.push(Known::from(&parent));
        }
    }
    peers.truncate(MOST_REMEMBERED);
    if let Ok(mut tied) = expected.tied.lock() {
        *tied = peers;
    }
}

fn fits_account(uid: u32, expected: &Expected) -> bool {
    expected.is_account(uid) || expected.processes.iter().any(|known| known.uid == uid)
}

fn judge(identity: &Identity, expected: &Expected) -> Result<(), Untied> {
    if expected.processes.iter().any(|known| is_of(identity, known)) {
        return Ok(());
    }
    if expected.others.iter().any(|other| is_other(identity, other)) {
        return Err(Untied::new(UntiedClass::OtherProcess).with(in_words(identity)));
    }
    if expected.started_by_us && is_our_descendant(identity) || is_callers_own(identity, expected) {
        return Ok(());
    }
    let is_named = expected.is_account(identity.uid) || fits_unit(identity, expected);
    if is_named && is_of_this_machine(identity) && runs_trusted_file(identity) {
        return Ok(());
    }
    Err(denied(identity, expected))
}

fn is_our_descendant(identity: &Identity) -> bool {
    match Identity::of(std::process::id()) {
        Some(own) => descends(identity.pid, &own),
        None => false,
    }
}

/// A process of the caller's own is not a risk for a user other than root, in whatever namespaces: it may be a rootless
/// container.
fn is_callers_own(identity: &Identity, expected: &Expected) -> bool {
    let own = rustix::process::geteuid();
    !own.is_root() && identity.uid == own.as_raw() && expected.is_account(identity.uid)
}

fn is_other(identity: &Identity, other: &Known) -> bool {
    if (identity.pid, identity.start) == (other.pid, other.start) {
        return true;
    }
    match Identity::of(other.pid) {
        Some(found) => found.start == other.start && descends(identity.pid, &found),
        None => false,
    }
}

/// Whether a process is the known one, a descendant of the same user or file, or an ancestor with the same file.
fn is_of(identity: &Identity, known: &Known) -> bool {
    if (identity.pid, identity.start) == (known.pid, known.start) {
        return true;
    }
    let Some(main) = Identity::of(known.pid) else { return false };
    if main.start != known.start {
        return false;
    }
    let has_same_file = match (&main.executable, &identity.executable) {
        (Some(its), Some(other)) => its.file == other.file,
        _ => false,
    };
    let is_same_kind = main.uid == identity.uid || has_same_file;
    is_same_kind && descends(identity.pid, &main) || has_same_file && descends(main.pid, identity)
}

fn descends(pid: u32, from: &Identity) -> bool {
    let mut at = pid;
    for _ in 0..GENERATIONS {
        match parent(at) {
            Some(above) if above == from.pid => return from.is_still_there(),
            Some(above) if above > 1 => at = above,
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, 4)?.parse().ok()
}

/// The system's manager runs its units below `system.slice`; a user's own units are below `user.slice`. A unit may be in a
/// slice of its own: `postgresql@16-main.service` in `system-postgresql.slice`.
fn fits_unit(identity: &Identity, expected: &Expected) -> bool {
    if expected.units.is_empty() {
        return false;
    }
    let path = format!("/proc/{}/cgroup", identity.pid);
    let bytes = open::proc_file(&path, 64 * 1024).unwrap_or_default();
    for line in String::from_utf8_lossy(&bytes).lines() {
        // hierarchy:controllers:path
        let group = line.splitn(3, ':').nth(2).unwrap_or_default();
        let Some(unit) = group.strip_prefix("/system.slice/") else { continue };
        let unit = unit.split('/').find(|part| part.ends_with(".service")).unwrap_or_default();
        let name = unit.trim_end_matches(".service").split('@').next().unwrap_or_default();
        if expected.units.iter().any(|expected| expected == name) {
            return true;
        }
    }
    false
}

/// Whether a process is in no container, or in ours. Namespaces that we may not read are not compared.
fn is_of_this_machine(identity: &Identity) -> bool {
    if let Some(theirs) = identity.namespaces
        && let Some(ours) = Namespaces::of(std::process::id())
        && (theirs.user, theirs.pid) != (ours.user, ours.pid)
    {
        return false;
    }
    container_of(identity.pid) == container_of(std::process::id())
}

/// The executable is visible only to a user who may look at the process.
fn runs_trusted_file(identity: &Identity) -> bool {
    identity.executable.is_none() && !rustix::process::geteuid().is_root() || identity.runs_trusted_file()
}

fn denied(identity: &Identity, expected: &Expected) -> Untied {
    let class = if !is_of_this_machine(identity) {
        UntiedClass::Container
    } else if expected.is_account(identity.uid) && !runs_trusted_file(identity) {
        UntiedClass::ForeignFile
    } else if expected.processes.is_empty() {
        UntiedClass::OtherAccount
    } else {
        UntiedClass::OtherProcess
    };
    Untied::new(class).with(in_words(identity))
}

fn in_words(identity: &Identity) -> String {
    let mut words = format!("process {}, uid {}", identity.pid, identity.uid);
    if let Some(file) = &identity.executable {
        let path = file.path.display().to_string();
        words.push_str(&format!(", {} of uid {}", path.escape_debug(), file.owner));
    }
    words
}
