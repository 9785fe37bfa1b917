//! Numbers of Linux: system calls by processor, and what is the same on both.

#[cfg(target_arch = "x86_64")]
mod calls {
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const BIND: usize = 49;
    pub const GETSOCKNAME: usize = 51;
    pub const GETPEERNAME: usize = 52;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const FCNTL: usize = 72;
    pub const EPOLL_CTL: usize = 233;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const UNLINKAT: usize = 263;
    pub const EPOLL_PWAIT: usize = 281;
    pub const ACCEPT4: usize = 288;
    pub const EPOLL_CREATE1: usize = 291;
    pub const DUP3: usize = 292;
    pub const PRLIMIT64: usize = 302;
    /// Where `struct stat` has the type of a file.
    pub const ST_MODE: usize = 24;
}

#[cfg(target_arch = "aarch64")]
mod calls {
    pub const EPOLL_CREATE1: usize = 20;
    pub const EPOLL_CTL: usize = 21;
    pub const EPOLL_PWAIT: usize = 22;
    pub const DUP3: usize = 24;
    pub const FCNTL: usize = 25;
    pub const UNLINKAT: usize = 35;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const NEWFSTATAT: usize = 79;
    pub const SOCKET: usize = 198;
    pub const BIND: usize = 200;
    pub const CONNECT: usize = 203;
    pub const GETSOCKNAME: usize = 204;
    pub const GETPEERNAME: usize = 205;
    pub const SETSOCKOPT: usize = 208;
    pub const GETSOCKOPT: usize = 209;
    pub const MMAP: usize = 222;
    pub const ACCEPT4: usize = 242;
    pub const PRLIMIT64: usize = 261;
    /// Where `struct stat` has the type of a file.
    pub const ST_MODE: usize = 16;
}

pub use calls::*;

pub const AF_UNIX: i32 = 1;
pub const EPERM: i32 = 1;
pub const EACCES: i32 = 13;
pub const EAFNOSUPPORT: i32 = 97;
pub const AF_INET: i32 = 2;
pub const AF_INET6: i32 = 10;
pub const SOCK_STREAM: i32 = 1;
pub const SOCK_CLOEXEC: i32 = 0o2_000_000;
pub const SOCK_NONBLOCK: i32 = O_NONBLOCK;

pub const F_GETFD: usize = 1;
pub const F_GETFL: usize = 3;
pub const F_SETFL: usize = 4;
pub const FD_CLOEXEC: usize = 1;
pub const O_RDWR: usize = 2;
pub const O_NONBLOCK: i32 = 0o4_000;
pub const O_ASYNC: usize = 0o20_000;
pub const O_CLOEXEC: i32 = 0o2_000_000;
pub const AT_FDCWD: usize = -100_isize as usize;
pub const AT_SYMLINK_NOFOLLOW: usize = 0x100;
pub const S_IFMT: u32 = 0o170_000;
pub const S_IFSOCK: u32 = 0o140_000;
pub const PROT_READ_WRITE: usize = 3;
pub const MAP_SHARED: usize = 1;
pub const EPOLL_CLOEXEC: usize = 0o2_000_000;
pub const EPOLL_CTL_ADD: usize = 1;
pub const EPOLL_CTL_DEL: usize = 2;
pub const EPOLLONESHOT: u32 = 1 << 30;
pub const RLIMIT_NOFILE: usize = 7;

pub const EFAULT: i32 = 14;
pub const EINVAL: i32 = 22;
pub const EADDRINUSE: i32 = 98;
pub const EISCONN: i32 = 106;
pub const ENOTCONN: i32 = 107;
pub const ECONNREFUSED: i32 = 111;

pub const SOL_SOCKET: i32 = 1;
pub const IPPROTO_IP: i32 = 0;
pub const IPPROTO_TCP: i32 = 6;
pub const IPPROTO_IPV6: i32 = 41;
pub const IPPROTO_MPTCP: i32 = 262;
pub const SO_SNDBUF: i32 = 7;
pub const SO_RCVBUF: i32 = 8;
pub const SO_KEEPALIVE: i32 = 9;
pub const SO_OOBINLINE: i32 = 10;
pub const SO_PRIORITY: i32 = 12;
pub const SO_LINGER: i32 = 13;
pub const SO_REUSEPORT: i32 = 15;
pub const SO_RCVLOWAT: i32 = 18;
pub const SO_RCVTIMEO: i32 = 20;
pub const SO_SNDTIMEO: i32 = 21;
pub const SO_ACCEPTCONN: i32 = 30;
pub const SO_MARK: i32 = 36;
pub const SO_PROTOCOL: i32 = 38;
pub const SO_DOMAIN: i32 = 39;
pub const SO_MAX_PACING_RATE: i32 = 47;
pub const SO_COOKIE: i32 = 57;
pub const SO_ZEROCOPY: i32 = 60;
pub const SO_BINDTOIFINDEX: i32 = 62;
pub const SO_NETNS_COOKIE: i32 = 71;
pub const SO_BUF_LOCK: i32 = 72;
pub const TCP_NODELAY: i32 = 1;
pub const TCP_INFO: i32 = 11;
pub const IPV6_V6ONLY: i32 = 26;
