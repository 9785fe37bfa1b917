//! Whether a person, or the system, wants this program to stop: one flag for the whole process. Every loop that waits
//! looks at it. Who sets it, on which signals, is the command's business.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag itself, for the handlers of signals.
#[must_use]
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&FLAG)
}

/// Whether it is set.
#[must_use]
pub fn is_requested() -> bool {
    FLAG.load(Ordering::Relaxed)
}
