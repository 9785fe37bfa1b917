//! Addresses and options of TCP, answered for the Unix sockets that stand in for it. Calls for any other socket go on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use samehost_seccomp::{Answer, Call, Listener, Trap, option, set_option};

use super::address;
use super::replaced::{Replaced, SetOption, Sockets};
use super::thread::{Socket, Thread};

const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const SOCKET: i32 = libc::SOL_SOCKET;

/// Options that are plain numbers or names. Others hold addresses of the program's memory, or act on the network: a program
/// that asks for those is told that there are none.
const KNOWN: &[(i32, i32)] = &[
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
];

/// Those that a program may have set before it connects.
const TAKEN_OVER: &[(i32, i32)] = &[
    (TCP, libc::TCP_NODELAY),
    (TCP, libc::TCP_KEEPIDLE),
    (TCP, libc::TCP_KEEPINTVL),
    (TCP, libc::TCP_KEEPCNT),
    (TCP, libc::TCP_USER_TIMEOUT),
    (IP, libc::IP_TOS),
    (IPV6, libc::IPV6_TCLASS),
];

/// Longest value of an option, in bytes; the longest known is `struct tcp_info`.
const LONGEST: usize = 1024;
/// Options kept for a socket; setting one again counts once.
const MOST: usize = 64;
/// The first byte of `struct tcp_info`.
const ESTABLISHED: u8 = 1;

/// The calls that stop, with `connect`.
pub const TRAPS: &[Trap] = &[
    Trap { call: libc::SYS_connect, when: &[] },
    Trap { call: libc::SYS_getpeername, when: &[] },
    Trap { call: libc::SYS_getsockname, when: &[] },
    Trap { call: libc::SYS_setsockopt, when: &[&[(1, TCP as u32)], &[(1, IP as u32)], &[(1, IPV6 as u32)]] },
    Trap {
        call: libc::SYS_getsockopt,
        when: &[
            &[(1, TCP as u32)],
            &[(1, IP as u32)],
            &[(1, IPV6 as u32)],
            &[(1, SOCKET as u32), (2, libc::SO_DOMAIN as u32)],
            &[(1, SOCKET as u32), (2, libc::SO_PROTOCOL as u32)],
        ],
    },
    // Rare, and not to be seen afterwards.
    Trap { call: libc::SYS_landlock_restrict_self, when: &[] },
];

/// The answer for a socket that was replaced; None where it is another.
pub fn answer(sockets: &mut Sockets, listener: &Listener, call: &Call) -> Option<Answer> {
    if sockets.is_empty() {
        return None;
    }
    let thread = Thread::open(call.thread).ok()?;
    let descriptor = call.arguments[0] as i32;
    if !sockets.may_have(thread.socket_inode(descriptor)?) {
        return None;
    }
    let memory = thread.memory(OFlags::RDWR).ok()?;
    let socket = thread.socket(descriptor, || listener.is_waiting(call.id)).ok()??;
    let replaced = socket.is_unix().then(|| sockets.get(socket.cookie().ok()?)).flatten()?;
    // From here on the memory is surely the caller's: it still waits, and the file is of what it had when it was opened.
    if !listener.is_waiting(call.id) {
        return None;
    }
    let arguments = call.arguments;
    let result = match call.number {
        libc::SYS_getpeername => {
            write_value(&memory, &address::bytes(replaced.peer), arguments[1], arguments[2])
        }
        libc::SYS_getsockname => {
            write_value(&memory, &address::bytes(replaced.local), arguments[1], arguments[2])
        }
        libc::SYS_setsockopt => set(&memory, replaced, arguments),
        libc::SYS_getsockopt => get(&memory, replaced, arguments),
        _ => return None,
    };
    Some(match result {
        Ok(()) => Answer::Value(0),
        Err(error) => Answer::Error(error.raw_os_error().unwrap_or(libc::EFAULT)),
    })
}

