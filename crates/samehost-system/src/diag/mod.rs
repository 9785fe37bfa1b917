//! Lists the kernel's sockets with sock_diag(7) over netlink, in the network namespace of the calling thread.
//! This file talks to the kernel, and so does `ends` through it; `frame`, `inet` and `unix` parse bytes.

mod ends;
pub(crate) mod frame;
mod inet;
mod unix;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use samehost_model::scan::{Address, Socket, SocketKind, SocketState};

use frame::{Message, error, messages};
use inet::Wanted;

pub(crate) use ends::address;
pub use ends::both_ends;
pub use frame::attribute;
pub use inet::{Counters, KINDS, Unsent};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_DUMP: u16 = 0x300;
const TCP: [SocketKind; 2] = [SocketKind::Tcp, SocketKind::Tcp6];
/// The kernel puts at most 32 KiB into one datagram of a dump.
const DATAGRAM: usize = 64 * 1024;

pub struct Diag(Netlink);

/// A TCP socket and its traffic since it was connected.
pub struct Activity {
    pub local: Address,
    pub peer: Address,
    pub state: SocketState,
    /// None where the kernel has none.
    pub counters: Option<Counters>,
    /// The kernel's name of the socket, which no other one has had since the machine started.
    pub cookie: u64,
}

impl Diag {
    /// Opens the listing of the calling thread's network namespace.
    pub fn open() -> Result<Self, Errno> {
        Ok(Diag(Netlink::open(Some(SOCK_DIAG), 0)?))
    }

    /// All TCP, UDP and Unix sockets. `namespace` is the inode of the calling thread's namespace, to be recorded in each. A
    /// kernel without IPv6 or UDP listing has no such sockets to show.
    pub fn sockets(&mut self, namespace: u64) -> Result<Vec<Socket>, Errno> {
        let mut sockets = Vec::new();
        self.dump_kinds(&KINDS, Wanted::Sockets, |payload, kind| {
            sockets.extend(inet::parse(payload, kind, namespace));
        })?;
        self.dump(&unix::request(), |payload| sockets.extend(unix::parse(payload, namespace)))?;
        Ok(sockets)
    }

    pub fn connected(&mut self, namespace: u64) -> Result<Vec<Socket>, Errno> {
        let mut found = Vec::new();
        self.dump_kinds(&TCP, Wanted::Connected, |payload, kind| {
            found.extend(inet::parse(payload, kind, namespace));
        })?;
        Ok(found)
    }

    /// Traffic of all connected TCP sockets of the namespace.
    pub fn activity(&mut self) -> Result<Vec<Activity>, Errno> {
        let mut found = Vec::new();
        self.dump_kinds(&TCP, Wanted::Traffic, |payload, kind| found.extend(activity(payload, kind)))?;
        Ok(found)
    }

    /// Gives the local address and the peer's of each socket in TIME_WAIT, and the milliseconds until it is gone. There are some ten
    /// thousand of a busy site, so no list is made.
    pub fn in_time_wait(&mut self, mut each: impl FnMut(SocketAddr, SocketAddr, u32)) -> Result<(), Errno> {
        self.dump_kinds(&TCP, Wanted::TimeWait, |payload, kind| {
            let Some(socket) = inet::parse(payload, kind, 0) else { return };
            if let (Some(local), Some(peer)) = (socket.local.inet(), socket.peer.inet()) {
                each(local, peer, inet::expires_ms(payload));
            }
        })
    }

    /// All UDP sockets, and how many datagrams each has dropped because its queue was full, modulo 2³².
    pub fn dropped(&mut self) -> Result<Vec<(Socket, u32)>, Errno> {
        let mut found = Vec::new();
        self.dump_kinds(&[SocketKind::Udp, SocketKind::Udp6], Wanted::Memory, |payload, kind| {
            found.extend(inet::parse(payload, kind, 0).zip(inet::drops(payload)));
        })?;
        Ok(found)
    }

