//! Protects a process with passwords: it writes no core dump, and no other process of its user may read its memory.

use std::sync::Once;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Protects this process from here on; only the first call has an effect. If the kernel refuses, nothing else
/// can be done.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_memory_image_is_left() {
        guard();
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
