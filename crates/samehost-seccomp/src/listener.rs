//! Starts a program under a filter, receives its calls that stopped, and answers them. The child installs the filter between
//! fork and exec, where only what is safe in a signal handler may be called, and sends the listener to the parent. A process
//! that ends, or that a signal takes out of its call, waits for no answer any more: that is not an error.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::filter::{Filter, X32};
use crate::notes::{Notes, StandIn};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, since Linux 6.6: who answers and who is answered share a CPU.
const SYNC_WAKE_UP: u64 = 1;

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The kernel, or what surrounds this process, refused the filter.
    #[error("this kernel does not take the filter: {0}")]
    Filter(#[source] io::Error),
    #[error("{0}")]
    Program(#[source] io::Error),
}

/// Starts `command` under `filter`, with `signals` blocked in it, and returns where its calls arrive; they arrive at the stand-in too,
/// before the program is executed.
///
/// The program and all of its descendants get no rights by executing files any more (`no_new_privs`).
///
/// # Errors
/// [`SpawnError::Filter`] also where nothing shows whether the filter or the program was refused: only a listener that came
/// proves that the filter was installed.
pub fn spawn(
    command: &mut Command,
    filter: Filter,
    signals: SigSet,
    stand_in: StandIn,
) -> Result<(Child, Listener), SpawnError> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| SpawnError::Filter(errno.into()))?;
    let channels = [stand_in.channel.as_raw_fd(), theirs.as_raw_fd()];
    let install = move || {
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&signals), None)?;
        rustix::thread::set_no_new_privs(true)?;
        let listener = install(&filter)?;
        for channel in channels {
            // SAFETY: the parent holds both until the child has executed or ended, so the child's copies are open.
            let channel = unsafe { BorrowedFd::borrow_raw(channel) };
            send(channel, listener.as_fd())?;
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls, on memory that was allocated before the fork: it allocates nothing, takes
    // no lock, and its errors are numbers.
    let command = unsafe { command.pre_exec(install) };
    let spawned = command.spawn();
    drop(theirs);
    match (spawned, received(ours.as_fd())) {
        (Ok(child), Ok(listener)) => {
            let StandIn { channel, notes, .. } = stand_in;
            Ok((child, Listener { descriptor: listener, notes, _stand_in: Some(channel) }))
        }
        (Ok(mut child), Err(error)) => {
            // Nobody would answer it.
            let _ = child.kill();
            let _ = child.wait();
            Err(SpawnError::Filter(error))
        }
        // The listener came, so the filter was installed.
        (Err(error), Ok(_)) => Err(SpawnError::Program(error)),
        (Err(error), Err(_)) => Err(SpawnError::Filter(error)),
    }
}

/// Installs the filter for this thread and what it starts. The descriptor closes on exec.
fn install(filter: &Filter) -> io::Result<OwnedFd> {
    let instructions = filter.instructions();
    // The kernel does not write to it.
    let program =
        libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_ptr().cast_mut() };
    // Since Linux 5.19: only a deadly signal takes a program out of a call that is being answered. Go's runtime sends
    // signals to its own threads all the time.
    let wanted = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    match install_with(&program, wanted) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            install_with(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
        }
        result => result,
    }
}

