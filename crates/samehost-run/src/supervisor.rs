//! Starts the program, answers its calls until the last of its processes has ended, and passes signals on to it.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, getpid};
use samehost_seccomp::{Answer, Call, Filter, Listener, SpawnError, StandIn, spawn};
use samehost_system::{Asked, Refusal};

use super::answers::{self, TRAPS};
use super::connects::Connects;
use super::doors::Doors;
use super::maps::Maps;
use super::refused::TrialError;
use super::tally::Tally;
use super::thread::Threads;
use super::trial::{Terms, Trial, Tried};
use super::watchers::{Processes, RESPITE, Signals};

pub struct Supervisor {
    listener: Listener,
    connects: Connects,
    processes: Processes,
}

pub enum Started<T> {
    Running(Box<T>),
    /// The program could not be executed.
    Failed(io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("samehost run knows x86_64 and aarch64 only")]
    Architecture,
    #[error("{0}")]
    Library(#[from] samehost_preload::LibraryError),
    #[error(
        "no directory here can have the preloaded library: {0} are not there, not writable, on file systems without programs \
         (noexec), or have a space or a colon in their names; TMPDIR names another"
    )]
    Directory(String),
    #[error(
        "seccomp is already used to answer system calls here, and the kernel allows it once; run it outside of another \
         samehost run, or of the container runtime that does it, or with --preload"
    )]
    Taken,
    #[error("seccomp user notification is needed (Linux 5.9 or later): {0}; --preload does without")]
    Filter(String),
    #[error(
        "the process that lets the program go on when `samehost run` is killed could not be started: {0}"
    )]
    StandIn(#[source] io::Error),
    #[error("{0}")]
    Trial(#[from] TrialError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Supervisor {
    /// Starts a program whose connections follow `maps`, whose doors are these, or with `terms` a trial's coin. The signals of this process wait
    /// from now on, and orphans become its children: where ptrace is restricted, only descendants may be looked at. `stand_in` starts
    /// the process that lets the program's calls go on when this one is killed.
    ///
    /// # Errors
    /// When something that the start needs is missing. A program that cannot be executed is [`Started::Failed`].
    pub fn start(
        command: &[OsString],
        maps: Maps,
        doors: Vec<Doors>,
        tally: Tally,
        terms: Option<Terms>,
        stand_in: Command,
    ) -> Result<Started<Supervisor>, RunError> {
        let filter = Filter::new(TRAPS).ok_or(RunError::Architecture)?;
        let mut threads = Threads::open()?;
        let own = threads.of(getpid().as_raw_nonzero().get().unsigned_abs())?;
        let mut connects = Connects::new(maps, threads, &own, tally)?;
        match terms {
            Some(terms) => connects.trial = Some(Trial::begin(&connects.maps, doors, terms)?),
            None => connects.watch(doors),
        }
        let signals = Signals::take_over()?;
        let Some((name, arguments)) = command.split_first() else {
            return Err(io::Error::other("no program").into());
        };
        let stand_in = StandIn::start(stand_in).map_err(RunError::StandIn)?;
        let mut program = Command::new(name);
        let (child, listener) = match spawn(program.args(arguments), filter, signals.before, stand_in) {
            Ok(started) => started,
            Err(SpawnError::Program(error)) => return Ok(Started::Failed(error)),
            Err(SpawnError::Filter(error)) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(RunError::Taken);
            }
            Err(SpawnError::Filter(error)) => {
                let refusal = Refusal::of_error(Asked::AnswerCalls, &error);
                let known = refusal.filter(Refusal::has_reason);
                return Err(RunError::Filter(known.map_or_else(|| error.to_string(), |why| why.to_string())));
            }
        };
        listener.wake_on_the_same_cpu();
        let processes = Processes::new(signals.waiting, Pid::from_child(&child));
        Ok(Started::Running(Box::new(Supervisor { listener, connects, processes })))
    }

    /// Answers until no process is left that could ask; a process that outlives the program is one of
    /// them. A call that nobody answers fails with ENOSYS, so `run` must not end before the last process
    /// under its filter. It is the reaper of orphans besides, because where ptrace is restricted only
    /// descendants may be looked at. Hands over what a trial has found when it ends, which is earlier
    /// where what it has found so far decides. Returns the program's exit status, and what was counted
    /// (docs/decisions/0099).
    pub fn supervise(
        mut self,
        is_decided: impl Fn(&Tried) -> bool,
        conclude: impl FnOnce(Tried),
        say: impl Fn(&str),
    ) -> io::Result<(u8, Tally)> {
        let mut conclude = Some(conclude);
        loop {
            let mut waits = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.processes.signals, PollFlags::IN),
            ];
            let left = self.connects.trial.as_ref().and_then(Trial::left);
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut waits, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    sleep(RESPITE);
                    continue;
                }
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
                self.processes.take_signals()?;
            }
            self.connects.taken_over.drain(..).for_each(|told| say(&told));
            let is_void = self.connects.trial.as_ref().is_some_and(|trial| trial.void().is_some());
            let is_over = left == Some(Duration::ZERO) || is_void || self.has_decided(&is_decided);
            if is_over && let (Some(tried), Some(conclude)) = (self.connects.end_trial(), conclude.take()) {
                conclude(tried);
            }
            if calls.contains(PollFlags::HUP) {
                break;
            }
        }
        self.processes.reap(WaitOptions::empty())?;
        if let (Some(tried), Some(conclude)) = (self.connects.end_trial(), conclude) {
            conclude(tried);
        }
        Ok((self.processes.exit_status(), self.connects.tally))
    }

    /// Looks at a trial that ends on a decision, where there are more blocks to look at than the last time.
    fn has_decided(&mut self, is_decided: impl Fn(&Tried) -> bool) -> bool {
        let Some(trial) = &mut self.connects.trial else { return false };
        let Some(found) = trial.look() else { return false };
        if !is_decided(&found) {
            return false;
        }
        trial.decided();
        true
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
}
