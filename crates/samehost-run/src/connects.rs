//! A call of `connect`: what is mapped is connected to its Unix socket here, and put in place of the program's TCP socket.
//! Everything else goes on as it was; so does what cannot be exchanged without the program noticing.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, socket_with, sockopt};
use rustix::thread::sched_yield;
use samehost_model::Endpoint;
use samehost_seccomp::{
    Answer, Call, Listener, SO_BINDTOIFINDEX, SO_BUF_LOCK, SO_NETNS_COOKIE, option, set_option,
};

use super::coin::Way;
use super::doors::{Doors, Watched, connected};
use super::maps::{Map, Maps};
use super::replaced::{LONGEST, Replaced, Sockets, local_of, options_of, parse};
use super::rights::Rights;
use super::tally::{Kept, Reason, Tally};
use super::thread::{Socket, Thread, Threads, memory_of};
use super::trial::{Draw, Trial, Tried};
use super::watchers::{Epolls, Remains};

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

/// Options that Unix sockets do not have, or that lead a connection elsewhere; a socket that has one
/// stays with TCP. The program does not notice the exchange, or it is not made. For the same reason a
/// socket in an epoll set, a duplicate in the process, a bound socket and one with O_ASYNC stay with TCP.
/// Registering the new socket in the epoll sets of the old one is possible from outside, and was rejected
/// as a second place where order matters (docs/decisions/0099).
const OF_TCP_ALONE: &[(i32, &str)] =
    &[(libc::SO_MARK, "SO_MARK"), (SO_BINDTOIFINDEX, "SO_BINDTODEVICE"), (libc::SO_ZEROCOPY, "SO_ZEROCOPY")];
/// The first byte of `struct tcp_info` for a socket that neither connects nor listens.
const CLOSED: u8 = 7;

/// Most sockets of [`Connects::tried`]; a program has few that it tries again.
const MOST_TRIED: usize = 1024;

pub struct Connects {
    pub maps: Maps,
    pub threads: Threads,
    /// What a thread must have, so that nobody gets more than it had.
    pub rights: Rights,
    /// Whether a thread of the program may have other groups or filters than the program was started with.
    pub rights_may_differ: bool,
    /// The network namespace that a socket must be of (SO_NETNS_COOKIE); not on kernels before 5.14.
    network: Option<[u8; 8]>,
    /// That of this process, for threads.
    network_of_threads: Vec<u8>,
    pub epolls: Epolls,
    remains: Remains,
    /// Sockets that went on to TCP because nobody answered. One that was refused there too keeps a port, as if it were bound.
    tried: HashSet<u64>,
    /// Whether a process of the program has restricted itself in a way that cannot be seen from here (Landlock).
    pub is_restricted: bool,
    /// Whether the program has set an option of TCP or IP on any socket that was not replaced.
    pub sets_options: bool,
    pub sockets: Sockets,
    pub tally: Tally,
    pub trial: Option<Trial>,
    /// Connections after a trial go over TCP, as without `run`: what it has found is for somebody to read first.
    was_tried: bool,
    /// Those of `maps`, without a trial.
    doors: Vec<Watched>,
    /// Sockets that another server has taken over, in words that nobody has said yet.
    pub taken_over: Vec<String>,
}

struct Asked<'a> {
    call: &'a Call,
    thread: &'a Thread,
    to: SocketAddr,
    map: &'a Map,
}

impl Asked<'_> {
    fn descriptor(&self) -> i32 {
        self.call.arguments[0] as i32
    }
}

/// Why a connection to a mapped port is not exchanged.
enum Decision {
    /// No TCP socket, or one that the kernel has to answer for.
    NotOurs,
    /// The socket was replaced before.
    Connected(Answer),
    Stay(Reason),
}

