//! The program and what it leaves behind: signals are passed on to them, and all of them are waited for.

use std::fs;
use std::io;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Named};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, set_child_subreaper, wait,
};

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
        let theirs = |process| getpgid(Some(process));
        if self.ended.is_none() {
            return theirs(self.program) == own;
        }
        children().into_iter().all(|child| theirs(child) == own)
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
                Err(rustix::io::Errno::CHILD) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
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

/// Children of this process.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}
