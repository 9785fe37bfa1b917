//! Finds which process has which socket open, from `/proc/PID/fd`, with as few system calls as possible. A
//! process that ends between two reads is normal; processes that may not be read are counted.
//!
//! Asks a TCP socket of another process whether it sends small pieces at once: no listing of the kernel says so. The
//! descriptor is duplicated (`pidfd_getfd`, which asks for the rights of ptrace), asked for two options, and closed.
//!
//! The process may put another file in the socket's place meanwhile. So the duplicate's inode is compared, and nothing but
//! getsockopt(2) is done with it. Still, closing it may wait for ever: for a file of its own FUSE file system, or a socket
//! that lingers. Call this in a process that nobody has to wait for.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, openat, readlinkat_raw, statat};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::interrupt;
use crate::refusal::{is_own_proc, is_proc};
use crate::threads::all as all_of;

/// Most threads; more would only wait for the kernel's locks.
const MOST_THREADS: usize = 4;

/// Who has which socket open, of the processes that were looked at.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Inode of a socket, and a process that has it open; sorted, each pair once.
    pub holders: Vec<(u64, u32)>,
    /// Inode of a network namespace, and a process in it; one entry for each process, ascending.
    pub namespaces: Vec<(u64, u32)>,
    /// The processes that may not be looked at.
    pub refused: Vec<u32>,
}

impl Descriptors {
    /// The processes that have a socket open, ascending.
    pub fn holders_of(&self, inode: u64) -> impl Iterator<Item = u32> + '_ {
        let from = self.holders.partition_point(|(other, _)| *other < inode);
        self.holders[from..].iter().take_while(move |(other, _)| *other == inode).map(|(_, pid)| *pid)
    }

    fn absorb(&mut self, other: Descriptors) {
        self.holders.extend(other.holders);
        self.namespaces.extend(other.namespaces);
        self.refused.extend(other.refused);
    }
}

/// The directory `/proc`. One that is empty, and one of a PID namespace that this process is not in, can be opened as well, and
/// would look like a machine without processes.
///
/// # Errors
/// For [`crate::Refusal`], as [`crate::Asked::Processes`].
pub fn proc() -> Result<OwnedFd, Errno> {
    if !is_proc() {
        return Err(Errno::NOENT);
    }
    if !is_own_proc() {
        return Err(Errno::SRCH);
    }
    directory(CWD, "/proc")
}

