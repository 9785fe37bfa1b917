//! Receives calls that stopped, and answers them. A process that ends, or that a signal takes out of its call, waits for no
//! answer any more: that is not an error.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::filter::X32;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, since Linux 6.6: who answers and who is answered share a CPU.
const SYNC_WAKE_UP: u64 = 1;

/// A call that stopped.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Names the stop until it is answered.
    pub id: u64,
    /// The thread that made it; 0 where it is not visible from here.
    pub thread: u32,
    /// Without the bit that x32 sets; of another architecture where it is one of [`crate::Trap::others`].
    pub number: i64,
    pub arguments: [u64; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel does what was asked for, with the arguments that are there by then.
    GoOn,
    /// The call returns this and does nothing.
    Value(i64),
    /// The call fails with this `errno` and does nothing.
    Error(i32),
}

/// Where calls arrive. When it is dropped, they fail with ENOSYS.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Listener(fd)
    }

    /// Has the kernel wake either side on the CPU of the other, where it can.
    pub fn wake_on_the_same_cpu(&self) {
        // SAFETY: the descriptor is open while `self` lives, and this request takes its argument by value.
        let _ = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Waits for a call. None if it was withdrawn meanwhile.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        let empty = libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
        // The kernel demands zeros.
        let mut call = libc::seccomp_notif { id: 0, pid: 0, flags: 0, data: empty };
        // SAFETY: the descriptor is open, and the request writes one `seccomp_notif`, to which the pointer leads alone. The size of
        // that structure is a part of the request's number: a kernel whose own is longer does not know this request.
        let result = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
        Ok(still_there(result)?.then_some(Call {
            id: call.id,
            thread: call.pid,
            number: i64::from(call.data.nr as u32 & !X32),
            arguments: call.data.args,
        }))
    }

    /// Whether the thread still waits in that call. What was opened by its number before is then its own, and not that
    /// of another that got the number later.
    #[must_use]
    pub fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the descriptor is open, and the request reads one `u64`, which lives until it is back.
        let result = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) };
        result == 0
    }

    /// Ends the stop. False if nobody waits for it any more.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<bool> {
        let (val, error, flags) = match answer {
            Answer::GoOn => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(errno) => (0, -errno, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the descriptor is open, and the request reads one `seccomp_notif_resp`, to which the pointer leads alone
        // and whose size is a part of the request's number.
        let result = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
        still_there(result)
    }

    /// Makes a descriptor of the stopped process the same as `source`; what it was before is closed in that process.
    /// False if nobody waits any more, and nothing was done.
    pub fn replace(
        &self,
        id: u64,
        descriptor: u32,
        source: BorrowedFd<'_>,
        closes_on_exec: bool,
    ) -> io::Result<bool> {
        let request = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
            srcfd: source.as_raw_fd() as u32,
            newfd: descriptor,
            newfd_flags: if closes_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: both descriptors are open while they are borrowed, and the request reads one `seccomp_notif_addfd`.
        let result = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request) };
        still_there(result)
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Whether the call was still stopped. Must follow the request at once: it reads `errno`.
fn still_there(result: libc::c_int) -> io::Result<bool> {
    if result >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // EINPROGRESS: it was answered, and the thread has not run since. EINTR is of our own wait.
        Some(libc::ENOENT | libc::EINPROGRESS | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}
