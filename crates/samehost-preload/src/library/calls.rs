//! System calls, made without a C library. Each returns its value, or the number of its error.

use numbers::*;

pub type Errno = i32;
/// The longest address of any family: `struct sockaddr_storage`.
pub const LONGEST_ADDRESS: usize = 128;

/// The kernel's own answer: -4095 to -1 are errors.
const LAST_ERROR: isize = -4095;

/// One system call.
///
/// # Safety
///
/// The arguments must be such that what the kernel writes, and what it maps, is nobody else's.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the registers are those of the call, and of what it leaves undefined; the caller answers for the arguments.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// One system call.
///
/// # Safety
///
/// The arguments must be such that what the kernel writes, and what it maps, is nobody else's.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the registers are those of the call; the caller answers for the arguments.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
            in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    result
}

/// A call of the program, with its arguments as they are.
///
/// # Safety
///
/// As for the function of the C library in whose place it is made.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller promises the same.
    let result = unsafe { raw(number, arguments) };
    if (LAST_ERROR..0).contains(&result) { Err(-result as Errno) } else { Ok(result as usize) }
}

/// A call whose arguments are numbers, and that changes descriptors only.
fn by_numbers(number: usize, arguments: [usize; 4]) -> Result<usize, Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: the calls below that come here take no address.
    unsafe { call(number, [a, b, c, d, 0, 0]) }
}

pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
    by_numbers(SOCKET, [family as usize, kind as usize, protocol as usize, 0]).map(|fd| fd as i32)
}

pub fn close(fd: i32) {
    let _ = by_numbers(CLOSE, [fd as usize, 0, 0, 0]);
}

pub fn fcntl(fd: i32, command: usize, argument: usize) -> Result<usize, Errno> {
    by_numbers(FCNTL, [fd as usize, command, argument, 0])
}

/// Puts `from` in place of `to`.
pub fn replace(from: i32, to: i32, closes_on_exec: bool) -> Result<usize, Errno> {
    let flags = if closes_on_exec { O_CLOEXEC } else { 0 };
    by_numbers(DUP3, [from as usize, to as usize, flags as usize, 0])
}

/// A connection that waits at a listening socket; who it is from is not asked.
pub fn accept(fd: i32, flags: i32) -> Result<i32, Errno> {
    by_numbers(ACCEPT4, [fd as usize, 0, 0, flags as usize]).map(|fd| fd as i32)
}

fn with_address(number: usize, fd: i32, address: &[u8]) -> Result<usize, Errno> {
    // SAFETY: both calls read that many bytes at that address.
    unsafe { call(number, [fd as usize, address.as_ptr() as usize, address.len(), 0, 0, 0]) }
}

pub fn connect(fd: i32, address: &[u8]) -> Result<usize, Errno> {
    with_address(CONNECT, fd, address)
}

pub fn bind(fd: i32, address: &[u8]) -> Result<usize, Errno> {
    with_address(BIND, fd, address)
}

/// The address of this end of a socket (getsockname(2)), and its length in bytes.
pub fn own_name(fd: i32) -> Result<([u8; LONGEST_ADDRESS], usize), Errno> {
    let (mut name, mut length) = ([0; LONGEST_ADDRESS], LONGEST_ADDRESS as u32);
    let (at, length_at) = (name.as_mut_ptr() as usize, (&raw mut length) as usize);
    // SAFETY: the call writes at most as many bytes as `length` says, and `length`.
    unsafe { call(GETSOCKNAME, [fd as usize, at, length_at, 0, 0, 0]) }?;
    Ok((name, (length as usize).min(LONGEST_ADDRESS)))
}

/// An option's value, and how many bytes of it there are.
pub fn option<const N: usize>(fd: i32, level: i32, name: i32) -> Result<([u8; N], usize), Errno> {
    let (mut value, mut length) = ([0; N], N as u32);
    let (at, length_at) = (value.as_mut_ptr() as usize, (&raw mut length) as usize);
    // SAFETY: the call writes at most as many bytes as `length` says, and `length`.
    unsafe { call(GETSOCKOPT, [fd as usize, level as usize, name as usize, at, length_at, 0]) }?;
    Ok((value, (length as usize).min(N)))
}

pub fn number(fd: i32, name: i32) -> Result<u32, Errno> {
    option::<4>(fd, SOL_SOCKET, name).map(|(value, _)| u32::from_ne_bytes(value))
}

