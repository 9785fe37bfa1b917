//! Options of a socket as bytes, where level and name are known at run time only. Only those whose bytes are plain values: the
//! kernel would follow addresses of memory in this process (`TCP_ZEROCOPY_RECEIVE`, `SO_ATTACH_FILTER`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const SOCKET: i32 = libc::SOL_SOCKET;
/// `SO_BINDTOIFINDEX`, `SO_NETNS_COOKIE` and `SO_BUF_LOCK` of asm-generic/socket.h, which libc lacks for some C libraries.
pub const SO_BINDTOIFINDEX: i32 = 62;
pub const SO_NETNS_COOKIE: i32 = 71;
pub const SO_BUF_LOCK: i32 = 72;

/// Numbers, names, and structures of numbers. No other option is set or read here.
const PLAIN: &[(i32, i32)] = &[
    (TCP, libc::TCP_NODELAY),
    (TCP, libc::TCP_MAXSEG),
    (TCP, libc::TCP_CORK),
    (TCP, libc::TCP_KEEPIDLE),
    (TCP, libc::TCP_KEEPINTVL),
    (TCP, libc::TCP_KEEPCNT),
    (TCP, libc::TCP_SYNCNT),
    (TCP, libc::TCP_LINGER2),
    (TCP, libc::TCP_WINDOW_CLAMP),
    (TCP, libc::TCP_INFO),
    (TCP, libc::TCP_QUICKACK),
    (TCP, libc::TCP_CONGESTION),
    (TCP, libc::TCP_USER_TIMEOUT),
    (TCP, libc::TCP_NOTSENT_LOWAT),
    (TCP, libc::TCP_FASTOPEN_CONNECT),
    (IP, libc::IP_TOS),
    (IP, libc::IP_TTL),
    (IP, libc::IP_RECVERR),
    (IP, libc::IP_MTU_DISCOVER),
    (IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (IPV6, libc::IPV6_TCLASS),
    (IPV6, libc::IPV6_UNICAST_HOPS),
    (IPV6, libc::IPV6_V6ONLY),
    (IPV6, libc::IPV6_RECVERR),
    (IPV6, libc::IPV6_MTU_DISCOVER),
    (SOCKET, libc::SO_KEEPALIVE),
    (SOCKET, libc::SO_LINGER),
    (SOCKET, libc::SO_OOBINLINE),
    (SOCKET, libc::SO_RCVLOWAT),
    (SOCKET, libc::SO_RCVTIMEO),
    (SOCKET, libc::SO_SNDTIMEO),
    (SOCKET, libc::SO_SNDBUF),
    (SOCKET, libc::SO_RCVBUF),
    (SOCKET, libc::SO_MARK),
    (SOCKET, libc::SO_ZEROCOPY),
    (SOCKET, SO_BINDTOIFINDEX),
    (SOCKET, SO_NETNS_COOKIE),
    (SOCKET, SO_BUF_LOCK),
];

/// Sets an option.
///
/// # Errors
/// ENOPROTOOPT also for one that is not plain; otherwise setsockopt(2)'s.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    must_be_plain(level, name)?;
    let length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, and the kernel reads at most `length` bytes, which is the length of `value`: a plain
    // option holds no address that it would follow.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option, and returns how many bytes of `value` it takes.
///
/// # Errors
/// ENOPROTOOPT also for one that is not plain; otherwise getsockopt(2)'s.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    must_be_plain(level, name)?;
    let mut length = value.len() as libc::socklen_t;
    let to = value.as_mut_ptr().cast();
    // SAFETY: the descriptor is borrowed, and the kernel writes at most `length` bytes, which is the length of `value`: a plain
    // option holds no address that it would write to.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut length) };
    if result == 0 { Ok((length as usize).min(value.len())) } else { Err(io::Error::last_os_error()) }
}

fn must_be_plain(level: i32, name: i32) -> io::Result<()> {
    if PLAIN.contains(&(level, name)) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT)) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
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

    /// The kernel would write what it had received to an address that the bytes hold.
    #[test]
    fn an_option_that_holds_an_address_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        // struct tcp_zerocopy_receive, whose field copybuf_address is an address of memory.
        let (mut value, zerocopy_receive) = ([0; 64], 35);
        let error = option(socket.as_fd(), TCP, zerocopy_receive, &mut value).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
        for name in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF] {
            let error = set_option(socket.as_fd(), SOCKET, name, &value).expect_err("refused");
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
        }
    }
}
