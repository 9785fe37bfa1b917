//! Whether a person, or the system, wants this program to stop: one flag for the whole process. Every loop that waits
//! looks at it. Who sets it, on which signals, is the command's business.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag itself, for the handlers of signals.
#[must_use]
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&FLAG)
}

thread_local! {
    static IS_PUTTING_RIGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether it is set, for this thread.
#[must_use]
pub fn is_requested() -> bool {
    FLAG.load(Ordering::Relaxed) && !IS_PUTTING_RIGHT.get()
}

/// Does what must be done though a person wants this program to stop: taking back what it did. Its waits end by their own
/// limits only.
pub fn putting_right<T>(work: impl FnOnce() -> T) -> T {
    /// Set back however the work ends.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_PUTTING_RIGHT.set(self.0);
        }
    }
    let _before = Before(IS_PUTTING_RIGHT.replace(true));
    work()
}
