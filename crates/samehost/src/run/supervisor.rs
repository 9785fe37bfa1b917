//! Starts the program, answers its calls until the last of its processes has ended, and passes signals on to it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Named};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, waitpid,
};
use samehost_seccomp::{Answer, Call, Filter, Listener, SpawnError, spawn};

use super::answers::{self, TRAPS};
use super::connects::Connects;
use super::maps::Maps;
use super::tally::Tally;
use super::thread::Threads;

/// How long is waited after an error that may pass.
const RESPITE: Duration = Duration::from_millis(10);
/// What is passed on. A terminal sends its own to the program as well.
const PASSED_ON: [Named; 6] =
    [Named::SIGINT, Named::SIGTERM, Named::SIGHUP, Named::SIGQUIT, Named::SIGUSR1, Named::SIGUSR2];
/// `SI_KERNEL`: the signal is from the terminal, and all of its processes have it.
const FROM_TERMINAL: i32 = 0x80;
/// What shells add to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

pub struct Supervisor {
    listener: Listener,
    connects: Connects,
    signals: SignalFd,
    program: Pid,
    ended: Option<WaitStatus>,
}

/// What became of the start.
pub enum Started {
    Running(Box<Supervisor>),
    /// The program could not be executed.
    Failed(io::Error),
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("samehost run knows x86_64 and aarch64 only")]
    Architecture,
    #[error(
        "seccomp is already used to answer system calls here, and the kernel allows it once; run it outside of another \
         samehost run, or of the container runtime that does it"
    )]
    Taken,
    #[error("seccomp user notification is needed (Linux 5.9 or later, not forbidden here): {0}")]
    Filter(#[source] io::Error),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Supervisor {
    /// Starts a program whose connections follow `maps`.
    pub fn start(command: &[OsString], maps: Maps, tally: Tally) -> Result<Started, RunError> {
        let filter = Filter::new(TRAPS).ok_or(RunError::Architecture)?;
        let mut threads = Threads::open()?;
        let own = threads.of(getpid().as_raw_nonzero().get().unsigned_abs())?;
        let connects = Connects::new(maps, threads, &own, tally)?;
        // Orphans stay below this process: where ptrace is restricted, only descendants may be looked at.
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        let before = SigSet::thread_get_mask().map_err(io::Error::from)?;
        let mut mask = SigSet::from_iter(PASSED_ON);
        mask.add(Named::SIGCHLD);
        mask.thread_block().map_err(io::Error::from)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).map_err(io::Error::from)?;
        let (name, arguments) = command.split_first().ok_or_else(|| io::Error::other("no program"))?;
        let mut program = Command::new(name);
        let (child, listener) = match spawn(program.args(arguments), filter, before) {
            Ok(started) => started,
            Err(SpawnError::Program(error)) => return Ok(Started::Failed(error)),
            Err(SpawnError::Filter(error)) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(RunError::Taken);
            }
            Err(SpawnError::Filter(error)) => return Err(RunError::Filter(error)),
        };
        listener.wake_on_the_same_cpu();
        let program = Pid::from_child(&child);
        Ok(Started::Running(Box::new(Supervisor { listener, connects, signals, program, ended: None })))
    }

    /// Answers until no process is left that could ask; a process that outlives the program is one of them. Returns the
    /// program's exit status, and what was counted.
    pub fn supervise(mut self) -> io::Result<(u8, Tally)> {
        loop {
            let mut waits =
                [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            if poll(&mut waits, None).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
                sleep(RESPITE);
                continue;
            }
            let [calls, signals] = waits.map(|wait| wait.revents());
            if calls.contains(PollFlags::IN) {
                match self.listener.receive() {
                    Ok(Some(call)) => self.answer(&call),
                    Ok(None) => {}
                    // Too little memory, say. Whoever ended here would have the program's calls fail for ever.
                    Err(_) => sleep(RESPITE),
                }
            }
            if signals.contains(PollFlags::IN) {
                self.take_signals()?;
            }
            if calls.contains(PollFlags::HUP) {
                break;
            }
        }
        self.reap(WaitOptions::empty())?;
        Ok((self.ended.map_or(0, exit_status), self.connects.tally))
    }

    fn answer(&mut self, call: &Call) {
        let answer = match call.number {
            libc::SYS_connect => match self.connects.answer(&self.listener, call) {
                Some(answer) => answer,
                None => return,
            },
            libc::SYS_landlock_restrict_self => {
                self.connects.is_restricted = true;
                Answer::GoOn
            }
            libc::SYS_epoll_create1 => self.epoll_is_made(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => self.epoll_is_made(call),
            number if !answers::ANSWERED.contains(&number) => {
                self.connects.rights_may_differ = true;
                Answer::GoOn
            }
            number => {
                let answer = answers::answer(&mut self.connects, &self.listener, call);
                self.connects.sets_options |= answer.is_none() && number == libc::SYS_setsockopt;
                answer.unwrap_or(Answer::GoOn)
            }
        };
        // Whoever waits no more needs no answer.
        let _ = self.listener.answer(call.id, answer);
    }

    fn epoll_is_made(&mut self, call: &Call) -> Answer {
        self.connects.epolls.is_made(call.thread);
        Answer::GoOn
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read_signal()? {
            if signal.ssi_signo == Named::SIGCHLD as u32 {
                self.reap(WaitOptions::NOHANG)?;
            } else if signal.ssi_code != FROM_TERMINAL {
                self.pass_on(&signal);
            }
        }
        Ok(())
    }

    /// To the program; when it has ended, to those that it left behind.
    fn pass_on(&self, signal: &siginfo) {
        let Some(signal) = Signal::from_named_raw(signal.ssi_signo as i32) else { return };
        if self.ended.is_none() {
            let _ = kill_process(self.program, signal);
            return;
        }
        for child in children() {
            let _ = kill_process(child, signal);
        }
    }

    /// Takes note of processes that have ended: the program, and orphans.
    fn reap(&mut self, options: WaitOptions) -> io::Result<()> {
        loop {
            match waitpid(None, options) {
                Ok(Some((pid, status))) => {
                    if pid == self.program {
                        self.ended = Some(status);
                    }
                }
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Children of this process.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

/// As a shell would say it.
fn exit_status(status: WaitStatus) -> u8 {
    let number = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => BY_SIGNAL + signal,
        (None, None) => 0,
    };
    number as u8
}
