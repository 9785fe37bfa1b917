//! Who a thread is, asked of its pidfd: its process, users and groups. Cheaper than `/proc/TID/status`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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

/// ENOTTY, or EINVAL, on older kernels.
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
    use std::os::fd::AsFd;

    use rustix::process::{PidfdFlags, getegid, geteuid, getgid, getpid, getuid, pidfd_open};

    use super::*;

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