    /// A kernel without IPv6 or UDP listing has no such sockets to show.
    fn dump_kinds(
        &mut self,
        kinds: &[SocketKind],
        wanted: Wanted,
        mut take: impl FnMut(&[u8], SocketKind),
    ) -> Result<(), Errno> {
        for kind in kinds {
            let Some(request) = inet::request(*kind, wanted) else { continue };
            match self.dump(&request, |payload| take(payload, *kind)) {
                Err(Errno::NOENT) if *kind != SocketKind::Tcp => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The connected TCP socket of the namespace with this local address and this peer, without listing
    /// others; `None` if there is none.
    pub fn tcp(&mut self, local: SocketAddr, peer: SocketAddr) -> Result<Option<Socket>, Errno> {
        let Some(request) = inet::exact(local, peer) else { return Ok(None) };
        let found = self.one(&request, |payload| inet::parse(payload, SocketKind::Tcp, 0))?;
        Ok(found.filter(|socket| is_between(socket, local, peer)))
    }

    /// Who would take a connection to this TCP address: a listener at it alone, or at all addresses.
    pub fn listener(&mut self, at: SocketAddr) -> Result<Option<Socket>, Errno> {
        let nobody: IpAddr =
            if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let Some(request) = inet::exact(at, SocketAddr::new(nobody, 0)) else { return Ok(None) };
        let found = self.one(&request, |payload| inet::parse(payload, SocketKind::Tcp, 0))?;
        Ok(found.filter(|socket| socket.state == SocketState::Listen))
    }

    /// Whether somebody listens at this TCP address: at it alone, or at all addresses.
    pub fn listens(&mut self, at: SocketAddr) -> Result<bool, Errno> {
        Ok(self.listener(at)?.is_some())
    }

    /// What the connected TCP socket with this local address and this peer has not sent yet.
    pub fn unsent(&mut self, local: SocketAddr, peer: SocketAddr) -> Result<Option<Unsent>, Errno> {
        let Some(mut request) = inet::exact(local, peer) else { return Ok(None) };
        request[2] = 1 << (inet::INET_DIAG_INFO - 1);
        self.one(&request, |payload| {
            let socket = inet::parse(payload, SocketKind::Tcp, 0)?;
            if is_between(&socket, local, peer) { inet::unsent(payload) } else { None }
        })
    }

    /// The Unix socket with this inode, if it belongs to the namespace.
    pub fn unix(&mut self, inode: u64) -> Result<Option<Socket>, Errno> {
        let Some(request) = unix::exact(inode) else { return Ok(None) };
        self.one(&request, |payload| unix::parse(payload, 0))
    }

    /// Sends a request for one socket; `None` if the kernel knows none.
    fn one<T>(
        &mut self,
        request: &[u8],
        read_payload: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        self.0.send(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, request)?;
        let datagram = self.0.receive(RecvFlags::TRUNC)?;
        let mut found = None;
        for message in messages(datagram) {
            match read(message, SOCK_DIAG_BY_FAMILY, &mut |payload| found = read_payload(payload)) {
                Some(Err(Errno::NOENT)) => return Ok(None),
                Some(end) => end?,
                None => {}
            }
        }
        Ok(found)
    }

    fn dump(&mut self, request: &[u8], each: impl FnMut(&[u8])) -> Result<(), Errno> {
        self.0.dump([SOCK_DIAG_BY_FAMILY; 2], request, each)
    }
}

/// A socket to a part of the kernel, with room for its datagrams.
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket that also receives notifications of these groups. Without a protocol it is rtnetlink(7)'s.
    pub(crate) fn open(protocol: Option<Protocol>, groups: u32) -> Result<Self, Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Netlink { socket, buffer: vec![0; DATAGRAM] })
    }