impl Connects {
    pub fn new(maps: Maps, threads: Threads, own: &Thread, tally: Tally) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok(Connects {
            maps,
            threads,
            // The program has one filter more.
            rights: Rights::of(own)?.with_filters(1),
            rights_may_differ: false,
            network: network_of(&socket),
            network_of_threads: own.link("ns/net")?,
            epolls: Epolls::default(),
            remains: Remains::new()?,
            tried: HashSet::new(),
            is_restricted: false,
            sets_options: false,
            sockets: Sockets::default(),
            tally,
            trial: None,
            was_tried: false,
            doors: Vec::new(),
            taken_over: Vec::new(),
        })
    }

    /// Has what is behind the maps' doors looked at again where another process takes a connection.
    pub fn watch(&mut self, doors: Vec<Doors>) {
        self.doors = doors.into_iter().map(Watched::new).collect();
    }

    /// The answer to a call of `connect`; None where it has been given. What is not ours goes on. Where a process could not be
    /// looked at, this process may have had too few descriptors, so those that are kept open are closed.
    pub fn answer(&mut self, listener: &Listener, call: &Call) -> Option<Answer> {
        let Some((thread, to, map)) = self.mapped(listener, call) else { return Some(Answer::GoOn) };
        match self.decide(listener, &Asked { call, thread: &thread, to, map: &map }) {
            Ok(()) => None,
            Err(Decision::Connected(answer)) => Some(answer),
            Err(Decision::NotOurs) => Some(Answer::GoOn),
            Err(Decision::Stay(reason)) => {
                if matches!(reason, Reason::NotVisible(_)) {
                    self.threads.forget();
                    self.epolls.forget();
                }
                self.tally.fell_back(&thread, to, &map, &reason);
                Some(Answer::GoOn)
            }
        }
    }

    fn mapped(&mut self, listener: &Listener, call: &Call) -> Option<(Rc<Thread>, SocketAddr, Map)> {
        let length = (call.arguments[2] as usize & 0xffff_ffff).min(LONGEST);
        let Some(bytes) = memory_of(call.thread, call.arguments[1], length) else {
            // Whoever gave a bad address, or a signal took out of the call, is not meant.
            if length > 0 && listener.is_waiting(call.id) && is_closed_to_us(call.thread) {
                self.tally.unseen(call.thread);
            }
            return None;
        };
        let to = parse(&bytes)?;
        let map = self.maps.of(to)?.clone();
        let thread = self.threads.of(call.thread).ok()?;
        // What was read, and what was opened, is the caller's only if it still waits.
        listener.is_waiting(call.id).then_some((thread, to, map))
    }

    fn decide(&mut self, listener: &Listener, asked: &Asked<'_>) -> Result<(), Decision> {
        let Asked { thread, to, map, .. } = *asked;
        let descriptor = asked.descriptor();
        let found = thread.socket(descriptor).map_err(not_visible)?;
        let socket = found.ok_or(Decision::NotOurs)?;
        let old = socket.cookie().map_err(not_visible)?;
        if let Some(before) = self.sockets.get(old) {
            return Err(Decision::Connected(again(before)));
        }
        self.may_be_replaced(thread, descriptor, &socket, old, &map.socket)?;
        if self.was_tried {
            return Err(Decision::Stay(Reason::WasTried));
        }
        let Some(trial) = &mut self.trial else { return self.exchange(listener, asked, socket, old, None) };
        match trial.draw(old, map, to) {
            Draw::Again => Err(Decision::NotOurs),
            Draw::Not => Err(Decision::Stay(Reason::NotTried)),
            Draw::Apart(why) => Err(Decision::Stay(Reason::Apart(why))),
            Draw::New(drawn, Way::Tcp) => {
                trial.watch(drawn, &socket.own, thread);
                Err(Decision::Stay(Reason::Drawn))
            }
            Draw::New(drawn, Way::Unix) => {
                let exchanged = self.exchange(listener, asked, socket, old, Some(drawn));
                if matches!(exchanged, Err(Decision::Stay(_))) {
                    self.falls_back(asked, drawn);
                }
                exchanged
            }
        }
    }

    pub fn end_trial(&mut self) -> Option<Tried> {
        let trial = self.trial.take()?;
        self.was_tried = true;
        Some(trial.finish())
    }

    /// A connection that was drawn for the Unix socket goes over TCP, and is watched there.
    fn falls_back(&mut self, asked: &Asked<'_>, drawn: usize) {
        let Some(trial) = &mut self.trial else { return };
        trial.fell_back(drawn);
        if let Ok(Some(socket)) = asked.thread.socket(asked.descriptor()) {
            trial.watch(drawn, &socket.own, asked.thread);
        }
    }

    /// Connects the Unix socket and puts it in place of the program's socket, whose cookie is `old`; `drawn` is the
    /// connection's number in a trial.
    /// The exchange and the answer are two steps. The atomic form (`SECCOMP_ADDFD_FLAG_SEND`) would
    /// return the number of the descriptor where `connect` returns 0. A signal between the two is
    /// noticed, and the repeated call gets the answer. A socket is known by its cookie and never by
    /// process and descriptor, which are duplicated, inherited and used again (docs/decisions/0099).
    fn exchange(
        &mut self,
        listener: &Listener,
        asked: &Asked<'_>,
        socket: Socket,
        old: u64,
        drawn: Option<usize>,
    ) -> Result<(), Decision> {
        let Asked { call, thread, to, map } = *asked;
        let descriptor = asked.descriptor();
        let (unix, cookie, inode) = self.replacement(map, &socket, old)?;
        self.note_who_took_over(map, &unix);
        if let (Some(drawn), Some(trial)) = (drawn, &mut self.trial) {
            if !trial.led_to_the_server(drawn, unix.as_fd()) {
                return Err(Decision::Stay(Reason::AnotherServer));
            }
            trial.watch(drawn, &unix, thread);
        }
        let replaced = Replaced {
            peer: to,
            local: local_of(to, cookie),
            options: if self.sets_options { options_of(&socket) } else { Vec::new() },
            is_known: true,
        };
        let closes_on_exec = thread.closes_on_exec(descriptor).map_err(not_visible)?;
        self.remains.note(&socket.own, old).map_err(not_replaced)?;
        is_still(thread, descriptor, &socket)?;
        match listener.replace(call.id, descriptor as u32, unix.as_fd(), inode, closes_on_exec) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(not_replaced(error)),
        }
        let was = socket.inode;
        drop(socket);
        if self.remains.has(old)
            && let Some(socket) = duplicate(thread, descriptor, was, old)
            && let Ok(true) =
                listener.replace(call.id, descriptor as u32, socket.own.as_fd(), 0, closes_on_exec)
        {
            // The program has seen nothing: it still waits. The server sees a connection that ends at once.
            return Err(Decision::Stay(Reason::Kept(Kept::ByDuplicate)));
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
        // On one CPU the program goes on now, and not after the next call is waited for.
        sched_yield();
        Ok(())
    }

    /// Keeps for the program's user that another server has taken a map's socket, where this connection shows it.
    fn note_who_took_over(&mut self, map: &Map, unix: &OwnedFd) {
        for (of, doors) in self.maps.0.iter().zip(&mut self.doors).filter(|(of, _)| *of == map) {
            let told = doors.taken_over(unix.as_fd(), of);
            self.taken_over.extend(
                told.map(|who| format!("{of}: {who}; the program is connected to that of the socket")),
            );
        }
    }

    /// A connection to the socket of a map, like the socket that has this cookie; its own cookie and inode.
    fn replacement(&mut self, map: &Map, socket: &Socket, old: u64) -> Result<(OwnedFd, u64, u64), Decision> {
        let unix = match connected(&map.socket) {
            Ok(unix) => unix,
            Err(errno) => {
                if self.tried.len() >= MOST_TRIED {
                    self.tried.clear();
                }
                self.tried.insert(old);
                return Err(Decision::Stay(Reason::NoAnswer(errno.into())));
            }
        };
        like(&unix, socket).map_err(not_replaced)?;
        let cookie = sockopt::socket_cookie(&unix).map_err(|errno| not_replaced(errno.into()))?;
        let inode = rustix::fs::fstat(&unix).map_err(|errno| not_replaced(errno.into()))?.st_ino;
        Ok((unix, cookie, inode))
    }

    /// Whether the exchange is one that the program cannot notice, and that gives it nothing.
    fn may_be_replaced(
        &mut self,
        thread: &Thread,
        descriptor: i32,
        socket: &Socket,
        cookie: u64,
        to: &Endpoint,
    ) -> Result<(), Decision> {
        if !socket.is_tcp() {
            return Err(Decision::NotOurs);
        }
        if self.is_restricted {
            return stay(Reason::Landlock);
        }
        let its = match self.rights.of_another(thread, self.rights_may_differ) {
            Err(error) => return stay(Reason::NotVisible(error)),
            Ok(its) => its,
        };
        if let Some(difference) = self.rights.difference(&its) {
            return stay(Reason::OtherRights(difference));
        }
        if network_of(&socket.own) != self.network {
            return stay(Reason::OtherRights("a socket of another network namespace"));
        }
        // Where the socket is known to be of ours, that of the thread decides on abstract sockets alone.
        let may_reach = self.network.is_some() && to.path().is_some();
        if !may_reach && thread.link("ns/net").ok().as_ref() != Some(&self.network_of_threads) {
            return stay(Reason::OtherRights("another network namespace"));
        }
        if socket.signals {
            return stay(Reason::Signals);
        }
        if let Some(local) = local(socket)
            && local.port() != 0
        {
            // Connected, connecting and listening sockets have a port too: what the kernel says to those is right.
            if !is_closed(socket) {
                return Err(Decision::NotOurs);
            }
            if !self.tried.contains(&cookie) {
                return stay(Reason::Bound);
            }
        }
        for (option, name) in OF_TCP_ALONE {
            // A kernel that lacks the option has none set.
            if number(socket, *option).unwrap_or_default() != 0 {
                return stay(Reason::Option(name));
            }
        }
        match self.epolls.watch(its.process, thread, descriptor, socket.inode) {
            Err(error) => stay(Reason::NotVisible(error)),
            Ok(true) => stay(Reason::Kept(Kept::ByEpoll)),
            Ok(false) => Ok(()),
        }
    }
}

