//! Addresses and options of TCP, answered for the Unix sockets that stand in for it. Calls for any other socket go on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use samehost_seccomp::{Answer, Call, Listener, Trap, option, set_option};

use super::connects::Connects;
use super::replaced::{Replaced, bytes_of};
use super::thread::{memory_of, write_memory_of};

const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const SOCKET: i32 = libc::SOL_SOCKET;

/// Longest value of an option, in bytes; the longest known is `struct tcp_info`.
const LONGEST: usize = 1024;
/// Most options kept for a socket; setting one again counts once.
const MOST: usize = 64;
/// The first byte of `struct tcp_info`.
const ESTABLISHED: u8 = 1;

/// The calls that stop: `connect`, what a replaced socket would answer differently, and what changes who
/// may be connected for. Each stop costs some ten microseconds, so `dup`, `fcntl` and `epoll_ctl` are not
/// among them; a duplicate is found after the exchange. Calls that make an epoll set stop so that not all
/// descriptors are looked through at each connection. Landlock cannot be seen from outside, so after
/// `landlock_restrict_self` nothing is exchanged any more, for any process (docs/decisions/0100,
/// docs/decisions/0115).
pub const TRAPS: &[Trap] = &[
    Trap { call: libc::SYS_connect, when: &[], others: &[] },
    Trap { call: libc::SYS_getpeername, when: &[], others: &[] },
    Trap { call: libc::SYS_getsockname, when: &[], others: &[] },
    Trap {
        call: libc::SYS_setsockopt,
        when: &[&[(1, TCP as u32)], &[(1, IP as u32)], &[(1, IPV6 as u32)]],
        others: &[],
    },
    Trap {
        call: libc::SYS_getsockopt,
        when: &[
            &[(1, TCP as u32)],
            &[(1, IP as u32)],
            &[(1, IPV6 as u32)],
            &[(1, SOCKET as u32), (2, libc::SO_DOMAIN as u32)],
            &[(1, SOCKET as u32), (2, libc::SO_PROTOCOL as u32)],
        ],
        others: &[],
    },
    // So that not all descriptors of a process are looked through at each connection.
    Trap { call: libc::SYS_epoll_create1, when: &[], others: &[] },
    #[cfg(target_arch = "x86_64")]
    Trap { call: libc::SYS_epoll_create, when: &[], others: &[] },
    // So that groups and filters are read only where a thread can have changed them. The others are those of i386 and arm.
    Trap { call: libc::SYS_setgroups, when: &[], others: &[81, 206] },
    Trap { call: libc::SYS_seccomp, when: &[&[(0, libc::SECCOMP_SET_MODE_FILTER)]], others: &[354, 383] },
    Trap { call: libc::SYS_prctl, when: &[&[(0, libc::PR_SET_SECCOMP as u32)]], others: &[172] },
    // Rare, and not to be seen afterwards. A thread may call it with 32 bits, and execute a program of 64.
    Trap { call: libc::SYS_landlock_restrict_self, when: &[], others: &[446] },
];

pub const ANSWERED: [i64; 4] =
    [libc::SYS_getpeername, libc::SYS_getsockname, libc::SYS_setsockopt, libc::SYS_getsockopt];

/// The answer for a socket that was replaced; None where it is another.
pub fn answer(connects: &mut Connects, listener: &Listener, call: &Call) -> Option<Answer> {
    let Connects { sockets, threads, rights, rights_may_differ, .. } = connects;
    if sockets.is_empty() {
        return None;
    }
    let thread = threads.of(call.thread).ok()?;
    let descriptor = call.arguments[0] as i32;
    if !sockets.may_have(thread.socket_inode(descriptor)?) {
        return None;
    }
    let socket = thread.socket(descriptor).ok()??;
    if !socket.is_unix() {
        return None;
    }
    let replaced = sockets.get(socket.cookie().ok()?)?;
    // All of it was the caller's only if it still waits.
    if !listener.is_waiting(call.id) {
        return None;
    }
    let (memory, arguments) = (Memory { listener, call }, call.arguments);
    // What needs rights is done with those of this process, so the caller must have them too.
    let may_choose = || match rights.of_another(&thread, *rights_may_differ) {
        Ok(its) => rights.difference(&its).is_none() && listener.is_waiting(call.id),
        Err(_) => false,
    };
    let result = match call.number {
        libc::SYS_getpeername => write_value(&memory, &bytes_of(replaced.peer), arguments[1], arguments[2]),
        libc::SYS_getsockname => write_value(&memory, &bytes_of(replaced.local), arguments[1], arguments[2]),
        libc::SYS_setsockopt => set(&memory, replaced, arguments, may_choose),
        libc::SYS_getsockopt => get(&memory, replaced, arguments),
        _ => return None,
    };
    Some(match result {
        Ok(()) => Answer::Value(0),
        Err(error) => Answer::Error(error.raw_os_error().unwrap_or(libc::EFAULT)),
    })
}