    fn send(&self, kind: u16, flags: u16, request: &[u8]) -> Result<(), Errno> {
        let mut message = (16 + request.len() as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(request);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    fn receive(&mut self, flags: RecvFlags) -> Result<&[u8], Errno> {
        let (_, length) = retry_on_intr(|| rustix::net::recv(&self.socket, &mut self.buffer[..], flags))?;
        self.buffer.get(..length).ok_or(Errno::MSGSIZE)
    }

    /// Asks for a list, by the kinds of the request and of what is listed.
    pub(crate) fn dump(
        &mut self,
        [asked, listed]: [u16; 2],
        request: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        self.send(asked, NLM_F_REQUEST | NLM_F_DUMP, request)?;
        loop {
            for message in messages(self.receive(RecvFlags::TRUNC)?) {
                if let Some(end) = read(message, listed, &mut each) {
                    return end;
                }
            }
        }
    }
}

/// Whether a socket is that connection: if there is none, the kernel replies with a listener of that address.
fn is_between(socket: &Socket, local: SocketAddr, peer: SocketAddr) -> bool {
    is_at(&socket.local, local) && is_at(&socket.peer, peer)
}

fn is_at(address: &Address, wanted: SocketAddr) -> bool {
    let Some(found) = address.inet() else { return false };
    found.ip().to_canonical() == wanted.ip().to_canonical() && found.port() == wanted.port()
}

fn activity(payload: &[u8], kind: SocketKind) -> Option<Activity> {
    let socket = inet::parse(payload, kind, 0)?;
    Some(Activity {
        local: socket.local,
        peer: socket.peer,
        state: socket.state,
        counters: inet::counters(payload),
        cookie: inet::cookie(payload),
    })
}

/// Handles one message; returns the result of the dump if it was the last.
fn read(message: Message<'_>, listed: u16, each: &mut impl FnMut(&[u8])) -> Option<Result<(), Errno>> {
    match message.kind {
        // A dump that was disturbed lacks at most sockets that came or went meanwhile, as if read a moment earlier.
        NLMSG_DONE => Some(Ok(())),
        NLMSG_ERROR => Some(error(message.payload)),
        kind if kind == listed => {
            each(message.payload);
            None
        }
        _ => None,
    }
}

/// For tests with mutated bytes: captured replies of the kernel, and all parsers.
#[cfg(test)]
pub mod fuzzed {
    use super::*;

    /// The datagrams with which this kernel replies to every request of this module.
    pub fn captured() -> Vec<Vec<u8>> {
        let mut diag = Diag::open().unwrap();
        let mut requests = vec![unix::request()];
        for kind in KINDS {
            requests.extend(inet::request(kind, Wanted::Sockets));
            requests.extend(inet::request(kind, Wanted::Traffic));
        }
        let mut datagrams = Vec::new();
        for request in requests {
            // A whole message for each reply, so that the framing is mutated too.
            let _ = diag.dump(&request, |payload| {
                let mut message = (16 + payload.len() as u32).to_ne_bytes().to_vec();
                message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
                message.resize(16, 0);
                message.extend(payload);
                message.resize(message.len().next_multiple_of(4), 0);
                datagrams.push(message);
            });
        }
        datagrams
    }

    /// All sockets that any parser reads from a datagram.
    pub fn read(datagram: &[u8]) -> Vec<Socket> {
        let mut sockets = Vec::new();
        for message in messages(datagram) {
            let end = super::read(message, SOCK_DIAG_BY_FAMILY, &mut |payload| {
                // The family selects the parser; a kernel never replies to one request with the other's family.
                if payload.first() == Some(&1) {
                    sockets.extend(unix::parse(payload, 1));
                    return;
                }
                let is_udp = payload.get(1) == Some(&7);
                let kind = if is_udp { SocketKind::Udp } else { SocketKind::Tcp };
                sockets.extend(inet::parse(payload, kind, 1));
                let _ = activity(payload, kind);
            });
            if end.is_some() {
                break;
            }
        }
        sockets
    }
}

/// `1 << (SKNLGRP_INET_TCP_DESTROY - 1) | 1 << (SKNLGRP_INET6_TCP_DESTROY - 1)` (`linux/sock_diag.h`).
const TCP_ENDS: u32 = 1 << 0 | 1 << 2;
/// Bytes for unread notifications: some 8,000.
const ROOM: usize = 8 * 1024 * 1024;

/// Receives a notification for every TCP socket of a network namespace that ends, with its counters.
/// An application that connects for each request has hardly ever a connection at the moment of a look: a
/// look would find one in a thousand, so repeated looks were rejected. Needs CAP_NET_ADMIN, and Linux 4.2
/// (`SKNLGRP_INET_TCP_DESTROY`). Where a namespace gives no such messages, or more came than the kernel
/// kept, scan says so.
pub struct Endings(Netlink);

impl Endings {
    pub fn open() -> Result<Self, Errno> {
        let netlink = Netlink::open(Some(SOCK_DIAG), TCP_ENDS)?;
        // A smaller buffer only means that a busy machine's notifications are lost sooner, which is reported.
        let _ = set_socket_recv_buffer_size_force(&netlink.socket, ROOM);
        Ok(Endings(netlink))
    }

    /// Passes on the sockets that ended since the last call.
    ///
    /// # Errors
    /// `ENOBUFS` when some were lost; the next call continues.
    pub fn hear(&mut self, mut each: impl FnMut(Activity)) -> Result<(), Errno> {
        loop {
            let datagram = match self.0.receive(RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(()),
                other => other?,
            };
            for message in messages(datagram) {
                if message.kind == SOCK_DIAG_BY_FAMILY
                    && let Some(activity) = activity(message.payload, SocketKind::Tcp)
                {
                    each(activity);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_own_sockets() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let sockets = Diag::open().unwrap().sockets(1).unwrap();
        let address = Address::Inet(tcp.local_addr().unwrap());
        assert!(sockets.iter().any(|socket| socket.local == address && socket.is_listening()));
        let unix = sockets.iter().find(|socket| socket.local.path() == Some(&path)).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(unix.file.unwrap().inode, metadata.ino() & 0xffff_ffff);
        assert_eq!(unix.file.unwrap().device, metadata.dev());
    }

    #[test]
    fn finds_the_other_end_of_a_connection_and_no_listener() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has only one address to check.
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let there = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(there).unwrap();
            let here = client.local_addr().unwrap();
            let mut diag = Diag::open().unwrap();
            assert_eq!(diag.tcp(there, here).unwrap().unwrap().inode, 0, "nobody has accepted it");
            let server = listener.accept().unwrap().0;
            let inode = rustix::fs::fstat(&server).unwrap().st_ino;
            assert_eq!(diag.tcp(there, here).unwrap().unwrap().inode, inode);
            let nowhere = SocketAddr::new(here.ip(), here.port() ^ 1);
            assert!(diag.tcp(there, nowhere).unwrap().is_none(), "the listener is no connection");
        }
    }

    #[test]
    fn a_cookie_is_what_the_socket_says_of_itself() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let sockets = Diag::open().unwrap().sockets(1).unwrap();
        let inodes = [rustix::fs::fstat(&tcp).unwrap().st_ino, rustix::fs::fstat(&one).unwrap().st_ino];
        let cookies = [
            rustix::net::sockopt::socket_cookie(&tcp).unwrap(),
            rustix::net::sockopt::socket_cookie(&one).unwrap(),
        ];
        for (inode, cookie) in inodes.into_iter().zip(cookies) {
            let found = sockets.iter().find(|socket| socket.inode == inode).unwrap();
            assert_eq!((found.cookie, found.cookie > 0), (cookie, true), "{found:?}");
        }
    }

    #[test]
    fn finds_the_other_end_of_a_unix_connection() {
        fn inode(stream: &std::os::unix::net::UnixStream) -> u64 {
            rustix::fs::fstat(stream).unwrap().st_ino
        }
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut diag = Diag::open().unwrap();
        let found = diag.unix(inode(&one)).unwrap().unwrap();
        assert_eq!(found.peer_inode, Some(inode(&other)));
        assert_eq!(diag.unix(inode(&other)).unwrap().unwrap().uid, Some(rustix::process::geteuid().as_raw()));
        assert!(diag.unix(1 << 40).unwrap().is_none());
    }

    #[test]
    fn counts_what_was_sent() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(&[7; 10]).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        let local = Address::Inet(client.local_addr().unwrap());
        let activity = Diag::open().unwrap().activity().unwrap();
        // A connection of another test that is ending may have had the same port to another address; it has
        // no counters.
        let counters = activity.iter().filter(|one| one.local == local).find_map(|one| one.counters).unwrap();
        assert_eq!(counters.bytes_acked, 1000 + 1, "with the SYN");
        assert_eq!((counters.bytes_received, counters.data_segments_out), (10, 1));
    }

    #[test]
    fn what_a_full_udp_socket_drops_is_counted() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = receiver.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut diag = Diag::open().unwrap();
        let mut dropped = |local| {
            let all = diag.dropped().unwrap();
            all.into_iter().find(|(socket, _)| socket.local.inet() == Some(local)).map(|(_, drops)| drops)
        };
        assert_eq!(dropped(address), Some(0));
        let sent = 20_000;
        for _ in 0..sent {
            sender.send_to(&[7; 64], address).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let queued = std::iter::from_fn(|| receiver.recv(&mut [0; 64]).ok()).count();
        assert_eq!(dropped(address), Some(sent - queued as u32));
        let gone = sender.local_addr().unwrap();
        drop(sender);
        assert_eq!(dropped(gone), None);
    }

    #[test]
    fn hears_of_a_connection_that_ends() {
        use std::io::{Read, Write};
        let mut endings = match Endings::open() {
            Ok(endings) => endings,
            // Allowed only with CAP_NET_ADMIN.
            Err(errno) => {
                assert_eq!(errno, Errno::PERM);
                return;
            }
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(&[7; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        server.write_all(&[7; 10]).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        let local = Address::Inet(client.local_addr().unwrap());
        drop(client);
        drop(server);
        let begun = std::time::Instant::now();
        let mut found = None;
        while found.is_none() && begun.elapsed() < std::time::Duration::from_secs(30) {
            let heard = endings.hear(|one| {
                if one.local == local {
                    found = one.counters;
                }
            });
            assert!(matches!(heard, Ok(()) | Err(Errno::NOBUFS)));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(found.expect("it was told").bytes_received, 10 + 1, "with the FIN");
    }
}