fn not_replaced(error: io::Error) -> Decision {
    Decision::Stay(Reason::NotReplaced(error))
}

fn stay(reason: Reason) -> Result<(), Decision> {
    Err(Decision::Stay(reason))
}

/// Another thread may have closed a descriptor meanwhile, and opened something else under the same number: a log would then be
/// written to the server. What is left of this is a few microseconds; the kernel has no exchange that compares.
fn is_still(thread: &Thread, descriptor: i32, socket: &Socket) -> Result<(), Decision> {
    if thread.socket_inode(descriptor) == Some(socket.inode) { Ok(()) } else { Err(Decision::NotOurs) }
}

fn not_visible(error: io::Error) -> Decision {
    Decision::Stay(Reason::NotVisible(error))
}

/// Whether a process may not be looked at: it is not dumpable (PR_SET_DUMPABLE, a program whose file cannot be read), or a
/// security module forbids it.
fn is_closed_to_us(thread: u32) -> bool {
    std::fs::File::open(format!("/proc/{thread}/environ"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The socket of this cookie by another descriptor of the process that had it.
fn duplicate(thread: &Thread, descriptor: i32, inode: u64, cookie: u64) -> Option<Socket> {
    let other = thread.duplicate(descriptor, inode).ok()??;
    let socket = thread.socket(other).ok()??;
    (socket.cookie().ok()? == cookie).then_some(socket)
}

/// The network namespace of a socket (SO_NETNS_COOKIE), which decides where it leads; `None` on kernels before 5.14.
pub fn network_of(socket: &OwnedFd) -> Option<[u8; 8]> {
    let mut cookie = [0; 8];
    option(socket.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie).ok()?;
    Some(cookie)
}

fn is_closed(socket: &Socket) -> bool {
    let mut state = [CLOSED];
    let _ = option(socket.own.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut state);
    state == [CLOSED]
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

/// Gives the new socket what the old one has and a Unix socket can have. Sizes of buffers only where the program chose them,
/// since the kernel's own differ between the families; on kernels before 5.14 that cannot be seen. The kernel doubles what is
/// set, and tells the double.
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
    let chosen = number(old, SO_BUF_LOCK).unwrap_or_default();
    for (bit, name) in [(SEND_BUFFER, libc::SO_SNDBUF), (RECEIVE_BUFFER, libc::SO_RCVBUF)] {
        if chosen & bit != 0 {
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
