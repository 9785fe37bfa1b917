//! Who would lose a socket that is replaced: the program's epoll sets, and duplicates of its descriptor. Neither is looked for
//! among all descriptors at each connection, of which a process may have thousands. The program itself is watched here too: signals are
//! passed on to it and to what it leaves behind, and all of them are waited for.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Named};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};
use samehost_seccomp::is_watched;

use super::thread::{Thread, has_ended};

/// Most processes whose epoll sets are kept in mind; each takes a descriptor.
const KEPT: usize = 64;
/// How long a thread may take to make an epoll set when its call has been let go on. It is known to be done earlier when the
/// same thread makes another call that stops.
const MADE_WITHIN: Duration = Duration::from_secs(1);

/// The epoll sets of the program's processes; a socket in one of them stays with TCP, because the program
/// would notice. A process is looked through when it first connects, and again after calls that make a
/// set, which stop and are told here. Whether a set has a socket is asked of the kernel (`kcmp`), which
/// costs the same with ten sockets and with thousands of descriptors; before, each connect took 4 µs more
/// for each descriptor. Stopping `dup`, `fcntl` and `epoll_ctl` was rejected: each would cost some ten
/// microseconds at every connection of an event loop (docs/decisions/0115).
#[derive(Default)]
pub struct Epolls {
    processes: Vec<Process>,
    /// Threads that may still be making one, and since when.
    making: Vec<(u32, Instant)>,
    last_made: Option<Instant>,
}

struct Process {
    number: u32,
    pidfd: OwnedFd,
    /// Descriptors of its epoll sets, as they were when it was looked through.
    epolls: Vec<i32>,
    looked: Instant,
}

impl Epolls {
    /// To be called before the thread's call of epoll_create1(2) goes on.
    pub fn is_made(&mut self, thread: u32) {
        let now = Instant::now();
        self.settle(thread, now);
        self.making.push((thread, now));
    }

    /// Takes note that whoever makes another call now has made his, and that the others had long enough.
    fn settle(&mut self, thread: u32, now: Instant) {
        let before = self.making.len();
        self.making.retain(|(maker, since)| *maker != thread && now < *since + MADE_WITHIN);
        if self.making.len() < before {
            self.last_made = Some(now);
        }
    }

    pub fn forget(&mut self) {
        self.processes.clear();
    }

    /// Whether one of a process' epoll sets has a socket. The process must be that of a thread that waits.
    pub fn watch(&mut self, process: u32, thread: &Thread, descriptor: i32, inode: u64) -> io::Result<bool> {
        let looked = Instant::now();
        self.settle(thread.number, looked);
        if let Some(known) = self.known(process)
            && let Some(answer) = any_watches(&known.epolls, thread, descriptor, inode)?
        {
            return Ok(answer);
        }
        self.processes.retain(|known| known.number != process);
        let epolls = thread.epolls()?;
        let answer = any_watches(&epolls, thread, descriptor, inode)?.unwrap_or(false);
        if self.processes.len() >= KEPT {
            self.processes.remove(0);
        }
        let pidfd = pidfd_open(Pid::from_raw(process as i32).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        self.processes.push(Process { number: process, pidfd, epolls, looked });
        Ok(answer)
    }

    /// A process that still runs and whose list is complete: nobody may have made a set since.
    fn known(&self, process: u32) -> Option<&Process> {
        let known = self.processes.iter().find(|known| known.number == process)?;
        let is_complete = self.making.is_empty()
            && match self.last_made {
                Some(made) => known.looked >= made,
                None => true,
            };
        (is_complete && !has_ended(&known.pidfd)).then_some(known)
    }
}

/// None where one of the sets is no longer there.
fn any_watches(epolls: &[i32], thread: &Thread, descriptor: i32, inode: u64) -> io::Result<Option<bool>> {
    for epoll in epolls {
        match is_watched(thread.number, *epoll, descriptor) {
            Ok(true) => return Ok(Some(true)),
            Ok(false) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL)) => {
                return Ok(None);
            }
            // A kernel without kcmp.
            Err(_) if thread.watches(*epoll, inode)? => return Ok(Some(true)),
            Err(_) => {}
        }
    }
    Ok(Some(false))
}

/// Tells whether anybody still has a socket: this epoll set has it until its last descriptor, of whatever
/// process, is closed. The set is asked after an exchange, and only where the socket is still in it the
/// descriptors are looked through for a duplicate. One in the same process undoes the exchange before the
/// program goes on; the server sees a connection that ends at once. Looking through all descriptors at
/// each connect, as before, took 4 µs for each (docs/decisions/0115).
pub struct Remains(OwnedFd);

