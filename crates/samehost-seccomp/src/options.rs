//! Options of a socket as bytes, where level and name are known at run time only. Options whose bytes hold addresses of
//! memory must not come here: the kernel would follow them in this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, and the kernel reads `length` bytes, which is the length of `value`.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option, and returns how many bytes of `value` it takes.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    let to = value.as_mut_ptr().cast();
    // SAFETY: the descriptor is borrowed, and the kernel writes at most `length` bytes, which is the length of `value`.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut length) };
    if result == 0 { Ok((length as usize).min(value.len())) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_option_is_read_as_it_was_set() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let mut value = [0; 4];
        for wanted in [1_i32, 0] {
            set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &wanted.to_ne_bytes())
                .expect("set");
            let length =
                option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &mut value).expect("read");
            assert_eq!((length, i32::from_ne_bytes(value)), (4, wanted));
        }
        assert_eq!(
            option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &mut value[..1]).expect("read"),
            1
        );
        let error = set_option(socket.as_fd(), libc::IPPROTO_TCP, 9999, &value).expect_err("no such option");
        assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
