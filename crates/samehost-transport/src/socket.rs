//! Socket calls that all transports share. Handles errno, not endpoints; creates no messages.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// State of a started connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// Connected. A Unix socket connects or fails immediately.
    Done,
    /// In progress (EINPROGRESS): becomes writable when done; `Stream::take_error` then returns the result.
    InProgress,
}

/// Whether a new socket is blocking.
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

/// Deadline of a time limit; `None` if it exceeds the clock's range.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
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
    u32::try_from(pid).ok().filter(|&pid| pid > 0)
}