impl Remains {
    pub fn new() -> io::Result<Self> {
        Ok(Remains(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Puts a socket into the set, before it is given up. A TCP socket that is not connected always has something to report
    /// (EPOLLHUP).
    pub fn note(&self, socket: &OwnedFd, cookie: u64) -> io::Result<()> {
        let (data, once) = (epoll::EventData::new_u64(cookie), epoll::EventFlags::ONESHOT);
        match epoll::add(&self.0, socket, data, once) {
            // It was noted under this number before, and somebody had it still.
            Err(Errno::EXIST) => Ok(epoll::modify(&self.0, socket, data, once)?),
            result => Ok(result?),
        }
    }

    /// Whether somebody still has the socket of this cookie. Each that is left is reported once.
    pub fn has(&self, cookie: u64) -> bool {
        let mut events = Vec::with_capacity(16);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            events.clear();
            match epoll::wait(&self.0, spare_capacity(&mut events), Some(&now)) {
                Ok(0) => return false,
                Ok(_) if events.iter().any(|event: &epoll::Event| event.data.u64() == cookie) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// How long is waited after an error that may pass.
pub const RESPITE: Duration = Duration::from_millis(10);
/// What is passed on. A terminal sends its own to the program as well.
const PASSED_ON: [Named; 6] =
    [Named::SIGINT, Named::SIGTERM, Named::SIGHUP, Named::SIGQUIT, Named::SIGUSR1, Named::SIGUSR2];
/// `SI_KERNEL`: the signal is from the terminal, and all of its processes have it.
const FROM_TERMINAL: i32 = 0x80;
/// What shells add to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// Signals that come to this process wait here from now on, and orphans of the program become its children.
pub struct Signals {
    pub waiting: SignalFd,
    /// Those that were blocked before, as the program must have it.
    pub before: SigSet,
}

impl Signals {
    pub fn take_over() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let before = SigSet::thread_get_mask()?;
        let mut mask = SigSet::from_iter(PASSED_ON);
        mask.add(Named::SIGCHLD);
        mask.thread_block()?;
        let waiting = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { waiting, before })
    }
}

pub struct Processes {
    pub signals: SignalFd,
    program: Pid,
    ended: Option<WaitStatus>,
}

impl Processes {
    pub fn new(signals: SignalFd, program: Pid) -> Self {
        Processes { signals, program, ended: None }
    }

    /// Passes on what has come. Returns whether any process is left.
    pub fn take_signals(&mut self) -> io::Result<bool> {
        let mut any_left = true;
        while let Some(signal) = self.signals.read_signal()? {
            if signal.ssi_signo == Named::SIGCHLD as u32 {
                any_left = self.reap(WaitOptions::NOHANG)?;
            } else if signal.ssi_code != FROM_TERMINAL || !self.has_terminal_signals() {
                self.pass_on(&signal);
            }
        }
        Ok(any_left)
    }

    /// Whether the terminal sends its signals to the program as well: to whatever is in the foreground group, which is this
    /// process' own. A program in a session or group of its own (`setsid`, a daemon) gets none, and Ctrl-C would do nothing.
    fn has_terminal_signals(&self) -> bool {
        let own = getpgid(None);
        if self.ended.is_none() {
            return getpgid(Some(self.program)) == own;
        }
        children().into_iter().all(|child| getpgid(Some(child)) == own)
    }

    /// To the program; when it has ended, to those that it left behind.
    fn pass_on(&self, signal: &siginfo) {
        let code = signal.ssi_code;
        let Some(signal) = Signal::from_named_raw(signal.ssi_signo as i32) else { return };
        if self.ended.is_none() {
            let _ = kill_process(self.program, signal);
            return;
        }
        for child in children() {
            // Those of this process' group had it from the terminal.
            if code != FROM_TERMINAL || getpgid(Some(child)) != getpgid(None) {
                let _ = kill_process(child, signal);
            }
        }
    }

    /// Takes note of processes that have ended: the program, and orphans of whatever process group. Returns whether any is left.
    pub fn reap(&mut self, options: WaitOptions) -> io::Result<bool> {
        loop {
            match wait(options) {
                Ok(Some((pid, status))) => {
                    if pid == self.program {
                        self.ended = Some(status);
                    }
                }
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The program's, as a shell would say it.
    pub fn exit_status(&self) -> u8 {
        let Some(status) = self.ended else { return 0 };
        let number = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => code,
            (None, Some(signal)) => BY_SIGNAL + signal,
            (None, None) => 0,
        };
        number as u8
    }
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get().unsigned_abs();
    samehost_system::peer::children(own).into_iter().filter_map(|child| Pid::from_raw(child as i32)).collect()
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn a_socket_remains_until_its_last_descriptor_is_closed() {
        fn tcp() -> OwnedFd {
            socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket")
        }
        let remains = Remains::new().expect("an epoll set");
        let (one, other) = (tcp(), tcp());
        let twin = one.try_clone().expect("a duplicate");
        remains.note(&one, 1).expect("noted");
        remains.note(&other, 2).expect("noted");
        drop(one);
        assert!(remains.has(1));
        drop(other);
        assert!(!remains.has(2));
        remains.note(&twin, 1).expect("noted again");
        assert!(remains.has(1));
        remains.note(&twin, 1).expect("noted again under the same number");
        drop(twin);
        assert!(!remains.has(1));
    }
}
