//! A call of `connect`: what is mapped is connected to its Unix socket here, and put in place of the program's TCP socket.
//! Everything else goes on as it was; so does what cannot be exchanged without the program noticing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, socket_with, sockopt,
};
use rustix::thread::sched_yield;
use samehost_model::Endpoint;
use samehost_seccomp::{Answer, Call, Listener, option, set_option};

use super::address;
use super::answers;
use super::maps::{Map, Maps};
use super::replaced::{Replaced, Sockets};
use super::rights::Rights;
use super::tally::{Reason, Tally};
use super::thread::{Socket, Thread, memory_of};

/// Options of every socket that change what reads, writes and the end do, and their usual values, read as one number.
const OF_SOCKETS: &[(i32, u128)] = &[
    (libc::SO_KEEPALIVE, 0),
    (libc::SO_LINGER, 0),
    (libc::SO_OOBINLINE, 0),
    (libc::SO_RCVLOWAT, u128::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
    (libc::SO_RCVTIMEO, 0),
    (libc::SO_SNDTIMEO, 0),
];
/// `SOCK_SNDBUF_LOCK` and `SOCK_RCVBUF_LOCK`: the size of a buffer was chosen by the program.
const SEND_BUFFER: i32 = 1;
const RECEIVE_BUFFER: i32 = 2;

/// What decides on connections.
pub struct Connects {
    pub maps: Maps,
    /// What a thread must have, so that nobody gets more than it had.
    pub rights: Rights,
    /// Whether a process of the program has restricted itself in a way that cannot be seen from here.
    pub is_restricted: bool,
    /// Whether the program has set an option of TCP or IP on any socket that was not replaced.
    pub sets_options: bool,
    pub sockets: Sockets,
    pub tally: Tally,
}

/// What is to be done with a connection to a mapped port.
enum Decision {
    /// No TCP socket, or one that the kernel has to answer for.
    NotOurs,
    /// It was replaced before.
    Connected(Answer),
    Stay(Reason),
}

impl Connects {
    /// The answer to a call of `connect`; None where it has been given. What is not ours goes on.
    pub fn answer(&mut self, listener: &Listener, call: &Call) -> Option<Answer> {
        let Some((thread, to, map)) = self.mapped(listener, call) else { return Some(Answer::GoOn) };
        match self.decide(listener, call, &thread, to, &map) {
            Ok(()) => None,
            Err(Decision::Connected(answer)) => Some(answer),
            Err(Decision::NotOurs) => Some(Answer::GoOn),
            Err(Decision::Stay(reason)) => {
                self.tally.fell_back(&thread, to, &map, &reason);
                Some(Answer::GoOn)
            }
        }
    }

    /// Who connects, where to, and the map of that.
    fn mapped(&self, listener: &Listener, call: &Call) -> Option<(Thread, SocketAddr, Map)> {
        let length = (call.arguments[2] as usize & 0xffff_ffff).min(address::LONGEST);
        let bytes = memory_of(call.thread, call.arguments[1], length)?;
        let to = address::parse(&bytes)?;
        let map = self.maps.of(to)?.clone();
        let thread = Thread::open(call.thread).ok()?;
        // What was read, and what was opened, is the caller's only if it still waits.
        listener.is_waiting(call.id).then_some((thread, to, map))
    }

    fn decide(
        &mut self,
        listener: &Listener,
        call: &Call,
        thread: &Thread,
        to: SocketAddr,
        map: &Map,
    ) -> Result<(), Decision> {
        let not_visible = |error| Decision::Stay(Reason::NotVisible(error));
        let descriptor = call.arguments[0] as i32;
        let is_waiting = || listener.is_waiting(call.id);
        let found = thread.socket(descriptor, is_waiting).map_err(not_visible)?;
        let socket = found.ok_or(Decision::NotOurs)?;
        let old = socket.cookie().map_err(not_visible)?;
        if let Some(before) = self.sockets.get(old) {
            return Err(Decision::Connected(again(before)));
        }
        self.may_be_replaced(thread, descriptor, &socket)?;
        let unix = connected(&map.socket).map_err(|errno| Decision::Stay(Reason::NoAnswer(errno.into())))?;
        let not_replaced = |error| Decision::Stay(Reason::NotReplaced(error));
        like(&unix, &socket).map_err(not_replaced)?;
        let cookie = sockopt::socket_cookie(&unix).map_err(|errno| not_replaced(errno.into()))?;
        let inode = rustix::fs::fstat(&unix).map_err(|errno| not_replaced(errno.into()))?.st_ino;
        let replaced = Replaced {
            peer: to,
            local: address::local_of(to, cookie),
            options: if self.sets_options { answers::options_of(&socket) } else { Vec::new() },
            is_known: true,
        };
        match listener.replace(call.id, descriptor as u32, unix.as_fd(), socket.closes_on_exec) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(not_replaced(error)),
        }
        self.sockets.add(cookie, inode, replaced);
        self.tally.connected(thread, to, map);
        // Until it is closed here, the server would not see the program close it.
        drop(unix);
        // A signal may still come first; then the program asks again.
        if !listener.answer(call.id, Answer::Value(0)).unwrap_or(false)
            && let Some(replaced) = self.sockets.get(cookie)
        {
            replaced.is_known = false;
        }
        // On one CPU the program goes on now, and not after the old socket is closed and the next call is waited for.
        sched_yield();
        Ok(())
    }

    /// Whether the exchange is one that the program cannot notice, and that gives it nothing.
    fn may_be_replaced(&self, thread: &Thread, descriptor: i32, socket: &Socket) -> Result<(), Decision> {
        if !socket.is_tcp() {
            return Err(Decision::NotOurs);
        }
        let stay = |reason| Err(Decision::Stay(reason));
        if self.is_restricted {
            return stay(Reason::Landlock);
        }
        match self.rights.of_another(thread) {
            Err(error) => return stay(Reason::NotVisible(error)),
            Ok(its) => {
                if let Some(difference) = self.rights.difference(&its) {
                    return stay(Reason::OtherRights(difference));
                }
            }
        }
        if socket.signals {
            return stay(Reason::Signals);
        }
        if local(socket).is_some_and(|local| local.port() != 0) {
            // Connected or listening sockets have a port too: what the kernel says to those is right.
            return if rustix::net::getpeername(&socket.own).is_ok() {
                Err(Decision::NotOurs)
            } else {
                stay(Reason::Bound)
            };
        }
        match thread.kept(descriptor, socket.inode) {
            Err(error) => stay(Reason::NotVisible(error)),
            Ok(Some(kept)) => stay(Reason::Kept(kept)),
            Ok(None) => Ok(()),
        }
    }
}

