//! Determines what a descriptor is by asking the kernel, not our own bookkeeping: clients may use another
//! transport than configured, and reports need evidence. Cannot detect TLS, which is above the kernel; use
//! the stream's cipher.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, io};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType, ipproto, sockopt};

use crate::socket::peer_pid;

/// Address family of a descriptor (`SO_DOMAIN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// A Unix socket.
    Unix,
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
    /// A pipe, which is not a socket (fstat: `S_ISFIFO`).
    Pipe,
    /// Another family, by number.
    Other(u16),
}

/// Type of a descriptor (`SO_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A stream of bytes.
    Stream,
    /// A sequence of messages.
    Seqpacket,
    /// Single datagrams.
    Datagram,
    /// Unidirectional, such as a pipe.
    OneWay,
    /// Another type, by number.
    Other(u32),
}

/// Protocol of a descriptor (`SO_PROTOCOL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Multipath TCP, which costs more than TCP and must be distinguished from it.
    Mptcp,
    /// Another protocol, by number.
    Other(u32),
}

/// Address of one end of a Unix or TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Name {
    /// IP address and port.
    Inet(SocketAddr),
    /// Path of a socket file.
    Path(std::path::PathBuf),
    /// Name in the abstract namespace, without its leading NUL byte.
    Abstract(Vec<u8>),
    /// An unbound Unix socket, typically a client's.
    Unnamed,
}

/// What the kernel reports about a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Address family.
    pub family: Family,
    /// Socket type.
    pub kind: Kind,
    /// Protocol; `None` for Unix sockets and pipes.
    pub protocol: Option<Protocol>,
    /// Own address.
    pub local: Option<Name>,
    /// The peer's address; `None` if the peer has gone.
    pub peer: Option<Name>,
    /// The peer's process at the time of connecting (`SO_PEERCRED`), for Unix sockets.
    pub peer_pid: Option<u32>,
}

impl Observed {
    /// Asks the kernel about a descriptor.
    ///
    /// # Errors
    /// ENOTSOCK if it is neither a socket nor a pipe; errors of getsockopt(2).
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Observed> {
        let domain = match sockopt::socket_domain(fd) {
            Err(Errno::NOTSOCK) => return Observed::of_pipe(fd),
            other => other?,
        };
        let family = match domain {
            AddressFamily::UNIX => Family::Unix,
            AddressFamily::INET => Family::Inet,
            AddressFamily::INET6 => Family::Inet6,
            other => Family::Other(other.as_raw()),
        };
        Ok(Observed {
            family,
            kind: match sockopt::socket_type(fd)? {
                SocketType::STREAM => Kind::Stream,
                SocketType::SEQPACKET => Kind::Seqpacket,
                SocketType::DGRAM => Kind::Datagram,
                other => Kind::Other(other.as_raw()),
            },
            protocol: sockopt::socket_protocol(fd)?.map(|protocol| match protocol {
                ipproto::TCP => Protocol::Tcp,
                ipproto::MPTCP => Protocol::Mptcp,
                ipproto::UDP => Protocol::Udp,
                other => Protocol::Other(other.as_raw().get()),
            }),
            local: rustix::net::getsockname(fd).ok().and_then(name),
            peer: rustix::net::getpeername(fd).ok().flatten().and_then(name),
            peer_pid: if family == Family::Unix { peer_pid(fd) } else { None },
        })
    }

    fn of_pipe(fd: BorrowedFd<'_>) -> io::Result<Observed> {
        if FileType::from_raw_mode(fstat(fd.as_fd())?.st_mode) != FileType::Fifo {
            return Err(Errno::NOTSOCK.into());
        }
        Ok(Observed {
            family: Family::Pipe,
            kind: Kind::OneWay,
            protocol: None,
            local: None,
            peer: None,
            peer_pid: None,
        })
    }

    /// Whether the name of either end passes the test. An end that the kernel does not name (`None`) does not.
    pub(crate) fn either(&self, test: fn(&Name) -> bool) -> bool {
        self.local.as_ref().is_some_and(test) || self.peer.as_ref().is_some_and(test)
    }
}

/// Size of `sockaddr_un`.
const SUN_PATH_END: u32 = 2 + 108;

fn name(address: SocketAddrAny) -> Option<Name> {
    use std::os::unix::ffi::OsStrExt;
    match address.address_family() {
        // With a path of 108 bytes the NUL is beyond `sockaddr_un`, which makes rustix panic. Any local
        // client could bind such a path.
        AddressFamily::UNIX if address.addr_len() > SUN_PATH_END => None,
        AddressFamily::UNIX => {
            let address = SocketAddrUnix::try_from(address).ok()?;
            Some(match (address.path_bytes(), address.abstract_name()) {
                (Some(path), _) => Name::Path(std::ffi::OsStr::from_bytes(path).into()),
                // rustix represents an unnamed socket by an empty abstract name.
                (None, Some(name)) if !name.is_empty() => Name::Abstract(name.to_vec()),
                (None, _) => Name::Unnamed,
            })
        }
        _ => SocketAddr::try_from(address).ok().map(Name::Inet),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Inet(address) => write!(f, "{address}"),
            Name::Path(path) => write!(f, "{}", path.display()),
            Name::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
            Name::Unnamed => f.write_str("unnamed"),
        }
    }
}

impl fmt::Display for Observed {
    /// Formats as `AF_INET stream tcp, 127.0.0.1:39218 → 127.0.0.1:7000` or `AF_UNIX stream /run/app.sock,
    /// peer pid 4711`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::Pipe => return f.write_str("pipe"),
            Family::Unix => f.write_str("AF_UNIX")?,
            Family::Inet => f.write_str("AF_INET")?,
            Family::Inet6 => f.write_str("AF_INET6")?,
            Family::Other(number) => write!(f, "address family {number}")?,
        }
        match self.kind {
            Kind::Stream => f.write_str(" stream")?,
            Kind::Seqpacket => f.write_str(" seqpacket")?,
            Kind::Datagram => f.write_str(" datagram")?,
            Kind::OneWay => f.write_str(" one way")?,
            Kind::Other(number) => write!(f, " type {number}")?,
        }
        match self.protocol {
            None => {}
            Some(Protocol::Tcp) => f.write_str(" tcp")?,
            Some(Protocol::Mptcp) => f.write_str(" mptcp")?,
            Some(Protocol::Udp) => f.write_str(" udp")?,
            Some(Protocol::Other(number)) => write!(f, " protocol {number}")?,
        }
        match (&self.local, &self.peer) {
            (Some(local @ Name::Inet(_)), Some(peer)) => write!(f, ", {local} → {peer}")?,
            (Some(Name::Unnamed) | None, Some(Name::Unnamed) | None) => {}
            (Some(Name::Unnamed) | None, Some(name)) | (Some(name), _) => write!(f, " {name}")?,
        }
        match self.peer_pid {
            Some(pid) => write!(f, ", peer pid {pid}"),
            None => Ok(()),
        }
    }
}
