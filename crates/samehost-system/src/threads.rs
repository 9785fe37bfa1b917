//! Threads, where they are to be had. A limit of processes (pids.max of a control group, `ulimit -u`) refuses one at any moment, also in the
//! middle of a transaction, and the standard library's own `spawn` panics then. So clippy.toml forbids it everywhere else.
//!
//! What follows differs by what the thread is for, and each has a function here: work that is only sooner done by several is done by this
//! thread alone; a watcher is left out; what changes a thread, or must go on beside this one, is an error that says what is missing.
#![allow(clippy::disallowed_methods, reason = "here is how it is done")]

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, ScopedJoinHandle, scope};

/// No thread is to be had for what takes one.
#[derive(Debug, thiserror::Error)]
#[error(
    "no thread may be started here, by pids.max of the control group (TasksMax= of a unit, --pids-limit of a container) or ulimit -u: {0}"
)]
pub struct NoThread(io::Error);

impl From<NoThread> for io::Error {
    fn from(error: NoThread) -> Self {
        io::Error::new(error.0.kind(), error)
    }
}

/// Work that a thread takes, or this one.
struct Slot<W>(Mutex<Option<W>>);

impl<T, W: FnOnce() -> T> Slot<W> {
    fn new(work: W) -> Self {
        Slot(Mutex::new(Some(work)))
    }

    fn run(&self) -> Option<T> {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    }
}

fn finished<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Does all of it, at the same time where threads are to be had, and else one after the other. The results are in order.
pub fn all<T: Send, W: FnOnce() -> T + Send>(works: impl IntoIterator<Item = W>) -> Vec<T> {
    let slots: Vec<Slot<W>> = works.into_iter().map(Slot::new).collect();
    let Some((last, others)) = slots.split_last() else { return Vec::new() };
    scope(|scope| {
        let begun: Vec<_> =
            others.iter().map(|slot| Builder::new().spawn_scoped(scope, || slot.run()).ok()).collect();
        let last = last.run();
        let mut done: Vec<Option<T>> = Vec::new();
        for (slot, thread) in others.iter().zip(begun) {
            done.push(thread.map_or_else(|| slot.run(), finished));
        }
        done.into_iter().chain([last]).flatten().collect()
    })
}

/// Does one thing here and another beside it, or after it where no thread is to be had.
pub fn both<A: Send, B>(beside: impl Fn() -> A + Sync, here: impl FnOnce() -> B) -> (A, B) {
    scope(|scope| {
        let begun = Builder::new().spawn_scoped(scope, &beside).ok();
        let here = here();
        (begun.map_or_else(&beside, finished), here)
    })
}

/// Works here, with a watcher beside it that ends when the work is done. Without a thread nobody watches.
pub fn watched<T>(watch: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    scope(|scope| {
        let _watcher = Builder::new().spawn_scoped(scope, watch);
        work()
    })
}

/// Begins as many of these as there are threads for, and works here with their number meanwhile. Returns what they found.
pub fn some<T: Send, W: FnOnce() -> T + Send, R>(
    works: impl IntoIterator<Item = W>,
    here: impl FnOnce(usize) -> R,
) -> (Vec<T>, R) {
    scope(|scope| {
        let begun: Vec<_> =
            works.into_iter().map_while(|work| Builder::new().spawn_scoped(scope, work).ok()).collect();
        let result = here(begun.len());
        (begun.into_iter().map(finished).collect(), result)
    })
}

/// Works in a thread of its own, which is waited for: what it changes of itself (its namespace, its user) ends with it.
///
/// # Errors
/// When none may be started; nothing was done.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NoThread> {
    scope(|scope| {
        // As much as a main thread has: whole measurements run in one.
        let thread = Builder::new().stack_size(8 << 20).spawn_scoped(scope, work).map_err(NoThread)?;
        Ok(finished(thread))
    })
}

/// Starts a thread that goes on by itself.
///
/// # Errors
/// When none may be started.
pub fn start<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    Builder::new().spawn(work).map_err(NoThread)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn all_of_it_is_done_in_order() {
        assert_eq!(all((0..9).map(|number| move || number * 2)), [0, 2, 4, 6, 8, 10, 12, 14, 16]);
        assert_eq!(all(Vec::<fn() -> u8>::new()), [0_u8; 0]);
        assert_eq!(both(|| 1, || "one"), (1, "one"));
        let (found, begun) = some((0..3).map(|number| move || number), |begun| begun);
        assert_eq!((found, begun), (vec![0, 1, 2], 3));
    }

    #[test]
    fn a_watcher_ends_with_the_work() {
        let (is_done, has_seen) = (AtomicBool::new(false), AtomicBool::new(false));
        watched(
            || {
                while !is_done.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                has_seen.store(true, Ordering::Relaxed);
            },
            || is_done.store(true, Ordering::Relaxed),
        );
        assert!(has_seen.load(Ordering::Relaxed));
    }

    #[test]
    fn its_own_thread_is_another_one() {
        let here = std::thread::current().id();
        assert_ne!(apart(|| std::thread::current().id()).unwrap(), here);
        assert_ne!(start(|| std::thread::current().id()).unwrap().join().unwrap(), here);
    }

    const CHILD: &str = "SAMEHOST_TEST_NO_THREAD";

    /// In a process that may start none: RLIMIT_NPROC counts those of an ordinary user.
    #[test]
    fn without_threads_this_one_does_it_and_what_takes_one_says_so() {
        if std::env::var_os(CHILD).is_none() {
            let own = std::env::current_exe().unwrap();
            let name = "threads::tests::without_threads_this_one_does_it_and_what_takes_one_says_so";
            let mut command = std::process::Command::new(own);
            let ended = command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").status().unwrap();
            assert!(ended.success());
            return;
        }
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_res_uid(
                rustix::process::Uid::from_raw(64_998),
                rustix::process::Uid::from_raw(64_998),
                rustix::process::Uid::from_raw(64_998),
            )
            .unwrap();
        }
        rustix::process::setrlimit(rustix::process::Resource::Nproc, none).unwrap();
        assert!(apart(|| ()).unwrap_err().to_string().contains("pids.max"));
        assert!(start(|| ()).is_err());
        assert_eq!(all((0..3).map(|number| move || number)), [0, 1, 2]);
        assert_eq!(both(|| 1, || 2), (1, 2));
        assert_eq!(watched(|| (), || 3), 3);
        assert_eq!(some([|| 1], |begun| begun), (Vec::new(), 0));
    }
}
