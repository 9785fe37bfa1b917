//! Injects faults for tests. Each system call that writes is enclosed by two points, and the N-th point kills the
//! process or fails. Only in builds with debug assertions; elsewhere a point does nothing.
//!
//! `SAMEHOST_FAULT` = `kill:N` (SIGKILL), `error:N` (EIO once), `full:N` (ENOSPC once), `broken:N` (EIO from there on),
//! `list` (counts only).

/// A point before or after a system call that writes.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn point(_: &'static str) -> std::io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
pub(crate) use armed::point;
#[cfg(debug_assertions)]
pub use armed::{disarm, passed};

#[cfg(debug_assertions)]
mod armed {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};

    use rustix::io::Errno;
    use rustix::process::{Signal, getpid, kill_process};

    enum Fault {
        Kill(usize),
        Once(usize, Errno),
        From(usize),
        List,
    }

    static PASSED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    static DISARMED: AtomicBool = AtomicBool::new(false);

    fn fault() -> Option<&'static Fault> {
        static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
        FAULT
            .get_or_init(|| {
                let asked = std::env::var("SAMEHOST_FAULT").ok()?;
                let (kind, number) = asked.split_once(':').unwrap_or((&asked, "0"));
                let number = number.parse().ok()?;
                match kind {
                    "kill" => Some(Fault::Kill(number)),
                    "error" => Some(Fault::Once(number, Errno::IO)),
                    "full" => Some(Fault::Once(number, Errno::NOSPC)),
                    "broken" => Some(Fault::From(number)),
                    "list" => Some(Fault::List),
                    _ => None,
                }
            })
            .as_ref()
    }

    /// A point before or after a system call that writes.
    pub(crate) fn point(name: &'static str) -> io::Result<()> {
        let Some(fault) = fault().filter(|_| !DISARMED.load(Ordering::Relaxed)) else { return Ok(()) };
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        passed.push(name);
        match *fault {
            Fault::Kill(number) if passed.len() == number => {
                kill_process(getpid(), Signal::KILL)?;
                Err(Errno::INTR.into())
            }
            Fault::Once(number, error) if passed.len() == number => Err(error.into()),
            Fault::From(number) if passed.len() >= number => Err(Errno::IO.into()),
            _ => Ok(()),
        }
    }

    /// The points passed so far.
    pub fn passed() -> Vec<&'static str> {
        PASSED.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No fault from here on.
    pub fn disarm() {
        DISARMED.store(true, Ordering::Relaxed);
    }
}
