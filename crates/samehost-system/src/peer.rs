//! The peer of a connection, according to the kernel: for a Unix socket the creator of its listener; for both
//! families the accepted socket, its user, and the processes that have it open. Does not judge the peer.

use std::fs::File;
use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{AddressFamily, getpeername, getsockname, sockopt::socket_domain};
use samehost_model::scan::Socket;

use crate::diag::{Diag, address};
use crate::namespaces::{self, Door};
use crate::proc::{descriptors, status};

/// Process and user that the kernel recorded when a socket began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Pid as seen from here; 0 if it is not visible here.
    pub pid: u32,
    /// The effective one.
    pub uid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub inode: u64,
    /// Of the process that accepted it; `None` if it is not visible.
    pub uid: Option<u32>,
}

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
    pub some_hidden: bool,
}

impl Peer {
    /// The other end of a connected stream socket. `network` is the network namespace of the socket; `None`
    /// for that of this program. Nothing is waited for: a connection may not be accepted yet.
    ///
    /// # Errors
    /// When the kernel does not list sockets, or the namespace may not be entered.
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

/// Who made the listener that took a connection of a Unix socket.
///
/// # Errors
/// getsockopt(2)'s.
pub fn creator(socket: BorrowedFd<'_>) -> io::Result<Creator> {
    let credentials = getsockopt(&socket, PeerCredentials)?;
    Ok(Creator { pid: u32::try_from(credentials.pid()).unwrap_or(0), uid: credentials.uid() })
}

fn unix(socket: BorrowedFd<'_>, network: Option<&File>) -> io::Result<Peer> {
    let creator = creator(socket)?;
    let own = fstat(socket)?.st_ino;
    let there = within(network, || Diag::open()?.unix(own))?.and_then(|socket| socket.peer_inode);
    let accepted = there.map(|inode| Accepted { inode, uid: uid_of_unix(inode, network) });
    Ok(Peer { creator: Some(creator), accepted, is_here: true })
}

/// The other end may be in another network namespace than this one, because a socket path leads out of it: then it is looked
/// for in that of this program.
fn uid_of_unix(inode: u64, network: Option<&File>) -> Option<u32> {
    for network in [network, None] {
        if let Ok(Some(socket)) = within(network, || Diag::open()?.unix(inode)) {
            return socket.uid;
        }
    }
    None
}

fn tcp(socket: BorrowedFd<'_>, network: Option<&File>) -> io::Result<Peer> {
    let here = getsockname(socket).ok().and_then(address);
    let there = getpeername(socket).ok().flatten().and_then(address);
    let (Some(here), Some(there)) = (here, there) else {
        return Ok(Peer { is_here: true, ..Peer::default() });
    };
    let mut found = within(network, || Diag::open()?.tcp(there, here))?;
    if found.is_none() && !there.ip().to_canonical().is_loopback() {
        found = in_other_namespaces(there, here);
    }
    let accepted = match &found {
        // An inode of 0: nobody has accepted it yet.
        Some(socket) if socket.inode != 0 => Some(Accepted { inode: socket.inode, uid: socket.uid }),
        _ => None,
    };
    Ok(Peer { creator: None, accepted, is_here: found.is_some() })
}

/// An address other than loopback may belong to another namespace: a container's. If two namespaces claim it, that proves
/// nothing.
fn in_other_namespaces(there: SocketAddr, here: SocketAddr) -> Option<Socket> {
    let mut found = None;
    for door in other_doors() {
        let Ok(Some(socket)) = door.inside(|| Diag::open()?.tcp(there, here)) else { continue };
        if found.is_some() {
            return None;
        }
        found = Some(socket);
    }
    found
}

fn other_doors() -> Vec<Door> {
    let Some(found) = walk(None) else { return Vec::new() };
    namespaces::others(namespaces::own_inode(), &found.namespaces)
}

/// Scans all processes, or the given ones.
fn walk(pids: Option<&[u32]>) -> Option<descriptors::Descriptors> {
    let proc = descriptors::proc().ok()?;
    let all = match pids {
        Some(pids) => pids.to_vec(),
        None => descriptors::pids(proc.as_fd()).ok()?,
    };
    Some(descriptors::walk(proc.as_fd(), &all))
}

#[must_use]
pub fn holders(inode: u64) -> Holders {
    let Some(found) = walk(None) else { return Holders { pids: Vec::new(), some_hidden: true } };
    Holders { pids: found.holders_of(inode).collect(), some_hidden: !found.refused.is_empty() }
}

/// One of these processes that has the socket with this inode open; much cheaper than [`holders`].
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

/// One reading of `/proc/PID/task/TID/children` of all threads.
fn listed_children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = format!("{}/children", task.path().display());
        let Ok(list) = crate::open::proc_file(&list, 1 << 20) else { continue };
        for word in String::from_utf8_lossy(&list).split_whitespace() {
            children.extend(word.parse::<u32>());
        }
    }
    children
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
