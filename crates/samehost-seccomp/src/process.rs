//! What the kernel says of another process: who one of its threads is, asked of the pidfd (its process, users and
//! groups), which is cheaper than `/proc/TID/status`; and whether it watches one of its descriptors (kcmp). The answer
//! costs little however many descriptors the process has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// `KCMP_EPOLL_TFD` of linux/kcmp.h, since Linux 4.13.
const EPOLL_TFD: libc::c_int = 7;

/// `struct kcmp_epoll_slot` of linux/kcmp.h.
#[repr(C)]
struct Slot {
    epoll: u32,
    descriptor: u32,
    offset: u32,
}

/// Whether the epoll set behind `epoll` has the file behind `descriptor`, put in under that number.
/// Both are descriptors of `thread`. The kernel is asked (`kcmp`) and not `/proc`: the list in `fdinfo`
/// grows with the set, and this costs the same with ten sockets and with thousands. EBADF and EINVAL
/// where `epoll` is not an epoll set, EPERM where the thread may not be looked at (docs/decisions/0115).
pub fn is_watched(thread: u32, epoll: RawFd, descriptor: RawFd) -> io::Result<bool> {
    let thread = thread as libc::pid_t;
    // A set may have the number several times, for files that live on under other numbers.
    for offset in 0.. {
        let slot = Slot { epoll: epoll as u32, descriptor: descriptor as u32, offset };
        let (slot, first) = (std::ptr::from_ref(&slot), libc::c_long::from(descriptor));
        // SAFETY: the kernel reads one `kcmp_epoll_slot`, which lives until the call is back, and writes nothing.
        let result = unsafe { libc::syscall(libc::SYS_kcmp, thread, thread, EPOLL_TFD, first, slot) };
        if result == 0 {
            return Ok(true);
        }
        if result < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENOENT) { Ok(false) } else { Err(error) };
        }
    }
    Ok(false)
}

/// `PIDFD_GET_INFO` of linux/pidfd.h, since Linux 6.13: `_IOWR(0xFF, 11, struct pidfd_info)`, the structure being this long.
const GET_INFO: libc::c_ulong = 0xC000_FF0B | (size_of::<Info>() as libc::c_ulong) << 16;
/// `PIDFD_INFO_PID` and `PIDFD_INFO_CREDS`.
const PID: u64 = 1;
const CREDENTIALS: u64 = 2;

/// `struct pidfd_info` as it was first. Later kernels take it still, and tell as much.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    thread: u32,
    process: u32,
    parent: u32,
    ids: [u32; 8],
    exit_code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub process: u32,
    /// User and group, in turn: real, effective, saved, of the file system.
    pub ids: [u32; 8],
}

/// The process, users and groups of the thread or process behind a pidfd.
///
/// # Errors
/// ENOTTY, or EINVAL, on kernels before 6.13.
pub fn identity(thread: BorrowedFd<'_>) -> io::Result<Identity> {
    let mut info = Info { mask: PID | CREDENTIALS, ..Info::default() };
    // SAFETY: the descriptor is borrowed, and the request reads and writes one `pidfd_info` of the length that is a part of its
    // number, to which the pointer leads alone.
    let result = unsafe { libc::ioctl(thread.as_raw_fd(), GET_INFO as _, &raw mut info) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if info.mask & CREDENTIALS == 0 {
        return Err(io::Error::from_raw_os_error(libc::ENOTTY));
    }
    Ok(Identity { process: info.process, ids: info.ids })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};

    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, delete};
    use rustix::process::{PidfdFlags, getegid, geteuid, getgid, getpid, getuid, pidfd_open};

    use super::*;

    #[test]
    fn what_an_epoll_set_has_is_seen() {
        let thread = std::process::id();
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a socket"));
        let epoll = create(CreateFlags::CLOEXEC).expect("an epoll set");
        let seen = || is_watched(thread, epoll.as_raw_fd(), socket.as_raw_fd());
        assert!(!seen().expect("an answer"));
        add(&epoll, &socket, EventData::new_u64(1), EventFlags::IN).expect("watched");
        assert!(seen().expect("an answer"));
        delete(&epoll, &socket).expect("watched no more");
        assert!(!seen().expect("an answer"));
        let error = is_watched(thread, socket.as_raw_fd(), socket.as_raw_fd()).expect_err("no epoll set");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn this_process_is_who_it_is() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("a pidfd");
        match identity(own.as_fd()) {
            Ok(found) => {
                let [user, group, effective, of_group, ..] = found.ids;
                assert_eq!(found.process, std::process::id());
                assert_eq!([user, group], [getuid().as_raw(), getgid().as_raw()]);
                assert_eq!([effective, of_group], [geteuid().as_raw(), getegid().as_raw()]);
            }
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)), "{error}")
            }
        }
    }
}