/// The answer to a further `connect`, as TCP gives it.
fn again(before: &mut Replaced) -> Answer {
    if std::mem::replace(&mut before.is_known, true) {
        Answer::Error(libc::EISCONN)
    } else {
        Answer::Value(0)
    }
}

fn local(socket: &Socket) -> Option<SocketAddr> {
    SocketAddr::try_from(getsockname(&socket.own).ok()?).ok()
}

/// A connection to a Unix socket. It does not wait: a server whose queue is full gets this one over TCP.
fn connected(endpoint: &Endpoint) -> Result<OwnedFd, Errno> {
    let address = match endpoint {
        Endpoint::Unix(path) => SocketAddrUnix::new(path.as_path())?,
        Endpoint::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        _ => return Err(Errno::AFNOSUPPORT),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket)
}

/// Gives the new socket what the old one has and a Unix socket can have.
fn like(new: &OwnedFd, old: &Socket) -> io::Result<()> {
    if !old.never_waits {
        fcntl_setfl(new, OFlags::empty())?;
    }
    for (name, usual) in OF_SOCKETS {
        let mut value = [0; 16];
        let length = option(old.own.as_fd(), libc::SOL_SOCKET, *name, &mut value)?;
        if value != usual.to_ne_bytes() {
            set_option(new.as_fd(), libc::SOL_SOCKET, *name, &value[..length])?;
        }
    }
    // Those that the program chose; the kernel's own differ between the families. Not on kernels before 5.14.
    let chosen = number(old, libc::SO_BUF_LOCK).unwrap_or_default();
    for (bit, name) in [(SEND_BUFFER, libc::SO_SNDBUF), (RECEIVE_BUFFER, libc::SO_RCVBUF)] {
        if chosen & bit != 0 {
            // The kernel doubles what is set, and tells the double.
            let half = number(old, name)? / 2;
            set_option(new.as_fd(), libc::SOL_SOCKET, name, &half.to_ne_bytes())?;
        }
    }
    Ok(())
}

fn number(socket: &Socket, name: i32) -> io::Result<i32> {
    let mut value = [0; 4];
    option(socket.own.as_fd(), libc::SOL_SOCKET, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}
