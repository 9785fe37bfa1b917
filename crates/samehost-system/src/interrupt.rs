//! Interrupt flag of the whole process: the user, or the system, wants this program to stop. Every loop that
//! waits checks it. The command decides which signals set it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// For signal handlers, which set it.
#[must_use]
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&FLAG)
}

thread_local! {
    static IS_PUTTING_RIGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether an interrupt was requested; never for a thread in [`putting_right`].
#[must_use]
pub fn is_requested() -> bool {
    FLAG.load(Ordering::Relaxed) && !IS_PUTTING_RIGHT.get()
}

/// Runs work that must finish despite an interrupt: undoing changes. Its waits end only by their own time limits.
pub fn putting_right<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the previous value however the work ends.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_PUTTING_RIGHT.set(self.0);
        }
    }
    let _before = Before(IS_PUTTING_RIGHT.replace(true));
    work()
}
