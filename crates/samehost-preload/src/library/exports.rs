//! The functions that stand before those of the C library. What is not mapped goes to the kernel as it came.

use core::ffi::{c_int, c_void};

use super::calls::numbers::*;
use super::calls::{self, Errno, LONGEST_ADDRESS};
use super::exchange::{self, Owned, TRIED, WATCHED};
use super::label::{Address, Label};

type Length = u32;

unsafe extern "C" {
    /// Where this thread's `errno` is; both glibc and musl have it.
    safe fn __errno_location() -> *mut c_int;
}

/// A call's result as C has it.
fn finish(result: Result<usize, Errno>) -> c_int {
    match result {
        Ok(value) => value as c_int,
        Err(errno) => {
            let at = __errno_location();
            // SAFETY: the C library gives the place of this thread's own number.
            unsafe { at.write(errno) };
            -1
        }
    }
}

/// The address that a program gives.
///
/// # Safety
///
/// There must be as many bytes as `length` says, which is what the kernel asks for too.
unsafe fn given(address: *const c_void, length: Length) -> Option<Address> {
    let length = (length as usize).min(LONGEST_ADDRESS);
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller promises so many bytes.
    Address::parse(unsafe { core::slice::from_raw_parts(address.cast::<u8>(), length) })
}

/// Writes bytes where there is room for as many as the length says, and then the length that they have.
///
/// # Safety
///
/// There must be that much room, which is what the kernel asks for too.
unsafe fn give(bytes: &[u8], to: *mut c_void, length: *mut Length) -> Result<usize, Errno> {
    if to.is_null() || length.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: the caller promises a length there.
    let room = unsafe { length.read_unaligned() };
    let room = usize::try_from(room as i32).map_err(|_| EINVAL)?;
    // SAFETY: no more than there is room for, and nobody else's.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(room)) };
    // SAFETY: the length is where it was read.
    unsafe { length.write_unaligned(bytes.len() as Length) };
    Ok(0)
}

/// # Safety
///
/// None but that of every function in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let result = calls::socket(family, kind, protocol);
    if let Ok(fd) = result {
        WATCHED.forget(fd);
        TRIED.forget(fd);
    }
    finish(result.map(|fd| fd as usize))
}

/// # Safety
///
/// As for connect(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn connect(fd: c_int, address: *const c_void, length: Length) -> c_int {
    // SAFETY: the program promises so many bytes.
    let to = unsafe { given(address, length) };
    if let Some(answer) = to.and_then(|to| exchange::connect(fd, &to)) {
        return finish(answer);
    }
    // SAFETY: they are the program's arguments.
    finish(unsafe { calls::call(CONNECT, [fd as usize, address as usize, length as usize, 0, 0, 0]) })
}

/// # Safety
///
/// As for bind(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, address: *const c_void, length: Length) -> c_int {
    // SAFETY: the program promises so many bytes.
    let to = unsafe { given(address, length) };
    if let Some(answer) = to.and_then(|to| exchange::bind(fd, &to)) {
        return finish(answer);
    }
    // SAFETY: they are the program's arguments.
    finish(unsafe { calls::call(BIND, [fd as usize, address as usize, length as usize, 0, 0, 0]) })
}

/// # Safety
///
/// As for accept4(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut c_void,
    length: *mut Length,
    flags: c_int,
) -> c_int {
    match exchange::accept(fd, flags) {
        Some(Ok((accepted, from))) => {
            if !address.is_null() {
                let (bytes, count) = from.bytes();
                // SAFETY: the program promises room for as many bytes as the length says.
                let given = unsafe { give(&bytes[..count], address, length) };
                if given.is_err() {
                    calls::close(accepted);
                    return finish(given);
                }
            }
            finish(Ok(accepted as usize))
        }
        Some(Err(errno)) => finish(Err(errno)),
        None => {
            let arguments = [fd as usize, address as usize, length as usize, flags as usize, 0, 0];
            // SAFETY: they are the program's arguments.
            finish(unsafe { calls::call(ACCEPT4, arguments) })
        }
    }
}

/// # Safety
///
/// As for accept(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut c_void, length: *mut Length) -> c_int {
    // SAFETY: the same arguments.
    unsafe { accept4(fd, address, length, 0) }
}

/// A name of a socket: that of TCP where it was replaced, otherwise the kernel's.
///
/// # Safety
///
/// As for getsockname(2).
unsafe fn name(
    number: usize,
    of: fn(Label) -> Option<Address>,
    fd: c_int,
    address: *mut c_void,
    length: *mut Length,
) -> c_int {
    let Some(label) = Label::of(fd) else {
        // SAFETY: they are the program's arguments.
        return finish(unsafe {
            calls::call(number, [fd as usize, address as usize, length as usize, 0, 0, 0])
        });
    };
    let Some(its) = of(label) else { return finish(Err(ENOTCONN)) };
    let (bytes, count) = its.bytes();
    // SAFETY: the program promises room for as many bytes as the length says.
    finish(unsafe { give(&bytes[..count], address, length) })
}

