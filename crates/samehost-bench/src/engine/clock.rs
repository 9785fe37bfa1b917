//! The only clock: monotonic nanoseconds. No code outside the engine reads the time of a request.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// One call of the vDSO; makes no system call if the kernel's clock source allows it.
#[inline]
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Duration in nanoseconds, saturating.
#[must_use]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Nanoseconds in the kernel's format.
#[must_use]
pub fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Measured part of a trial: requests before `start` warm up; from `end` on nothing is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Time at which the load begins.
    pub open: Nanos,
    /// First counted nanosecond.
    pub start: Nanos,
    /// First nanosecond that is no longer counted.
    pub end: Nanos,
}

impl Window {
    /// A window that starts in `warm_up` from now and is `length` long.
    #[must_use]
    pub fn from_now(warm_up: Duration, length: Duration) -> Self {
        let open = now();
        let start = open + nanos(warm_up);
        Window { open, start, end: start + nanos(length) }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}