/// The memory of a thread that waits for an answer. It is asked for by the thread's number: whether it still waits is asked
/// after each read and before each write.
struct Memory<'a> {
    listener: &'a Listener,
    call: &'a Call,
}

impl Memory<'_> {
    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        match memory_of(self.call.thread, at, length) {
            Some(bytes) if self.listener.is_waiting(self.call.id) => Ok(bytes),
            _ => Err(errno(libc::EFAULT)),
        }
    }

    fn word(&self, at: u64) -> io::Result<i32> {
        let bytes = self.read(at, 4)?;
        Ok(i32::from_ne_bytes(bytes.try_into().map_err(|_| errno(libc::EFAULT))?))
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.listener.is_waiting(self.call.id) && write_memory_of(self.call.thread, at, bytes).is_some() {
            return Ok(());
        }
        Err(errno(libc::EFAULT))
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Writes an address where there is room for as many bytes as the length says, and then its real length.
fn write_value(memory: &Memory<'_>, bytes: &[u8], at: u64, length_at: u64) -> io::Result<()> {
    let room = usize::try_from(memory.word(length_at)?).map_err(|_| errno(libc::EINVAL))?;
    memory.write(&bytes[..bytes.len().min(room)], at)?;
    memory.write(&(bytes.len() as i32).to_ne_bytes(), length_at)
}

/// A fresh TCP socket with the options that the program has set.
/// Options of TCP are asked of a fresh TCP socket that got the same options, so that the kernel says what
/// each takes and gives, and no table here can differ from it. Only options that are plain values are
/// asked for: others hold addresses of memory, which the kernel would follow in this process
/// (docs/decisions/0099).
fn stand_in(replaced: &Replaced) -> io::Result<OwnedFd> {
    let family = if replaced.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    for (level, name, value) in &replaced.options {
        let _ = set_option(socket.as_fd(), *level, *name, value);
    }
    Ok(socket)
}

fn set(
    memory: &Memory<'_>,
    replaced: &mut Replaced,
    arguments: [u64; 6],
    may_choose: impl Fn() -> bool,
) -> io::Result<()> {
    let (level, name) = (arguments[1] as i32, arguments[2] as i32);
    let length = usize::try_from(arguments[4] as i32).map_err(|_| errno(libc::EINVAL))?;
    if length > LONGEST || replaced.options.len() >= MOST {
        return Err(errno(libc::ENOPROTOOPT));
    }
    let value = memory.read(arguments[3], length)?;
    // The kernel loads a module, or takes what is not for everybody, where the caller may have it do that.
    if (level, name) == (TCP, libc::TCP_CONGESTION) && !may_choose() {
        return Err(errno(libc::EPERM));
    }
    set_option(stand_in(replaced)?.as_fd(), level, name, &value)?;
    replaced.options.retain(|(of, called, _)| (*of, *called) != (level, name));
    replaced.options.push((level, name, value));
    Ok(())
}

fn get(memory: &Memory<'_>, replaced: &Replaced, arguments: [u64; 6]) -> io::Result<()> {
    let (level, name) = (arguments[1] as i32, arguments[2] as i32);
    let room = usize::try_from(memory.word(arguments[4])?).map_err(|_| errno(libc::EINVAL))?;
    let mut value = vec![0; room.min(LONGEST)];
    let length = match (level, name) {
        (SOCKET, libc::SO_DOMAIN) => number(&mut value, family(replaced.peer)),
        (SOCKET, libc::SO_PROTOCOL) => number(&mut value, TCP),
        // Options that hold pointers are not recorded: they are addresses of the program's memory.
        _ => {
            let length = option(stand_in(replaced)?.as_fd(), level, name, &mut value)?;
            if (level, name) == (TCP, libc::TCP_INFO) && length > 0 {
                value[0] = ESTABLISHED;
            }
            length
        }
    };
    memory.write(&value[..length], arguments[3])?;
    memory.write(&(length as i32).to_ne_bytes(), arguments[4])
}

fn family(peer: SocketAddr) -> i32 {
    if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn number(value: &mut [u8], number: i32) -> usize {
    let length = value.len().min(4);
    value[..length].copy_from_slice(&number.to_ne_bytes()[..length]);
    length
}
