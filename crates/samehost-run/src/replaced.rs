//! The sockets that were put in place of TCP sockets, and addresses as the program knows them. A socket is known by its cookie,
//! which no other ever gets; inodes only tell which are surely none of them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsFd;

use samehost_seccomp::option;

use super::thread::Socket;

/// As many are kept at least before it is looked which are gone.
const FEW: usize = 1024;

/// An option that was set: its level, its name, and its value as bytes.
pub type SetOption = (i32, i32, Vec<u8>);

/// Options that a program may have set before it connects.
const TAKEN_OVER: &[(i32, i32)] = &[
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
];

/// The options that a TCP socket has and that its replacement will be asked for.
pub fn options_of(socket: &Socket) -> Vec<SetOption> {
    let mut options = Vec::new();
    for (level, name) in TAKEN_OVER {
        let mut value = [0; 4];
        let Ok(length) = option(socket.own.as_fd(), *level, *name, &mut value) else { continue };
        options.push((*level, *name, value[..length].to_vec()));
    }
    options
}

pub struct Replaced {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// Those that a Unix socket does not have, in the order in which they were set.
    pub options: Vec<SetOption>,
    /// Whether the program knows that it is connected: a signal may come before it does.
    pub is_known: bool,
}

/// Nobody says when a replaced socket is closed. So those that are gone are looked for when there are twice as many as there
/// were after the last look.
#[derive(Default)]
pub struct Sockets {
    /// With the inode.
    by_cookie: HashMap<u64, (u64, Replaced)>,
    inodes: HashSet<u64>,
    /// As many are kept before it is looked again; see [`FEW`].
    most: usize,
}

impl Sockets {
    pub fn may_have(&self, inode: u64) -> bool {
        self.inodes.contains(&inode)
    }

    pub fn is_empty(&self) -> bool {
        self.by_cookie.is_empty()
    }

    pub fn get(&mut self, cookie: u64) -> Option<&mut Replaced> {
        self.by_cookie.get_mut(&cookie).map(|(_, replaced)| replaced)
    }

    pub fn add(&mut self, cookie: u64, inode: u64, replaced: Replaced) {
        if self.by_cookie.len() >= self.most.max(FEW) {
            self.forget_closed();
        }
        self.by_cookie.insert(cookie, (inode, replaced));
        self.inodes.insert(inode);
    }

    fn forget_closed(&mut self) {
        let table = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
        let open = inodes(&table);
        if !open.is_empty() {
            self.by_cookie.retain(|_, (inode, _)| open.contains(inode));
            self.inodes = self.by_cookie.values().map(|(inode, _)| *inode).collect();
        }
        self.most = 2 * self.by_cookie.len();
    }
}

/// The inodes of `/proc/net/unix`: the seventh word of each line.
fn inodes(table: &str) -> HashSet<u64> {
    let mut inodes = HashSet::new();
    for line in table.lines().skip(1) {
        if let Some(Ok(inode)) = line.split_whitespace().nth(6).map(str::parse) {
            inodes.insert(inode);
        }
    }
    inodes
}

const FAMILY: usize = size_of::<libc::sa_family_t>();
const V4: usize = size_of::<libc::sockaddr_in>();
const V6: usize = size_of::<libc::sockaddr_in6>();
/// The kernel takes an IPv6 address without its scope.
const SHORTEST_V6: usize = 24;

/// The longest address of any family: `struct sockaddr_storage`.
pub const LONGEST: usize = 128;

/// The IP address that these bytes are. None for what the kernel would refuse, and for other families.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..FAMILY)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET if bytes.len() >= V4 => {
            let address: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(address).into(), port))
        }
        libc::AF_INET6 if bytes.len() >= SHORTEST_V6 => {
            let address: [u8; 16] = bytes[8..24].try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(address).into(), port))
        }
        _ => None,
    }
}

/// An address as the kernel has it: `struct sockaddr_in` or `sockaddr_in6`.
pub fn bytes_of(address: SocketAddr) -> Vec<u8> {
    match address {
        SocketAddr::V4(address) => {
            let mut bytes = vec![0; V4];
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&address.ip().octets());
            bytes
        }
        SocketAddr::V6(address) => {
            let mut bytes = vec![0; V6];
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes
        }
    }
}

/// The local address of a connection to `peer`: what TCP chooses on loopback, with a port that it could have chosen.
pub fn local_of(peer: SocketAddr, cookie: u64) -> SocketAddr {
    let port = samehost_preload::port_of(cookie, peer.port());
    match peer.ip() {
        IpAddr::V4(_) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into(),
        IpAddr::V6(peer) if peer == Ipv6Addr::LOCALHOST => SocketAddrV6::new(peer, port, 0, 0).into(),
        IpAddr::V6(_) => SocketAddrV6::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port, 0, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn replaced() -> Replaced {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Replaced { peer: address, local: address, options: Vec::new(), is_known: true }
    }

    #[test]
    fn closed_sockets_are_forgotten_and_open_ones_are_not() {
        let (open, _other) = UnixStream::pair().expect("sockets");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        let inode = fs::metadata(path).expect("its inode").ino();
        let mut sockets = Sockets::default();
        sockets.add(1, inode, replaced());
        // Inodes that no socket has.
        for cookie in 2..=FEW as u64 + 1 {
            sockets.add(cookie, u64::MAX - cookie, replaced());
        }
        assert!(sockets.may_have(inode) && sockets.get(1).is_some());
        assert!(sockets.get(2).is_none() && !sockets.may_have(u64::MAX - 2));
        assert!(sockets.get(FEW as u64 + 1).is_some(), "the newest");
    }

    #[test]
    fn an_address_is_its_bytes() {
        for text in ["127.0.0.1:3306", "[::1]:5432", "[::ffff:127.0.0.1]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(parse(&bytes_of(address)), Some(address));
        }
        let v4 = bytes_of("127.0.0.1:258".parse().expect("an address"));
        assert_eq!(v4, [2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_the_kernel_refuses_is_no_address() {
        let v4 = bytes_of("127.0.0.1:258".parse().expect("an address"));
        let v6 = bytes_of("[::1]:258".parse().expect("an address"));
        assert!(parse(&v6[..24]).is_some());
        for short in [&v4[..15], &v4[..3], &v4[..1], &v4[..0], &v6[..23], &[0; 128], &[1; 16]] {
            assert_eq!(parse(short), None);
        }
    }

    #[test]
    fn a_connection_never_leads_to_itself() {
        for cookie in [0, 1, 28_231, u64::MAX] {
            let port = 32_768 + (cookie % 28_232) as u16;
            let peer = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let local = local_of(peer, cookie);
            assert_ne!(local, peer);
            assert_eq!(local.ip(), peer.ip());
        }
        let mapped = "[::ffff:127.0.0.9]:80".parse().expect("an address");
        assert_eq!(local_of(mapped, 0).to_string(), "[::ffff:127.0.0.1]:32768");
    }
}