/// Names a socket as long as this kernel runs.
pub fn cookie(fd: i32) -> Result<u64, Errno> {
    option::<8>(fd, SOL_SOCKET, SO_COOKIE).map(|(value, _)| u64::from_ne_bytes(value))
}

pub fn set_option(fd: i32, name: i32, value: &[u8]) -> Result<usize, Errno> {
    let at = value.as_ptr() as usize;
    // SAFETY: the call reads that many bytes at that address.
    unsafe { call(SETSOCKOPT, [fd as usize, SOL_SOCKET as usize, name as usize, at, value.len(), 0]) }
}

pub fn set_number(fd: i32, name: i32, value: u32) -> Result<usize, Errno> {
    set_option(fd, name, &value.to_ne_bytes())
}

pub fn epoll() -> Result<i32, Errno> {
    by_numbers(EPOLL_CREATE1, [EPOLL_CLOEXEC, 0, 0, 0]).map(|fd| fd as i32)
}

/// `struct epoll_event`, which has no gap on x86_64 only; nothing of it is looked at.
type Event = [u32; 4];

/// Has a set watch a socket, once.
pub fn watch(epoll: i32, fd: i32) -> Result<usize, Errno> {
    let event: Event = [EPOLLONESHOT, 0, 0, 0];
    // SAFETY: the call reads one event, which is not longer than this.
    unsafe {
        call(EPOLL_CTL, [epoll as usize, EPOLL_CTL_ADD, fd as usize, (&raw const event) as usize, 0, 0])
    }
}

/// Whether a set has anything to report.
pub fn reports(epoll: i32) -> bool {
    let mut event: Event = [0; 4];
    // SAFETY: the call writes at most one event, which is not longer than this.
    let result = unsafe { call(EPOLL_PWAIT, [epoll as usize, (&raw mut event) as usize, 1, 0, 0, 0]) };
    result == Ok(1)
}

/// Whether a path, which ends with a zero, is that of a socket; a link is none.
pub fn is_socket_file(path: &[u8]) -> bool {
    /// At least as long as `struct stat` on either processor.
    const STAT: usize = 256;
    let Some(path) = ended(path) else { return false };
    let mut stat = [0_u8; STAT];
    let at = stat.as_mut_ptr() as usize;
    // SAFETY: the path ends with a zero, and the call writes one `struct stat`, which is not longer than this.
    let result =
        unsafe { call(NEWFSTATAT, [AT_FDCWD, path.as_ptr() as usize, at, AT_SYMLINK_NOFOLLOW, 0, 0]) };
    let mode = stat.get(ST_MODE..).and_then(<[u8]>::first_chunk::<4>);
    result.is_ok() && mode.is_some_and(|mode| u32::from_ne_bytes(*mode) & S_IFMT == S_IFSOCK)
}

/// Removes a file by its path, which ends with a zero.
pub fn remove(path: &[u8]) {
    if let Some(path) = ended(path) {
        // SAFETY: the path ends with a zero.
        let _ = unsafe { call(UNLINKAT, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0]) };
    }
}

/// Bytes that end with a zero, which is what a path must do.
fn ended(path: &[u8]) -> Option<&[u8]> {
    Some(path).filter(|path| path.contains(&0))
}

/// A page of a file that others write to as well. Its path ends with a zero.
pub fn shared_page(path: &[u8], length: usize) -> Option<*mut u8> {
    let path = ended(path)?;
    let flags = O_RDWR | O_CLOEXEC as usize;
    // SAFETY: the path ends with a zero.
    let fd = unsafe { call(OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0]) }.ok()?;
    // SAFETY: the kernel chooses a place that nobody has.
    let page = unsafe { call(MMAP, [0, length, PROT_READ_WRITE, MAP_SHARED, fd, 0]) };
    close(fd as i32);
    page.ok().map(|at| at as *mut u8)
}

/// How many descriptors a process may have, within reason.
pub fn most_descriptors() -> i32 {
    const MOST: u64 = 65_536;
    let mut limits = [0_u64; 2];
    // SAFETY: the call writes a limit and the highest that may be set, two numbers of 8 bytes.
    let result = unsafe { call(PRLIMIT64, [0, RLIMIT_NOFILE, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    result.map_or(MOST, |_| limits[0].min(MOST)) as i32
}

/// Numbers of Linux: system calls by processor, and what is the same on both.
pub mod numbers {
    #[cfg(target_arch = "x86_64")]
    mod of_processor {
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
    mod of_processor {
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

    pub use of_processor::*;

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
}
