//! Whether another process watches one of its descriptors, asked of the kernel (kcmp). The answer costs little however many
//! descriptors the process has.

use std::io;
use std::os::fd::RawFd;

/// `KCMP_EPOLL_TFD` of linux/kcmp.h, since Linux 4.13.
const EPOLL_TFD: libc::c_int = 7;

/// `struct kcmp_epoll_slot` of linux/kcmp.h.
#[repr(C)]
struct Slot {
    epoll: u32,
    descriptor: u32,
    offset: u32,
}

/// Whether the epoll set behind `epoll` has the file behind `descriptor`, put in under that number. Both are descriptors of
/// `thread`. EBADF and EINVAL where `epoll` is not an epoll set; EPERM where the thread may not be looked at.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, delete};

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
}
