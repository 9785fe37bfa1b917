//! Socket calls that all transports share, and the kernel's addresses of endpoints. Handles errno, and creates no messages of
//! endpoints. Pure except for the sockets that it is asked for and for name resolution.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use samehost_model::{Endpoint, Transport, UNIX_PATH_MAX};

/// State of a started connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// Connected. A Unix socket connects or fails immediately.
    Done,
    /// In progress (EINPROGRESS): becomes writable when done; `Stream::take_error` then returns the result.
    InProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    Yes,
    No,
}

/// A new close-on-exec socket.
pub(crate) fn open(family: AddressFamily, kind: SocketType, blocking: Blocking) -> Result<OwnedFd, Errno> {
    let flags = match blocking {
        Blocking::Yes => SocketFlags::CLOEXEC,
        Blocking::No => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
    };
    let fd = net::socket_with(family, kind, flags, None)?;
    if kind == SocketType::STREAM && matches!(family, AddressFamily::INET | AddressFamily::INET6) {
        // Without TCP_NODELAY, a request in two writes waits for the delayed ACK of the first (40 ms), and
        // the measurement would show Nagle's algorithm instead of the transport. Both ends set it, as all
        // major servers and client libraries do.
        sockopt::set_tcp_nodelay(&fd, true)?;
    }
    Ok(fd)
}

/// A new close-on-exec socket of an address's family.
pub(crate) fn open_for(address: SocketAddr, kind: SocketType, blocking: Blocking) -> Result<OwnedFd, Errno> {
    open(if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET }, kind, blocking)
}

/// connect(2) on a blocking socket, with a deadline.
///
/// The time limit is `SO_SNDTIMEO`, which connect(2) honours for both families: EINPROGRESS means that a TCP
/// handshake took too long, EAGAIN that a Unix socket's backlog stayed full.
pub(crate) fn connect(
    fd: &OwnedFd,
    address: &impl SocketAddrArg,
    deadline: Option<Instant>,
) -> Result<(), Errno> {
    loop {
        if let Some(deadline) = deadline {
            sockopt::set_socket_timeout(fd, Timeout::Send, Some(remaining(deadline)))?;
        }
        match net::connect(fd, address) {
            // After a signal, connect(2) on the same blocking socket continues waiting.
            Err(Errno::INTR) => {}
            Ok(()) | Err(Errno::ISCONN) => break,
            Err(errno) => return Err(errno),
        }
    }
    if deadline.is_some() {
        sockopt::set_socket_timeout(fd, Timeout::Send, None)?;
    }
    Ok(())
}

/// A single connect(2) on a nonblocking socket.
pub(crate) fn start(fd: &OwnedFd, address: &impl SocketAddrArg) -> Result<Connecting, Errno> {
    match retry_on_intr(|| net::connect(fd, address)) {
        Ok(()) | Err(Errno::ISCONN) => Ok(Connecting::Done),
        Err(Errno::INPROGRESS | Errno::ALREADY) => Ok(Connecting::InProgress),
        Err(errno) => Err(errno),
    }
}

/// Deadline of a time limit; `None` without a limit, or if it exceeds the clock's range.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    let timeout = timeout?;
    Instant::now().checked_add(timeout)
}

/// Time until the deadline, at least one microsecond, because zero means no limit to the kernel.
pub(crate) fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1))
}

/// The process at the other end of a connected Unix socket, if the kernel reports it.
pub(crate) fn peer_pid(fd: impl AsFd) -> Option<u32> {
    let credentials = sockopt::socket_peercred(fd).ok()?;
    // A peer in another PID namespace has pid 0, which is invalid for `Pid`; black_box keeps the compiler
    // from removing the check.
    let pid = std::hint::black_box(credentials.pid.as_raw_pid());
    let pid = u32::try_from(pid).ok()?;
    if pid > 0 { Some(pid) } else { None }
}

/// Why a path or name cannot be a Unix socket's address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// Longer than `sun_path`.
    #[error(
        "`{path}` is {length} bytes long and a Unix socket's address holds at most {UNIX_PATH_MAX}; use a shorter directory such as /run/NAME, a symbolic link to this one, or a path relative to the working directory",
        path = .0.display(), length = .0.as_os_str().len()
    )]
    TooLong(PathBuf),
    /// Empty: the kernel would bind an abstract name.
    #[error("the path or name of the Unix socket is empty; write unix:/run/NAME/NAME.sock or abstract:NAME")]
    Empty,
    /// A NUL byte would truncate the path, so that it names another file.
    #[error("the path {0:?} has a NUL byte; a socket's path cannot hold one, remove it")]
    Nul(PathBuf),
}

fn checked(path: &Path) -> Result<&[u8], AddressError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(AddressError::Empty);
    }
    if bytes.contains(&0) {
        return Err(AddressError::Nul(path.to_owned()));
    }
    if bytes.len() > UNIX_PATH_MAX {
        return Err(AddressError::TooLong(path.to_owned()));
    }
    Ok(bytes)
}

/// Address of a socket file. Also checks endpoints that were not created by `Endpoint::from_str`.
pub(crate) fn unix_path(path: &Path) -> Result<SocketAddrUnix, AddressError> {
    checked(path)?;
    SocketAddrUnix::new(path).map_err(|_| AddressError::TooLong(path.to_owned()))
}

/// Address of an abstract name.
pub(crate) fn abstract_name(name: &str) -> Result<SocketAddrUnix, AddressError> {
    let bytes = checked(Path::new(name))?;
    SocketAddrUnix::new_abstract_name(bytes).map_err(|_| AddressError::TooLong(name.into()))
}

/// Addresses of an endpoint's host, one at least, those of its own family first. Literals are not passed to the resolver.
pub(crate) fn look_up(endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    let (Endpoint::Tcp { host, port } | Endpoint::TcpTls { host, port }) = endpoint else {
        return Err(Errno::AFNOSUPPORT.into());
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, *port)]);
    }
    let mut addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
    addresses.sort_by_key(|address| address.is_ipv6() != (endpoint.transport() == Transport::Tcp6));
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn paths_are_checked_wherever_they_come_from() {
        assert!(unix_path(Path::new(&"p".repeat(UNIX_PATH_MAX))).is_ok());
        let long = "p".repeat(UNIX_PATH_MAX + 1);
        let error = unix_path(Path::new(&long)).unwrap_err();
        assert_eq!(error, AddressError::TooLong(long.into()));
        let text = error.to_string();
        assert!(text.contains("is 108 bytes long") && text.contains("symbolic link"), "{text}");
        assert_eq!(unix_path(Path::new("")).unwrap_err(), AddressError::Empty);
        assert_eq!(unix_path(Path::new("a\0b")).unwrap_err(), AddressError::Nul("a\0b".into()));
        assert_eq!(abstract_name("").unwrap_err(), AddressError::Empty);
    }

    #[test]
    fn literals_need_no_resolver_and_names_prefer_the_family() {
        for address in ["127.0.0.1:7", "[::1]:7"] {
            let endpoint = format!("tcp:{address}").parse().unwrap();
            assert_eq!(look_up(&endpoint).unwrap(), [address.parse().unwrap()]);
        }
        assert!(look_up(&"tcp:localhost:7".parse().unwrap()).unwrap()[0].is_ipv4());
    }
}
