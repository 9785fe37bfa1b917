//! The peer of a connection, according to the kernel: for a Unix socket the creator of its listener; for both
//! families the accepted socket, its user, and the processes that have it open. Does not judge the peer.

use std::fs::File;
use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, getpeername, getsockname, sockopt::socket_domain};
use samehost_model::scan::Socket;

use crate::diag::Diag;
use crate::namespaces::{self, Door};
use crate::proc::{descriptors, status};

/// Process and user that the kernel recorded when a socket began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Pid as seen from here; 0 if it is not visible here.
    pub pid: u32,
    /// Effective uid.
    pub uid: u32,
}

/// The accepted socket at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub inode: u64,
    /// Uid of the process that accepted it; `None` if it is not visible.
    pub uid: Option<u32>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Creator of the listener (`SO_PEERCRED`); `None` for TCP.
    pub creator: Option<Creator>,
    /// The accepted socket; `None` until it is accepted, and if it is in no network namespace of this machine
    /// that we may look at.
    pub accepted: Option<Accepted>,
    /// Whether the other end is on this machine, accepted or not.
    pub is_here: bool,
}

/// The processes that have a socket open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Those that we may look at, ascending.
    pub pids: Vec<u32>,
    /// Whether there are processes that we may not look at.
    pub some_hidden: bool,
}

impl Peer {
    /// The other end of a connected stream socket. `network` is the network namespace of the socket; `None`
    /// for that of this program.
    pub fn of(socket: BorrowedFd<'_>, network: Option<&File>) -> io::Result<Self> {
        if socket_domain(socket)? == AddressFamily::UNIX {
            unix(socket, network)
        } else {
            tcp(socket, network)
        }
    }
}

/// Runs `work` in a namespace, or in that of this program if none is given.
fn within<T: Send>(
    network: Option<&File>,
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    match network {
        Some(network) => namespaces::inside_of(network, work),
        None => work(),
    }
}

fn unix(socket: BorrowedFd<'_>, network: Option<&File>) -> io::Result<Peer> {
    let credentials = getsockopt(&socket, PeerCredentials)?;
    let creator = Creator { pid: u32::try_from(credentials.pid()).unwrap_or(0), uid: credentials.uid() };
    let own = fstat(socket)?.st_ino;
    let there = within(network, || Diag::open()?.unix(own))?.and_then(|socket| socket.peer_inode);
    // The other end may be in another network namespace than this one, because a socket path leads out of it.
    let uid_in = |network| within(network, || Diag::open()?.unix(there.unwrap_or(0))).ok().flatten();
    let accepted = there.map(|inode| Accepted {
        inode,
        uid: uid_in(network).or_else(|| uid_in(None)).and_then(|socket: Socket| socket.uid),
    });
    Ok(Peer { creator: Some(creator), accepted, is_here: true })
}

fn tcp(socket: BorrowedFd<'_>, network: Option<&File>) -> io::Result<Peer> {
    let here = getsockname(socket).ok().and_then(address);
    let there = getpeername(socket).ok().flatten().and_then(address);
    let (Some(here), Some(there)) = (here, there) else {
        return Ok(Peer { is_here: true, ..Peer::default() });
    };
    let find = || Diag::open()?.tcp(there, here);
    let mut found = within(network, find)?;
    // An address other than loopback may belong to another namespace: a container's. If two namespaces claim
    // it, that proves nothing.
    if found.is_none() && !there.ip().to_canonical().is_loopback() {
        let mut elsewhere = other_doors().into_iter().filter_map(|door| door.inside(find).ok().flatten());
        found = elsewhere.next();
        if elsewhere.next().is_some() {
            found = None;
        }
    }
    let accepted = found.as_ref().filter(|socket| socket.inode != 0);
    Ok(Peer {
        creator: None,
        accepted: accepted.map(|socket| Accepted { inode: socket.inode, uid: socket.uid }),
        is_here: found.is_some(),
    })
}

fn address(any: rustix::net::SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(any).ok()
}

fn other_doors() -> Vec<Door> {
    let Some(found) = walk(None) else { return Vec::new() };
    namespaces::others(namespaces::own_inode(), &found.namespaces)
}

/// Scans all processes, or the given ones.
fn walk(pids: Option<&[u32]>) -> Option<descriptors::Descriptors> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, c"/proc", flags, Mode::empty()).ok()?;
    let all = match pids {
        Some(pids) => pids.to_vec(),
        None => descriptors::pids(proc.as_fd()).ok()?,
    };
    Some(descriptors::walk(proc.as_fd(), &all))
}

/// The processes that have the socket with this inode open.
#[must_use]
pub fn holders(inode: u64) -> Holders {
    let Some(found) = walk(None) else { return Holders { pids: Vec::new(), some_hidden: true } };
    Holders { pids: found.holders_of(inode).collect(), some_hidden: found.refused > 0 }
}

/// One of these processes that has the socket with this inode open.
#[must_use]
pub fn holder_among(pids: &[u32], inode: u64) -> Option<u32> {
    walk(Some(pids))?.holders_of(inode).next()
}

/// The children of all threads of a process, if the kernel lists them. Its list may leave some out while others end
/// (proc(5)), so it is read until two readings agree, or at most `MOST_READS` times more.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    const MOST_READS: u32 = 8;
    let mut list = listed_children(pid);
    for _ in 0..MOST_READS {
        let again = listed_children(pid);
        if again == list {
            break;
        }
        list = again;
    }
    list
}

/// The process and all its descendants, itself first; empty if it has ended.
#[must_use]
pub fn family(root: u32) -> Vec<u32> {
    if status::read_stat(root).is_none() {
        return Vec::new();
    }
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        family.extend(children(family[next]));
        next += 1;
    }
    family
}

/// One reading of `/proc/PID/task/TID/children`.
fn listed_children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| {
        let path = task.path().join("children");
        crate::open::proc_file(path.to_str()?, 1 << 20).ok()
    });
    lists
        .flat_map(|list| {
            let text = String::from_utf8_lossy(&list).into_owned();
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_tcp_peer_is_found_once_it_is_accepted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let waiting = Peer::of(client.as_fd(), None).unwrap();
        assert_eq!((waiting.creator, waiting.accepted, waiting.is_here), (None, None, true));
        let server = listener.accept().unwrap().0;
        let accepted = Peer::of(client.as_fd(), None).unwrap().accepted.unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(accepted, Accepted { inode: fstat(&server).unwrap().st_ino, uid: Some(uid) });
        let own = std::process::id();
        assert!(holders(accepted.inode).pids.contains(&own));
        assert_eq!(holder_among(&[own], accepted.inode), Some(own));
        assert_eq!(holder_among(&[1], accepted.inode), None);
    }

    #[test]
    fn a_unix_peer_is_who_made_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let own = Creator { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        let waiting = Peer::of(client.as_fd(), None).unwrap();
        assert_eq!((waiting.creator, waiting.accepted), (Some(own), None));
        let server = listener.accept().unwrap().0;
        let accepted = Peer::of(client.as_fd(), None).unwrap().accepted.unwrap();
        assert_eq!(accepted, Accepted { inode: fstat(&server).unwrap().st_ino, uid: Some(own.uid) });
    }

    #[test]
    fn this_process_is_its_own_family() {
        assert_eq!(family(std::process::id())[0], std::process::id());
        assert!(family(u32::MAX).is_empty());
    }

    #[test]
    fn children_are_listed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // A kernel without these lists has none for any process.
        let has_lists = std::path::Path::new("/proc/thread-self/children").exists();
        assert_eq!(children(std::process::id()).contains(&child.id()), has_lists);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
