//! As what the program knows a Unix socket: the addresses of TCP that it has. The kernel keeps it with the socket, in two options that a
//! Unix socket stores and does not use: SO_PRIORITY says of which kind it is, SO_MAX_PACING_RATE has its ports. So it is there
//! for every descriptor, in every process, and gone with the socket.
//!
//! Addresses of IP as they stand in memory. Pure.

use super::calls::numbers::{AF_INET, AF_INET6, AF_UNIX, SO_DOMAIN, SO_MAX_PACING_RATE, SO_PRIORITY};
use super::calls::{self, Errno};

/// The address at this machine's end as which a socket is known to the program; its number is the
/// socket's priority. The kernel keeps it, in two options that a Unix socket stores and does not use. So
/// it is there for every descriptor, after `fork`, `exec` and SCM_RIGHTS, and gone with the socket. A
/// table in the process was rejected: it is lost by `exec`, wrong after a descriptor was passed on, and a
/// lock in signal handlers. So was an abstract name that says the addresses, which the server would see
/// (docs/decisions/0126).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 127.0.0.1
    V4 = 1,
    /// ::1
    V6,
    /// ::ffff:127.0.0.1
    Mapped,
    /// 0.0.0.0
    AnyV4,
    /// ::, for IPv4 as well
    Any,
    /// ::, for IPv6 only
    AnyV6,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::V4, Kind::V6, Kind::Mapped, Kind::AnyV4, Kind::Any, Kind::AnyV6];

    pub fn of(address: &Address, is_v6_only: bool) -> Kind {
        match (address.is_any(), address.is_v4) {
            (true, true) => Kind::AnyV4,
            (true, false) if is_v6_only => Kind::AnyV6,
            (true, false) if address.is_mapped() => Kind::Mapped,
            (true, false) => Kind::Any,
            (false, true) => Kind::V4,
            (false, false) if address.is_mapped() => Kind::Mapped,
            (false, false) => Kind::V6,
        }
    }

    /// The kind of a connection that comes to a listening socket of this kind.
    pub fn of_connection(self) -> Kind {
        match self {
            Kind::AnyV4 => Kind::V4,
            Kind::Any => Kind::Mapped,
            Kind::AnyV6 => Kind::V6,
            other => other,
        }
    }

    pub fn is_v4(self) -> bool {
        matches!(self, Kind::V4 | Kind::AnyV4)
    }

    fn is_any(self) -> bool {
        matches!(self, Kind::AnyV4 | Kind::Any | Kind::AnyV6)
    }

    /// Whether TCP would not have both at one port, by its rule for families and wildcards.
    /// A second bind by the same process that TCP would allow beside the first gets a socket that listens
    /// under a name that nobody knows, and all clients come to the first. EADDRINUSE was rejected because
    /// Redis and nginx end there. A duplicate of the first socket was too: who waits for both and then
    /// accepts from each would wait for ever (docs/decisions/0126).
    pub fn excludes(self, other: Kind) -> bool {
        has_v4(self) && has_v4(other) || has_v6(self) && has_v6(other)
    }

    fn address(self, port: u16) -> Address {
        if self.is_any() {
            return Address::any(self.is_v4(), port);
        }
        Address::loopback(self.is_v4(), self == Kind::Mapped, port)
    }
}

fn has_v6(kind: Kind) -> bool {
    matches!(kind, Kind::V6 | Kind::Any | Kind::AnyV6)
}

fn has_v4(kind: Kind) -> bool {
    matches!(kind, Kind::V4 | Kind::Mapped | Kind::AnyV4 | Kind::Any)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub kind: Kind,
    pub own: u16,
    /// 0 for a socket that listens, or will.
    pub peer: u16,
}

impl Label {
    /// The label of a descriptor; None for one of TCP, and for the program's own Unix sockets.
    pub fn of(fd: i32) -> Option<Label> {
        let kind = calls::number(fd, SO_PRIORITY).ok()?;
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind)?;
        if calls::number(fd, SO_DOMAIN) != Ok(AF_UNIX as u32) {
            return None;
        }
        let ports = calls::number(fd, SO_MAX_PACING_RATE).ok().filter(|ports| *ports != u32::MAX)?;
        Some(Label { kind, own: ports as u16, peer: (ports >> 16) as u16 })
    }

    pub fn put(self, fd: i32) -> Result<(), Errno> {
        let ports = u32::from(self.peer) << 16 | u32::from(self.own);
        calls::set_number(fd, SO_MAX_PACING_RATE, ports)?;
        calls::set_number(fd, SO_PRIORITY, self.kind as u32)?;
        Ok(())
    }

    pub fn own_address(self) -> Address {
        self.kind.address(self.own)
    }

    pub fn peer_address(self) -> Option<Address> {
        (self.peer != 0).then(|| self.kind.of_connection().address(self.peer))
    }
}

const V4: usize = 16;
const V6: usize = 28;
/// The kernel takes an IPv6 address without its scope.
const SHORTEST_V6: usize = 24;
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub is_v4: bool,
    /// One of IPv4 is mapped.
    pub ip: [u8; 16],
    pub port: u16,
}