fn install_with(program: &libc::sock_fprog, flags: libc::c_ulong) -> io::Result<OwnedFd> {
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` leads to as many instructions as it says, and both live until the call is back; the kernel copies them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, std::ptr::from_ref(program)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: with NEW_LISTENER the call returns a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

fn send(channel: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(channel, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The descriptor that the child sent. It has been sent, or never will be, when `spawn` is back.
fn received(channel: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let sent = receive(channel, RecvFlags::DONTWAIT)?;
    sent.ok_or_else(|| io::Error::other("the child sent no listener"))
}

/// The next descriptor that is sent; `None` where nobody is left who could send one.
pub(crate) fn receive_descriptor(channel: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        match receive(channel, RecvFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn receive(channel: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

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

/// Where calls arrive. When it is dropped, the stand-in lets them go on.
#[derive(Debug)]
pub struct Listener {
    descriptor: OwnedFd,
    notes: Notes,
    /// While it is open, the stand-in waits.
    _stand_in: Option<OwnedFd>,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd, notes: Notes) -> Listener {
        Listener { descriptor, notes, _stand_in: None }
    }

    /// Has the kernel wake either side on the CPU of the other, where it can.
    pub fn wake_on_the_same_cpu(&self) {
        // SAFETY: the descriptor is open while `self` lives, and this request takes its argument by value.
        let _ = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Waits for a call. None if it was withdrawn meanwhile.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        // The kernel demands zeros.
        let room = self.notes.room();
        // SAFETY: the descriptor is open, and the request writes one `seccomp_notif`, to which the pointer leads alone. The size of
        // that structure is a part of the request's number: a kernel whose own is longer does not know this request.
        let result = unsafe { libc::ioctl(self.raw(), libc::SECCOMP_IOCTL_NOTIF_RECV, room) };
        let is_there = still_there(result)?;
        let call = self.notes.call();
        Ok(is_there.then_some(Call {
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

    /// Ends the stop of a call. False if nobody waits for the answer any more.
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

    /// Makes a descriptor of the stopped process the same as `source`, a socket with this inode; what it was before is closed in that
    /// process. False if nobody waits any more, and nothing was done.
    pub fn replace(
        &self,
        id: u64,
        descriptor: u32,
        source: BorrowedFd<'_>,
        inode: u64,
        closes_on_exec: bool,
    ) -> io::Result<bool> {
        self.notes.put_in_place(inode);
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
        self.descriptor.as_raw_fd()
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::Trap;

    fn filter(call: i64) -> Filter {
        Filter::new(&[Trap { call, when: &[], others: &[] }]).expect("an architecture with tests")
    }

    fn nobody() -> StandIn {
        StandIn::start(Command::new("cat")).expect("a process")
    }

    /// A shell whose directory changes are counted and refused.
    #[test]
    fn calls_stop_and_are_answered() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cd /usr || cd /etc && exec true"]);
        let (mut child, listener) =
            spawn(&mut shell, filter(libc::SYS_chdir), SigSet::empty(), nobody()).expect("started");
        listener.wake_on_the_same_cpu();
        let mut seen = 0;
        while seen < 2 {
            let Some(call) = listener.receive().expect("a call") else { continue };
            assert_eq!((call.number, call.thread), (libc::SYS_chdir, child.id()));
            assert!(listener.is_waiting(call.id));
            let answer = if seen == 0 { Answer::Error(libc::EACCES) } else { Answer::GoOn };
            assert!(listener.answer(call.id, answer).expect("answered"));
            assert!(!listener.is_waiting(call.id));
            assert!(!listener.answer(call.id, answer).expect("too late is no error"));
            seen += 1;
        }
        assert_eq!(child.wait().expect("ended").into_raw(), 0);
    }

    /// The shell's standard output becomes a file that it never opened.
    #[test]
    fn a_descriptor_is_replaced() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cd /usr; echo here"]).stdout(std::process::Stdio::null());
        let (mut child, listener) =
            spawn(&mut shell, filter(libc::SYS_chdir), SigSet::empty(), nobody()).expect("started");
        let (ours, theirs) = io::pipe().expect("a pipe");
        let call = loop {
            if let Some(call) = listener.receive().expect("a call") {
                break call;
            }
        };
        assert!(listener.replace(call.id, 1, theirs.as_fd(), 0, false).expect("replaced"));
        drop(theirs);
        assert!(listener.answer(call.id, Answer::Value(0)).expect("answered"));
        assert_eq!(io::read_to_string(ours).expect("text"), "here\n");
        assert!(child.wait().expect("ended").success());
    }

    #[test]
    fn a_program_that_is_not_there_is_told_from_a_filter_that_is_refused() {
        let mut missing = Command::new("/nowhere/to/be/found");
        match spawn(&mut missing, filter(libc::SYS_chdir), SigSet::empty(), nobody()) {
            Err(SpawnError::Program(error)) => assert_eq!(error.kind(), ErrorKind::NotFound),
            other => panic!("{other:?}"),
        }
        let mut program = Command::new("true");
        match spawn(&mut program, Filter::of(Vec::new()), SigSet::empty(), nobody()) {
            Err(SpawnError::Filter(error)) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_new_rights_come_with_it() {
        let mut program = Command::new("grep");
        program.args(["-q", "NoNewPrivs:\t1", "/proc/self/status"]);
        let (mut child, _listener) =
            spawn(&mut program, filter(libc::SYS_chdir), SigSet::empty(), nobody()).expect("started");
        assert!(child.wait().expect("ended").success());
    }
}
