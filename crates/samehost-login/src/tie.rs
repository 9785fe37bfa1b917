//! Ties a connection to an expected peer before a secret is sent: the creator of the listener for Unix
//! sockets, and for both families the processes that have the accepted socket open. Sends nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use samehost_system::identity::{Namespaces, stat_field};
use samehost_system::peer::{self, Accepted, Peer};
use samehost_system::{Identity, open, start_time};

use crate::error::{LoginError, Untied, UntiedClass};
use crate::expected::{Expected, Known};

/// Interval between two checks whether a connection was accepted.
const MOMENT: Duration = Duration::from_millis(2);
/// Most generations of parents that are followed.
const GENERATIONS: usize = 16;

/// Why a connection is not tied yet.
enum NotTied {
    /// No process has accepted it yet.
    Waiting,
    /// It will not be.
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
    if let Some(untied) = &expected.nobody
        && expected.is_nobody()
    {
        return Err(refused(untied.as_ref().clone()));
    }
    loop {
        match attempt(&socket, network, expected) {
            Ok(()) => return Ok(()),
            Err(NotTied::Never(untied)) => return Err(refused(untied)),
            Err(NotTied::Waiting) => {}
        }
        if has_hung_up(&socket) {
            return Err(LoginError::Lost {
                endpoint: endpoint.to_owned(),
                reason: "it closed the connection without an answer".into(),
                code: None,
            });
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

fn attempt(socket: &impl AsFd, network: Option<&File>, expected: &Expected) -> Result<(), NotTied> {
    let unseen = |reason: String| NotTied::Never(Untied::new(UntiedClass::Unseen).with(reason));
    let found = Peer::of(socket.as_fd(), network)
        .map_err(|error| unseen(format!("the kernel does not list its sockets: {error}")))?;
    let uid = found.creator.map(|creator| creator.uid).or(found.accepted.and_then(|accepted| accepted.uid));
    if expected.again && uid.is_some_and(|uid| was_tied_to(uid, expected)) {
        return Ok(());
    }
    let creator = found.creator.and_then(|creator| {
        let identity = Identity::of(creator.pid)?;
        // Pids are reused: the process must still have the recorded user, unless that was root, who may have
        // changed user.
        (identity.uid == creator.uid || creator.uid == 0).then_some(identity)
    });
    // Sockets that systemd listens on are accepted by another process, which decides.
    let creator = creator.filter(|identity| identity.pid != 1);
    let fits = creator.as_ref().is_some_and(|identity| judge(identity, expected).is_ok());
    match (found.accepted, &creator) {
        // Without permission to see other users' descriptors, the kernel's record of the creator has to do.
        (_, Some(_)) if fits && !rustix::process::geteuid().is_root() => Ok(()),
        (Some(accepted), Some(identity)) if fits && holds(identity, accepted) => {
            remember(expected, &[Known::from(identity)]);
            Ok(())
        }
        (Some(accepted), _) => checked(accepted, expected),
        (None, _) if !found.is_here => Err(NotTied::Never(Untied::new(UntiedClass::Elsewhere))),
        (None, Some(identity)) if !fits => Err(NotTied::Never(denied(identity, expected))),
        // The creator may have passed the listener on, have ended, or be the system's manager: the accepting
        // process decides.
        (None, _) => Err(NotTied::Waiting),
    }
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
    known.retain(|one| start_time(one.pid) == Some(one.start));
    known.iter().any(|one| {
        let mut pids = vec![one.pid];
        pids.extend(peer::children(one.pid));
        let holder = peer::holder_among(&pids, accepted.inode).and_then(Identity::of);
        holder.is_some_and(|identity| {
            judge(&identity, expected).is_ok()
                && accepted.uid.is_none_or(|uid| uid == 0 || uid == identity.uid || uid == one.uid)
                && peer::holder_among(&[identity.pid], accepted.inode).is_some()
                && identity.is_still_there()
        })
    })
}

/// Whether a process of this user that is still running was the peer of an earlier connection.
fn was_tied_to(uid: u32, expected: &Expected) -> bool {
    let tied = expected.tied.lock().map(|tied| tied.clone()).unwrap_or_default();
    tied.iter().any(|known| known.uid == uid && start_time(known.pid) == Some(known.start))
}

fn remember(expected: &Expected, fitting: &[Known]) {
    if let Ok(mut tied) = expected.tied.lock() {
        // A server's workers come and go; their parent stays.
        let parents = fitting.iter().filter_map(|one| Identity::of(parent(one.pid)?)).collect::<Vec<_>>();
        let parents =
            parents.iter().filter(|one| one.pid > 1 && judge(one, expected).is_ok()).map(Known::from);
        *tied = fitting.iter().copied().chain(parents).collect();
        tied.truncate(8);
    }
}

fn fits_account(uid: u32, expected: &Expected) -> bool {
    expected.accounts.contains(&uid) || expected.processes.iter().any(|known| known.uid == uid)
}

fn judge(identity: &Identity, expected: &Expected) -> Result<(), Untied> {
    if expected.processes.iter().any(|known| is_of(identity, known)) {
        return Ok(());
    }
    if expected.others.iter().any(|other| is_other(identity, other)) {
        return Err(Untied::new(UntiedClass::OtherProcess).with(in_words(identity)));
    }
    let own = Identity::of(std::process::id()).filter(|_| expected.started_by_us);
    let fits = own.is_some_and(|own| descends(identity.pid, &own))
        || is_callers_own(identity, expected)
        || (fits_account_of(identity, expected) || fits_unit(identity, expected))
            && is_of_this_machine(identity)
            && runs_trusted_file(identity);
    if fits { Ok(()) } else { Err(denied(identity, expected)) }
}

/// For a user other than root, a process of his own is not a risk, in whatever namespaces: it may be a rootless
/// container.
fn is_callers_own(identity: &Identity, expected: &Expected) -> bool {
    let own = rustix::process::geteuid();
    !own.is_root() && identity.uid == own.as_raw() && expected.is_account(identity.uid)
}

fn fits_account_of(identity: &Identity, expected: &Expected) -> bool {
    expected.accounts.contains(&identity.uid)
}

/// Whether a process is one of another service, or a descendant of it.
fn is_other(identity: &Identity, other: &Known) -> bool {
    (identity.pid, identity.start) == (other.pid, other.start)
        || Identity::of(other.pid)
            .filter(|found| found.start == other.start)
            .is_some_and(|found| descends(identity.pid, &found))
}

/// Whether a process is the known one, a descendant of the same user or file, or an ancestor with the same file.
fn is_of(identity: &Identity, known: &Known) -> bool {
    if (identity.pid, identity.start) == (known.pid, known.start) {
        return true;
    }
    let Some(main) = Identity::of(known.pid).filter(|main| main.start == known.start) else { return false };
    let same_file = || {
        let file = |one: &Identity| one.executable.as_ref().map(|file| file.file);
        file(&main).is_some() && file(&main) == file(identity)
    };
    let same_kind = main.uid == identity.uid || same_file();
    same_kind && descends(identity.pid, &main) || same_file() && descends(main.pid, identity)
}

/// Whether a process is a descendant of another.
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

/// The system's manager runs its units below `system.slice`; a user's own units are below `user.slice`.
fn fits_unit(identity: &Identity, expected: &Expected) -> bool {
    if expected.units.is_empty() {
        return false;
    }
    control_groups(identity.pid).lines().any(|line| {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        let Some(unit) = path.strip_prefix("/system.slice/") else { return false };
        // `postgresql@16-main.service` is in a slice of its own: system-postgresql.slice.
        let unit = unit.split('/').find(|part| part.ends_with(".service")).unwrap_or_default();
        let name = unit.trim_end_matches(".service").split('@').next().unwrap_or_default();
        expected.units.iter().any(|expected| expected == name)
    })
}

fn control_groups(pid: u32) -> String {
    let bytes = open::proc_file(&format!("/proc/{pid}/cgroup"), 64 * 1024).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a process is in no container. Namespaces that we may not read are not compared.
fn is_of_this_machine(identity: &Identity) -> bool {
    let seen = |all: Namespaces| (all.user, all.pid);
    let is_ours = match (identity.namespaces, Namespaces::of(std::process::id())) {
        (Some(theirs), Some(ours)) => seen(theirs) == seen(ours),
        _ => true,
    };
    let own = samehost_system::proc::container_of(std::process::id());
    is_ours && samehost_system::proc::container_of(identity.pid) == own
}

/// The executable is visible only to a user who may look at the process.
fn runs_trusted_file(identity: &Identity) -> bool {
    identity.executable.is_none() && !rustix::process::geteuid().is_root() || identity.runs_trusted_file()
}

fn denied(identity: &Identity, expected: &Expected) -> Untied {
    let class = if !is_of_this_machine(identity) {
        UntiedClass::Container
    } else if fits_account_of(identity, expected) && !runs_trusted_file(identity) {
        UntiedClass::ForeignFile
    } else if expected.processes.is_empty() {
        UntiedClass::OtherAccount
    } else {
        UntiedClass::OtherProcess
    };
    Untied::new(class).with(in_words(identity))
}

fn in_words(identity: &Identity) -> String {
    let file = identity.executable.as_ref().map_or_else(String::new, |file| {
        format!(", {} of uid {}", file.path.display().to_string().escape_debug(), file.owner)
    });
    format!("process {}, uid {}{file}", identity.pid, identity.uid)
}
