//! The network namespace of a socket, as programs see it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_NETNS_COOKIE`, which libc does not have for every architecture.
const COOKIE: libc::c_int = 71;

/// A number that no other network namespace has.
///
/// # Errors
/// ENOPROTOOPT before Linux 5.14.
pub fn network(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let (descriptor, to) = (socket.as_raw_fd(), (&raw mut cookie).cast());
    // SAFETY: the descriptor is borrowed, and the kernel writes at most the 8 bytes of `cookie`.
    let result = unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, COOKIE, to, &raw mut length) };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
