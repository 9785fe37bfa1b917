//! Drives callers, each in its own thread: for protocols whose library owns the socket, and for operations that need
//! a new connection each time. Closed loop, or open loop with one queue of due times for all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::clock::{Nanos, now, timespec};
use super::recorder::{Recorder, Tally};
use super::session::Caller;

/// Queue of due times that the threads share.
#[derive(Debug)]
pub struct DueQueue {
    /// Due times, ascending.
    pub due: Vec<Nanos>,
    /// Index of the next due time to take.
    pub next: AtomicUsize,
}

/// Load of one thread: calls until the window is over or the queue is empty.
#[must_use]
pub fn drive(caller: &mut dyn Caller, mut recorder: Recorder, queue: Option<&Arc<DueQueue>>) -> Tally {
    match queue {
        None => closed_loop(caller, &mut recorder),
        Some(queue) => open_loop(caller, &mut recorder, queue),
    }
    recorder.finish()
}

fn closed_loop(caller: &mut dyn Caller, recorder: &mut Recorder) {
    let mut begun = now();
    loop {
        let result = caller.call();
        let done = now();
        let inside = match result {
            Ok(()) => recorder.complete(done, done - begun),
            Err(bad) => {
                recorder.failed(bad.kind);
                recorder.advance(done)
            }
        };
        if !inside {
            return;
        }
        begun = done;
    }
}

fn open_loop(caller: &mut dyn Caller, recorder: &mut Recorder, queue: &DueQueue) {
    let mut idle_since = now();
    loop {
        let Some(due) = queue.due.get(queue.next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
        let mut sent = now();
        while sent < due {
            // Returns early only on a signal; the loop then sleeps for the rest.
            let _ = rustix::thread::nanosleep(&timespec(due - sent));
            sent = now();
        }
        if sent >= recorder.window().end {
            recorder.unfinished(sent, due);
            continue;
        }
        recorder.sent(due, sent - due.max(idle_since));
        match caller.call() {
            Ok(()) => {
                idle_since = now();
                recorder.complete_due(idle_since, due, sent);
            }
            Err(bad) => {
                recorder.failed(bad.kind);
                idle_since = now();
            }
        }
    }
}
