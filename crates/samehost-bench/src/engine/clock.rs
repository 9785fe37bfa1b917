//! The only clock: monotonic nanoseconds. Nothing outside the engine reads the time of a request.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment, in nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// Now. One call of the vDSO, without a system call where the kernel's clock source allows it.
#[inline]
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A duration in nanoseconds; the engine's spans fit by far.
#[must_use]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Nanoseconds as the kernel takes them.
#[must_use]
pub fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// The measured part of a trial: requests before `start` warm up, none is counted from `end` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Moment at which load begins.
    pub open: Nanos,
    /// First counted moment.
    pub start: Nanos,
    /// First moment that no longer counts.
    pub end: Nanos,
}

impl Window {
    /// A window that begins `warm_up` after now and is `length` long.
    #[must_use]
    pub fn from_now(warm_up: Duration, length: Duration) -> Self {
        let open = now();
        let start = open + nanos(warm_up);
        Window { open, start, end: start + nanos(length) }
    }

    /// Its length, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}
