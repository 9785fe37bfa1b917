//! The few socket calls that all transports share. Knows errno, not endpoints; makes no messages.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// How far a started connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// Connected: a Unix socket always is at once, or fails at once.
    Done,
    /// On its way (EINPROGRESS): writable when done; `Stream::take_error` then says how it ended.
    InProgress,
}

/// Whether a new socket blocks.
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
    if family == AddressFamily::INET || family == AddressFamily::INET6 {
        // Without it a request that takes two writes waits for the delayed ACK of the first (40 ms): the hop
        // would measure Nagle's algorithm and not the transport. Both ends set it, as every server and client
        // library of note does.
        sockopt::set_tcp_nodelay(&fd, true)?;
    }
    Ok(fd)
}

/// connect(2) on a blocking socket, within the time allowed.
///
/// The time limit is `SO_SNDTIMEO`, which connect(2) honours for both families: EINPROGRESS is a TCP handshake
/// that took too long, EAGAIN a Unix backlog that stayed full.
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
            // A signal: connect(2) on the same blocking socket goes on waiting.
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

/// connect(2) on a nonblocking socket, once.
pub(crate) fn start(fd: &OwnedFd, address: &impl SocketAddrArg) -> Result<Connecting, Errno> {
    match retry_on_intr(|| net::connect(fd, address)) {
        Ok(()) | Err(Errno::ISCONN) => Ok(Connecting::Done),
        Err(Errno::INPROGRESS | Errno::ALREADY) => Ok(Connecting::InProgress),
        Err(errno) => Err(errno),
    }
}

/// When a time limit ends; one beyond the clock's reach is none.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// What is left until the deadline, at least a microsecond: zero would mean "for ever" to the kernel.
pub(crate) fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1))
}

/// The process at the other end of a connected Unix socket, where the kernel can tell.
pub(crate) fn peer_pid(fd: impl AsFd) -> Option<u32> {
    let credentials = sockopt::socket_peercred(fd).ok()?;
    // A peer in another PID namespace is pid 0, which `Pid` says cannot be; the box keeps the test alive.
    let pid = std::hint::black_box(credentials.pid.as_raw_pid());
    u32::try_from(pid).ok().filter(|&pid| pid > 0)
}