impl Address {
    /// None for what the kernel would refuse, and for other families.
    pub fn parse(bytes: &[u8]) -> Option<Address> {
        let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        if family == AF_INET && bytes.len() >= V4 {
            let mut ip = [0; 16];
            ip[..12].copy_from_slice(&MAPPED);
            ip[12..].copy_from_slice(bytes.get(4..8)?);
            Some(Address { is_v4: true, ip, port })
        } else if family == AF_INET6 && bytes.len() >= SHORTEST_V6 {
            Some(Address { is_v4: false, ip: *bytes.get(8..)?.first_chunk()?, port })
        } else {
            None
        }
    }

    pub fn is_mapped(&self) -> bool {
        self.ip.starts_with(&MAPPED)
    }

    pub fn is_loopback(&self) -> bool {
        self.ip == LOOPBACK || self.is_mapped() && self.ip[12] == 127
    }

    pub fn is_any(&self) -> bool {
        let rest = if self.is_mapped() { &self.ip[12..] } else { &self.ip[..] };
        rest.iter().all(|byte| *byte == 0)
    }

    /// 127.0.0.1, ::1 or ::ffff:127.0.0.1.
    pub fn loopback(is_v4: bool, is_mapped: bool, port: u16) -> Address {
        let mut ip = LOOPBACK;
        if is_v4 || is_mapped {
            ip[..12].copy_from_slice(&MAPPED);
            ip[12] = 127;
        }
        Address { is_v4, ip, port }
    }

    /// 0.0.0.0 or ::.
    pub fn any(is_v4: bool, port: u16) -> Address {
        let mut ip = [0; 16];
        if is_v4 {
            ip[..12].copy_from_slice(&MAPPED);
        }
        Address { is_v4, ip, port }
    }

    /// As `struct sockaddr_in` or `sockaddr_in6`, and its length in bytes.
    pub fn bytes(&self) -> ([u8; V6], usize) {
        let mut bytes = [0; V6];
        let family = if self.is_v4 { AF_INET } else { AF_INET6 };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        if self.is_v4 {
            bytes[4..8].copy_from_slice(&self.ip[12..]);
            return (bytes, V4);
        }
        bytes[8..24].copy_from_slice(&self.ip);
        (bytes, V6)
    }
}

/// The address of a Unix socket with this `sun_path`, and its length.
pub fn unix(path: &[u8]) -> ([u8; 110], usize) {
    let mut bytes = [0; 110];
    let length = path.len().min(108);
    bytes[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    bytes[2..2 + length].copy_from_slice(&path[..length]);
    (bytes, 2 + length)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_keeps_a_label_with_the_socket() {
        let (socket, other) = UnixStream::pair().expect("sockets");
        assert_eq!(Label::of(socket.as_raw_fd()), None);
        for kind in Kind::ALL {
            let label = Label { kind, own: 45_000, peer: 65_535 };
            label.put(socket.as_raw_fd()).expect("kept");
            let twin = socket.try_clone().expect("a duplicate");
            assert_eq!(Label::of(twin.as_raw_fd()), Some(label));
        }
        assert_eq!(Label::of(other.as_raw_fd()), None);
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        Label { kind: Kind::V4, own: 1, peer: 0 }.put(tcp.as_raw_fd()).expect("set");
        assert_eq!(Label::of(tcp.as_raw_fd()), None);
    }

    #[test]
    fn two_addresses_exclude_each_other_as_with_tcp() {
        let pairs = [(Kind::V4, Kind::V6), (Kind::AnyV4, Kind::AnyV6), (Kind::V6, Kind::Mapped)];
        for (one, other) in pairs {
            assert!(!one.excludes(other) && !other.excludes(one), "{one:?} {other:?}");
        }
        for (one, other) in [(Kind::V4, Kind::AnyV4), (Kind::V6, Kind::Any), (Kind::AnyV4, Kind::Any)] {
            assert!(one.excludes(other) && other.excludes(one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn an_address_is_its_bytes() {
        for (is_v4, is_mapped) in [(true, false), (false, false), (false, true)] {
            for address in [Address::loopback(is_v4, is_mapped, 258), Address::any(is_v4, 258)] {
                let (bytes, length) = address.bytes();
                assert_eq!(Address::parse(&bytes[..length]), Some(address));
                assert_eq!(address.is_any(), !address.is_loopback());
            }
        }
        let v4 = Address::loopback(true, false, 258).bytes();
        assert_eq!(v4.0[..v4.1], [2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_the_kernel_refuses_is_no_address() {
        let (v4, _) = Address::loopback(true, false, 1).bytes();
        let (v6, _) = Address::loopback(false, false, 1).bytes();
        assert!(Address::parse(&v6[..24]).is_some());
        for short in [&v4[..15], &v4[..3], &v4[..1], &v4[..0], &v6[..23], &[0; 128], &[1; 16]] {
            assert_eq!(Address::parse(short), None);
        }
    }

    #[test]
    fn a_path_is_ended_by_its_length() {
        let (bytes, length) = unix(b"/a\0");
        assert_eq!(bytes[..length], [1, 0, b'/', b'a', 0]);
        assert_eq!(unix(&[7; 200]).1, 110);
    }
}