fn directory(at: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

pub fn pids(proc: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let directory = directory(proc, ".")?;
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut pids = Vec::new();
    while let Some(entry) = entries.next() {
        pids.extend(number::<u32>(entry?.file_name().to_bytes()));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// Looks through the descriptors of these processes, with a few threads. An interrupt ends it early, with what was found so
/// far.
pub fn walk(proc: BorrowedFd<'_>, pids: &[u32]) -> Descriptors {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Descriptors::default());
    let work = || {
        let mut found = Descriptors::default();
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        while !interrupt::is_requested() {
            let Some(pid) = pids.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            process(proc, *pid, &mut buffer, &mut found);
        }
        if let Ok(mut all) = all.lock() {
            all.absorb(found);
        }
    };
    all_of(std::iter::repeat_n(work, threads.min(pids.len()).max(1)));
    let mut found = all.into_inner().unwrap_or_default();
    found.holders.sort_unstable();
    found.holders.dedup();
    found.namespaces.sort_unstable_by_key(|(_, pid)| *pid);
    found
}

fn process(proc: BorrowedFd<'_>, pid: u32, buffer: &mut [MaybeUninit<u8>], found: &mut Descriptors) {
    if let Ok(stat) = statat(proc, format!("{pid}/ns/net"), AtFlags::empty()) {
        found.namespaces.push((stat.st_ino, pid));
    }
    let listed = sockets(proc, &format!("{pid}/fd"), buffer, |_, inode| found.holders.push((inode, pid)));
    if let Err(Errno::ACCESS | Errno::PERM) = listed {
        found.refused.push(pid);
    }
}

/// Passes on the number and the inode of each descriptor of a socket in a process' directory of descriptors.
fn sockets(
    at: BorrowedFd<'_>,
    path: &str,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(&CStr, u64),
) -> Result<(), Errno> {
    let directory = directory(at, path)?;
    let mut entries = RawDir::new(directory.as_fd(), buffer);
    while let Some(Ok(entry)) = entries.next() {
        if let Some(inode) = socket_inode(directory.as_fd(), entry.file_name())? {
            each(entry.file_name(), inode);
        }
    }
    Ok(())
}

/// The inode of a socket; `None` of what is none, or has been closed. A root without CAP_SYS_PTRACE may list the descriptors of
/// others, and is refused what they are.
fn socket_inode(directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<u64>, Errno> {
    if name.to_bytes().starts_with(b".") {
        return Ok(None);
    }
    let mut target = [0u8; 40];
    match readlinkat_raw(directory, name, &mut target[..]) {
        Ok(length) => Ok(target.get(..length).and_then(inode_of)),
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
        Err(_) => Ok(None),
    }
}

/// The number of the descriptor by which a process has a socket open; `None` if that is not visible to us.
pub fn descriptor_of(pid: u32, inode: u64) -> Option<i32> {
    let mut found = None;
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    sockets(CWD, &format!("/proc/{pid}/fd"), &mut buffer, |name, other| {
        if other == inode {
            found = number(name.to_bytes());
        }
    })
    .ok()?;
    found
}

/// Inodes of the sockets that a process has open; empty if they are not visible to us.
pub fn sockets_of(pid: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let _ = sockets(CWD, &format!("/proc/{pid}/fd"), &mut buffer, |_, inode| found.push(inode));
    found
}

/// The inode in the target of a link: `socket:[4711]`.
pub fn inode_of(target: &[u8]) -> Option<u64> {
    number(target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

/// A decimal number; `None` with a sign, which `parse` would take.
fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    bytes.first().filter(|byte| byte.is_ascii_digit())?;
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Passes on whether small pieces are sent at once (`TCP_NODELAY`) by the socket with this inode, while its duplicate is
/// still open. `None` where it may not be asked, is gone, or waits on purpose (`TCP_CORK`).
pub fn sends_at_once(pid: u32, inode: u64, report: impl FnOnce(Option<bool>)) {
    let socket = duplicate(pid, inode);
    report(match &socket {
        Some(socket) => nodelay(socket, inode),
        None => None,
    });
}

fn nodelay(socket: &OwnedFd, inode: u64) -> Option<bool> {
    let stat = fstat(socket).ok()?;
    let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_ino == inode;
    if !is_it || sockopt::tcp_cork(socket).ok()? {
        return None;
    }
    sockopt::tcp_nodelay(socket).ok()
}

/// A descriptor of our own of another process' socket.
fn duplicate(pid: u32, inode: u64) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, descriptor_of(pid, inode)?, PidfdGetfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_sockets_count() {
        assert_eq!(inode_of(b"socket:[4711]"), Some(4711));
        for other in [&b"pipe:[4711]"[..], b"/tmp/socket:[4711]", b"socket:[47", b"socket:[]", b"socket:[+1]"]
        {
            assert_eq!(inode_of(other), None);
        }
    }

    #[test]
    fn finds_who_holds_a_socket() {
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let inode = fstat(&socket).unwrap().st_ino;
        let proc = proc().unwrap();
        let pids = pids(proc.as_fd()).unwrap();
        let me = std::process::id();
        assert!(pids.contains(&me));
        let found = walk(proc.as_fd(), &pids);
        assert!(found.holders_of(inode).any(|pid| pid == me));
        assert!(sockets_of(me).contains(&inode) && sockets_of(u32::MAX).is_empty());
        assert!(found.namespaces.iter().any(|(_, pid)| *pid == me));
    }

    fn asked(inode: u64) -> Option<bool> {
        let mut answer = None;
        sends_at_once(std::process::id(), inode, |told| answer = told);
        answer
    }

    #[test]
    fn a_socket_is_asked_for_its_option_and_nothing_else_is() {
        fn inode(fd: &dyn AsFd) -> u64 {
            fstat(fd.as_fd()).unwrap().st_ino
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(asked(inode(&stream)), Some(false));
        stream.set_nodelay(true).unwrap();
        assert_eq!(asked(inode(&stream)), Some(true));
        sockopt::set_tcp_cork(&stream, true).unwrap();
        assert_eq!(asked(inode(&stream)), None, "it waits on purpose");
        let (unix, _other) = UnixStream::pair().unwrap();
        assert_eq!(asked(inode(&unix)), None, "not TCP");
        assert_eq!(asked(u64::MAX), None, "no such socket");
    }
}
