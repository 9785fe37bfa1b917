//! Memory that a process may lock. Before Linux 5.11 maps and programs count as such, and 64 KiB of it are usual, where the records of
//! exchanges alone take a megabyte.

/// Lets this process lock any amount of memory, or as much as it may ask for without CAP_SYS_RESOURCE, until this is dropped. What
/// was loaded until then stays.
#[derive(Debug)]
pub(crate) struct AnyAmount {
    before: Option<libc::rlimit>,
}

impl AnyAmount {
    pub(crate) fn of_locked_memory() -> Self {
        let Some(before) = limit() else { return AnyAmount { before: None } };
        let any = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // Where neither is allowed the first map says what is missing.
        let is_raised = set(&any) || set(&libc::rlimit { rlim_cur: before.rlim_max, ..before });
        AnyAmount { before: is_raised.then_some(before) }
    }
}

impl Drop for AnyAmount {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set(before);
        }
    }
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit, and nobody else has it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result == 0).then_some(limit)
}

fn set(limit: &libc::rlimit) -> bool {
    // SAFETY: the limit lives until this returns.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, std::ptr::from_ref(limit)) };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_it_was_afterwards() {
        let values = || limit().map(|limit| (limit.rlim_cur, limit.rlim_max)).expect("there is one");
        let (most, few) = (values().1, 1 << 16);
        assert!(set(&libc::rlimit { rlim_cur: few, rlim_max: most }), "less is always allowed");
        let any_amount = AnyAmount::of_locked_memory();
        assert!(values().0 >= most);
        drop(any_amount);
        assert_eq!(values(), (few, most));
    }
}