/// # Safety
///
/// As for getsockname(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockname(fd: c_int, address: *mut c_void, length: *mut Length) -> c_int {
    // SAFETY: the same arguments.
    unsafe { name(GETSOCKNAME, |label| Some(label.own_address()), fd, address, length) }
}

/// # Safety
///
/// As for getpeername(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getpeername(fd: c_int, address: *mut c_void, length: *mut Length) -> c_int {
    // SAFETY: the same arguments.
    unsafe { name(GETPEERNAME, Label::peer_address, fd, address, length) }
}

/// # Safety
///
/// As for getsockopt(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut Length,
) -> c_int {
    // SAFETY: they are the program's arguments, and the descriptor is one like its own.
    let address_of = |fd: c_int| unsafe {
        let arguments = [fd as usize, level as usize, option as usize, value as usize, length as usize, 0];
        calls::call(GETSOCKOPT, arguments)
    };
    let label = is_of_interest(level, option).then(|| Label::of(fd)).flatten();
    let Some(label) = label else { return finish(address_of(fd)) };
    finish(match asked(fd, label, level, option) {
        Asked::OfEvery => address_of(fd),
        Asked::OfTcp => stand_in(label).and_then(|tcp| address_of(tcp.0)),
        // SAFETY: the program promises room for as many bytes as the length says.
        Asked::Number(number) => unsafe { give(&number.to_ne_bytes(), value, length) },
        Asked::State(state) => stand_in(label).and_then(|tcp| address_of(tcp.0)).inspect(|_| {
            // SAFETY: the kernel wrote there, and the length.
            if unsafe { length.read_unaligned() } > 0 {
                // SAFETY: at least one byte was written there.
                unsafe { value.cast::<u8>().write(state) };
            }
        }),
    })
}

/// # Safety
///
/// As for setsockopt(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: Length,
) -> c_int {
    // SAFETY: they are the program's arguments, and the descriptor is one like its own.
    let address_of = |fd: c_int| unsafe {
        let arguments = [fd as usize, level as usize, option as usize, value as usize, length as usize, 0];
        calls::call(SETSOCKOPT, arguments)
    };
    let label = is_of_interest(level, option).then(|| Label::of(fd)).flatten();
    // What a fresh TCP socket takes is taken, and has no effect: a Unix socket has nothing of it.
    finish(match label {
        Some(label) => stand_in(label).and_then(|tcp| address_of(tcp.0)),
        None => address_of(fd),
    })
}

/// # Safety
///
/// As for epoll_ctl(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut c_void) -> c_int {
    // Before the call: another thread may connect the socket meanwhile.
    if what as usize == EPOLL_CTL_ADD {
        WATCHED.note(fd);
    }
    let arguments = [epoll as usize, what as usize, fd as usize, event as usize, 0, 0];
    // SAFETY: they are the program's arguments.
    let result = unsafe { calls::call(EPOLL_CTL, arguments) };
    if what as usize == EPOLL_CTL_DEL && result.is_ok() {
        WATCHED.forget(fd);
    }
    finish(result)
}

// Options of a socket that was replaced, as TCP has them.

/// The first byte of `struct tcp_info`.
const ESTABLISHED: u8 = 1;
const LISTENING: u8 = 10;

/// What is done with an option of a socket that was replaced.
enum Asked {
    /// Asked of the Unix socket itself.
    OfEvery,
    /// Answered with this number.
    Number(u32),
    /// Asked of a fresh TCP socket, which knows what the option takes and gives.
    OfTcp,
    /// As [`Asked::OfTcp`], with this as the first byte of the value.
    State(u8),
}

/// Whether an option may be answered otherwise than by the Unix socket.
fn is_of_interest(level: i32, name: i32) -> bool {
    let of_socket = [SO_DOMAIN, SO_PROTOCOL, SO_PRIORITY, SO_MAX_PACING_RATE, SO_REUSEPORT];
    [IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6].contains(&level)
        || level == SOL_SOCKET && of_socket.contains(&name)
}

fn asked(fd: i32, label: Label, level: i32, name: i32) -> Asked {
    match (level, name) {
        (SOL_SOCKET, SO_DOMAIN) => Asked::Number(if label.kind.is_v4() { AF_INET } else { AF_INET6 } as u32),
        (SOL_SOCKET, SO_PROTOCOL) => Asked::Number(IPPROTO_TCP as u32),
        // A Unix socket never waits to send.
        (IPPROTO_TCP, TCP_NODELAY) => Asked::Number(1),
        (IPPROTO_TCP, TCP_INFO) => {
            let listens = calls::number(fd, SO_ACCEPTCONN).is_ok_and(|value| value != 0);
            Asked::State(if listens { LISTENING } else { ESTABLISHED })
        }
        (SOL_SOCKET, SO_PRIORITY | SO_MAX_PACING_RATE) => Asked::OfTcp,
        (SOL_SOCKET, _) => Asked::OfEvery,
        _ => Asked::OfTcp,
    }
}

/// A TCP socket of the family that the program believes it has.
fn stand_in(label: Label) -> Result<Owned, Errno> {
    let family = if label.kind.is_v4() { AF_INET } else { AF_INET6 };
    calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP).map(Owned)
}
