//! Puts a Unix socket in place of a TCP socket, where the program does not notice. What cannot be exchanged stays with TCP.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::calls::numbers::*;
use super::calls::{self, Errno};
use super::config::{self, Map};
use super::label::{self, Address, Kind, Label};
use crate::layout::{self, Stay};

/// A bit for each descriptor of this process.
pub struct Descriptors([AtomicU64; MOST_NOTED / 64]);

const MOST_NOTED: usize = 1 << 20;

impl Descriptors {
    const fn new() -> Self {
        Descriptors([const { AtomicU64::new(0) }; MOST_NOTED / 64])
    }

    fn at(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        self.0.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
    }

    pub fn note(&self, fd: i32) {
        if let Some((word, bit)) = self.at(fd) {
            word.fetch_or(bit, Relaxed);
        }
    }

    pub fn forget(&self, fd: i32) {
        // Most are not there, and a word that is only read costs no page.
        if let Some((word, bit)) = self.at(fd)
            && word.load(Relaxed) & bit != 0
        {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// None for a number beyond those that are noted.
    fn has(&self, fd: i32) -> Option<bool> {
        self.at(fd).map(|(word, bit)| word.load(Relaxed) & bit != 0)
    }
}

/// Those that were put into an epoll set, which would lose the new socket.
pub static WATCHED: Descriptors = Descriptors::new();
/// Those that went on to TCP because nobody answered. One that was refused there too keeps a port, as if it were bound.
pub static TRIED: Descriptors = Descriptors::new();

/// Options of every socket that change what reads, writes and the end do, and their usual values.
const OF_SOCKETS: [(i32, u128); 6] = [
    (SO_KEEPALIVE, 0),
    (SO_LINGER, 0),
    (SO_OOBINLINE, 0),
    (SO_RCVLOWAT, 1_u128.to_le()),
    (SO_RCVTIMEO, 0),
    (SO_SNDTIMEO, 0),
];
/// The bits of SO_BUF_LOCK: the size of a buffer was chosen by the program.
const BUFFERS: [(u32, i32); 2] = [(1, SO_SNDBUF), (2, SO_RCVBUF)];
/// The first byte of `struct tcp_info` for a socket that neither connects nor listens.
const CLOSED: u8 = 7;

/// The answer to a call of `connect`; None where it goes on.
pub fn connect(fd: i32, to: &Address) -> Option<Result<usize, Errno>> {
    let map = Map::of_peer(to)?;
    if Label::of(fd).is_some() {
        return Some(Err(EISCONN));
    }
    if !is_tcp(fd) || !is_closed(fd) {
        return None;
    }
    let result = if is_bound(fd) && TRIED.has(fd) != Some(true) {
        Err(Stay::Bound)
    } else {
        may_be_replaced(fd).and_then(|()| replace(fd, to, &map))
    };
    match result {
        Ok(()) => {
            map.count(layout::OVER_UNIX);
            Some(Ok(0))
        }
        Err(why) => {
            map.stays(why);
            None
        }
    }
}

fn replace(fd: i32, to: &Address, map: &Map) -> Result<(), Stay> {
    let unix = Owned::unix().map_err(why_none)?;
    let (address, length) = label::unix(map.socket());
    if let Err(errno) = calls::connect(unix.0, &address[..length]) {
        map.note(layout::ERROR, errno as u64);
        TRIED.note(fd);
        return Err(Stay::NoAnswer);
    }
    let dressed = calls::cookie(unix.0).and_then(|cookie| {
        let own = layout::port_of(cookie, to.port);
        Label { kind: Kind::of(to, false), own, peer: to.port }.put(unix.0)?;
        like(unix.0, fd)
    });
    dressed.map_err(|_| Stay::NotReplaced)?;
    put_in_place(&unix, fd)
}

/// Why there is no Unix socket: a sandbox forbids the family (RestrictAddressFamilies=), or the kernel has no room.
fn why_none(errno: Errno) -> Stay {
    if [EAFNOSUPPORT, EACCES, EPERM].contains(&errno) { Stay::Forbidden } else { Stay::NotReplaced }
}

/// A descriptor that is closed at the end.
pub struct Owned(pub i32);

impl Owned {
    /// A Unix socket that does not wait: a server whose queue is full gets this connection over TCP.
    pub fn unix() -> Result<Owned, Errno> {
        calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0).map(Owned)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

pub fn is_tcp(fd: i32) -> bool {
    let is_ip =
        || calls::number(fd, SO_DOMAIN).is_ok_and(|domain| [AF_INET, AF_INET6].contains(&(domain as i32)));
    let protocol = calls::number(fd, SO_PROTOCOL).map_or(0, |protocol| protocol as i32);
    [IPPROTO_TCP, IPPROTO_MPTCP].contains(&protocol) && is_ip()
}

pub fn is_bound(fd: i32) -> bool {
    let name = calls::own_name(fd).ok();
    let address = name.and_then(|(name, length)| Address::parse(name.get(..length)?));
    address.is_some_and(|address| address.port != 0)
}

/// Whether it neither is connected nor connects nor listens: what the kernel says to those that are is right.
fn is_closed(fd: i32) -> bool {
    calls::option::<1>(fd, IPPROTO_TCP, TCP_INFO).is_ok_and(|(state, _)| state[0] == CLOSED)
}

/// Fails where the program would notice an exchange, or the socket leads elsewhere.
pub fn may_be_replaced(fd: i32) -> Result<(), Stay> {
    let network = config::network();
    if network != [0; 8]
        && calls::option::<8>(fd, SOL_SOCKET, SO_NETNS_COOKIE).is_ok_and(|(its, _)| its != network)
    {
        return Err(Stay::Network);
    }
    if calls::fcntl(fd, F_GETFL, 0).is_ok_and(|flags| flags & O_ASYNC != 0) {
        return Err(Stay::Signals);
    }
    if [SO_MARK, SO_BINDTOIFINDEX, SO_ZEROCOPY]
        .iter()
        .any(|name| calls::number(fd, *name).is_ok_and(|value| value != 0))
    {
        return Err(Stay::Option);
    }
    if WATCHED.has(fd) != Some(false) {
        return Err(Stay::Epoll);
    }
    Ok(())
}

/// Gives the new socket what the old one has and a Unix socket can have. Sizes of buffers only where the program chose them,
/// which kernels before 5.14 do not tell. The kernel doubles what is set, and tells the double.
pub fn like(new: i32, old: i32) -> Result<(), Errno> {
    let waits = calls::fcntl(old, F_GETFL, 0)? & O_NONBLOCK as usize == 0;
    if waits {
        calls::fcntl(new, F_SETFL, 0)?;
    }
    options_like(new, old)
}

pub fn options_like(new: i32, old: i32) -> Result<(), Errno> {
    for (name, usual) in OF_SOCKETS {
        let (value, length) = calls::option::<16>(old, SOL_SOCKET, name)?;
        if u128::from_ne_bytes(value) != usual {
            calls::set_option(new, name, value.get(..length).unwrap_or_default())?;
        }
    }
    let chosen = calls::number(old, SO_BUF_LOCK).unwrap_or_default();
    for (bit, name) in BUFFERS {
        if chosen & bit != 0 {
            calls::set_number(new, name, calls::number(old, name)? / 2)?;
        }
    }
    Ok(())
}

/// Puts a Unix socket under the number of a TCP socket that nobody else in this process has. The TCP socket is put into an
/// epoll set before: a set has a socket until its last descriptor is closed, and one that is not connected always has
/// something to report. Only where the set still reports it, the descriptors are looked through for a duplicate, for which
/// the exchange is undone. So a connection takes as long with thousands of descriptors as with few (docs/decisions/0115).
pub fn put_in_place(unix: &Owned, fd: i32) -> Result<(), Stay> {
    let not_replaced = |_| Stay::NotReplaced;
    let closes_on_exec = calls::fcntl(fd, F_GETFD, 0).map_err(not_replaced)? & FD_CLOEXEC != 0;
    let old = calls::cookie(fd).map_err(not_replaced)?;
    let remains = Owned(calls::epoll().map_err(not_replaced)?);
    calls::watch(remains.0, fd).map_err(not_replaced)?;
    calls::replace(unix.0, fd, closes_on_exec).map_err(not_replaced)?;
    if calls::reports(remains.0)
        && let Some(twin) = duplicate(fd, old)
    {
        return match calls::replace(twin, fd, closes_on_exec) {
            Ok(_) => Err(Stay::Duplicate),
            Err(_) => Ok(()),
        };
    }
    Ok(())
}

/// Another descriptor of a socket in this process.
fn duplicate(fd: i32, cookie: u64) -> Option<i32> {
    (0..calls::most_descriptors()).find(|other| *other != fd && calls::cookie(*other) == Ok(cookie))
}

// The server's side: a bind to a mapped port becomes one to the Unix socket, and whoever comes there has an address of TCP.

/// The answer to a call of `bind`; None where it goes on.
pub fn bind(fd: i32, to: &Address) -> Option<Result<usize, Errno>> {
    let map = Map::of_server(to)?;
    if Label::of(fd).is_some() {
        return Some(Err(EINVAL));
    }
    if !is_tcp(fd) || is_bound(fd) {
        return None;
    }
    if let Err(why) = may_be_replaced(fd) {
        map.stays(why);
        return None;
    }
    let is_v6_only =
        calls::option::<4>(fd, IPPROTO_IPV6, IPV6_V6ONLY).is_ok_and(|(value, _)| value != [0; 4]);
    let label = Label { kind: Kind::of(to, is_v6_only), own: to.port, peer: 0 };
    let is_shared = calls::number(fd, SO_REUSEPORT).is_ok_and(|value| value != 0);
    let made = Owned::unix().and_then(|unix| {
        label.put(unix.0)?;
        like(unix.0, fd)?;
        Ok(unix)
    });
    let Ok(unix) = made else {
        map.stays(Stay::NotReplaced);
        return None;
    };
    let place = match take(&unix, &map, label, is_shared) {
        Ok(place) => place,
        Err(errno) => return Some(Err(errno)),
    };
    if let Err(why) = put_in_place(&unix, fd) {
        if place == Place::Path {
            calls::remove(map.socket());
        }
        map.stays(why);
        return None;
    }
    Some(Ok(0))
}

#[derive(PartialEq, Eq)]
enum Place {
    Path,
    /// A name that nobody knows.
    Nowhere,
}

/// Binds a Unix socket to the path of a map. A file that is there already is removed only if it is a socket and nobody
/// answers at it; otherwise the bind fails as with TCP (EADDRINUSE). A second bind of the same process that TCP would allow
/// beside the first is [`Place::Nowhere`] (docs/decisions/0126).
fn take(unix: &Owned, map: &Map, label: Label, is_shared: bool) -> Result<Place, Errno> {
    let (address, length) = label::unix(map.socket());
    let address = &address[..length];
    for _ in 0..2 {
        match calls::bind(unix.0, address) {
            Ok(_) => return Ok(Place::Path),
            Err(EADDRINUSE) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(first) = own(address, label.own) {
            if first.kind.excludes(label.kind) && !is_shared {
                return Err(EADDRINUSE);
            }
            // The other family of the same server, say. It listens there, and nobody comes: everybody comes to the first.
            calls::bind(unix.0, &(AF_UNIX as u16).to_ne_bytes())?;
            return Ok(Place::Nowhere);
        }
        if !is_left_behind(map, address) {
            return Err(EADDRINUSE);
        }
        calls::remove(map.socket());
    }
    Err(EADDRINUSE)
}

/// The socket of this process that has the path of a map.
fn own(address: &[u8], port: u16) -> Option<Label> {
    (0..calls::most_descriptors()).find_map(|fd| {
        let label = Label::of(fd).filter(|label| label.own == port && label.peer == 0)?;
        let (name, length) = calls::own_name(fd).ok()?;
        (name.get(..length) == Some(address)).then_some(label)
    })
}

/// Whether a path is a socket at which nobody answers.
fn is_left_behind(map: &Map, address: &[u8]) -> bool {
    if map.is_abstract() || !calls::is_socket_file(map.socket()) {
        return false;
    }
    let Ok(client) = Owned::unix() else { return false };
    calls::connect(client.0, address) == Err(ECONNREFUSED)
}

/// A connection that came to a listening socket, and the address that it is said to be from; None for one of TCP, or of the
/// program's own.
pub fn accept(fd: i32, flags: i32) -> Option<Result<(i32, Address), Errno>> {
    if !Map::any_listens() {
        return None;
    }
    let listening = Label::of(fd).filter(|label| label.peer == 0)?;
    let accepted = match calls::accept(fd, flags) {
        Ok(accepted) => accepted,
        Err(errno) => return Some(Err(errno)),
    };
    let peer = layout::port_of(calls::cookie(accepted).unwrap_or_default(), listening.own);
    let label = Label { kind: listening.kind.of_connection(), own: listening.own, peer };
    // TCP hands these down. A connection without them is one all the same.
    let _ = label.put(accepted).and_then(|()| options_like(accepted, fd));
    if let Some(map) = Map::of_port(listening.own) {
        map.count(layout::OVER_UNIX);
    }
    Some(Ok((accepted, label.peer_address().unwrap_or_else(|| label.own_address()))))
}
