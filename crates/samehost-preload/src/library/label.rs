//! As what the program knows a Unix socket: the addresses of TCP that it has. The kernel keeps it with the socket, in two options that a
//! Unix socket stores and does not use: SO_PRIORITY says of which kind it is, SO_MAX_PACING_RATE has its ports. So it is there
//! for every descriptor, in every process, and gone with the socket.

use super::calls::{self, Errno};
use super::names::Address;
use super::numbers::{AF_UNIX, SO_DOMAIN, SO_MAX_PACING_RATE, SO_PRIORITY};

/// The address at this machine's end; its number is the priority.
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

    /// That of a connection to it.
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

    /// Whether TCP would not have both at one port.
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
    /// That of a descriptor; None for one of TCP, and for the program's own Unix sockets.
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
}