/// The options that a TCP socket has and that its replacement is asked for.
pub fn options_of(socket: &Socket) -> Vec<SetOption> {
    let read = |(level, name): &(i32, i32)| {
        let mut value = [0; 4];
        let length = option(socket.own.as_fd(), *level, *name, &mut value).ok()?;
        Some((*level, *name, value[..length].to_vec()))
    };
    TAKEN_OVER.iter().filter_map(read).collect()
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn word(memory: &std::fs::File, at: u64) -> io::Result<i32> {
    let mut bytes = [0; 4];
    memory.read_exact_at(&mut bytes, at).map_err(|_| errno(libc::EFAULT))?;
    Ok(i32::from_ne_bytes(bytes))
}

fn write(memory: &std::fs::File, bytes: &[u8], at: u64) -> io::Result<()> {
    memory.write_all_at(bytes, at).map_err(|_| errno(libc::EFAULT))
}

/// Writes an address where there is room for as many bytes as the length says, and then its real length.
fn write_value(memory: &std::fs::File, bytes: &[u8], at: u64, length_at: u64) -> io::Result<()> {
    let room = usize::try_from(word(memory, length_at)?).map_err(|_| errno(libc::EINVAL))?;
    write(memory, &bytes[..bytes.len().min(room)], at)?;
    write(memory, &(bytes.len() as i32).to_ne_bytes(), length_at)
}

/// A TCP socket that is as the program wants to see its own: the kernel knows what each option takes and gives.
fn stand_in(replaced: &Replaced) -> io::Result<OwnedFd> {
    let family = if replaced.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    for (level, name, value) in &replaced.options {
        let _ = set_option(socket.as_fd(), *level, *name, value);
    }
    Ok(socket)
}

fn set(memory: &std::fs::File, replaced: &mut Replaced, arguments: [u64; 6]) -> io::Result<()> {
    let (level, name) = (arguments[1] as i32, arguments[2] as i32);
    let length = usize::try_from(arguments[4] as i32).map_err(|_| errno(libc::EINVAL))?;
    let is_full = replaced.options.len() >= MOST;
    if !KNOWN.contains(&(level, name)) || length > LONGEST || is_full {
        return Err(errno(libc::ENOPROTOOPT));
    }
    let mut value = vec![0; length];
    memory.read_exact_at(&mut value, arguments[3]).map_err(|_| errno(libc::EFAULT))?;
    set_option(stand_in(replaced)?.as_fd(), level, name, &value)?;
    replaced.options.retain(|(of, called, _)| (*of, *called) != (level, name));
    replaced.options.push((level, name, value));
    Ok(())
}

fn get(memory: &std::fs::File, replaced: &Replaced, arguments: [u64; 6]) -> io::Result<()> {
    let (level, name) = (arguments[1] as i32, arguments[2] as i32);
    let room = usize::try_from(word(memory, arguments[4])?).map_err(|_| errno(libc::EINVAL))?;
    let mut value = vec![0; room.min(LONGEST)];
    let length = match (level, name) {
        (SOCKET, libc::SO_DOMAIN) => number(&mut value, family(replaced.peer)),
        (SOCKET, libc::SO_PROTOCOL) => number(&mut value, TCP),
        _ if KNOWN.contains(&(level, name)) => {
            let length = option(stand_in(replaced)?.as_fd(), level, name, &mut value)?;
            if (level, name) == (TCP, libc::TCP_INFO) && length > 0 {
                value[0] = ESTABLISHED;
            }
            length
        }
        _ => return Err(errno(libc::ENOPROTOOPT)),
    };
    write(memory, &value[..length], arguments[3])?;
    write(memory, &(length as i32).to_ne_bytes(), arguments[4])
}

fn family(peer: SocketAddr) -> i32 {
    if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn number(value: &mut [u8], number: i32) -> usize {
    let length = value.len().min(4);
    value[..length].copy_from_slice(&number.to_ne_bytes()[..length]);
    length
}
