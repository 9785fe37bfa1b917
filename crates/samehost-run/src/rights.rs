//! What a thread may do: users, groups, capabilities, namespaces, root directory, label, filters. Whoever connects for
//! another must have no more than it. It is read at each connection: a thread may give up rights at any time.

use std::io;

use rustix::process::Pid;
use rustix::thread::capabilities;

use super::thread::{Directory, Thread};

/// What a thread may do.
/// The server asks the kernel who connected and sees the supervisor, and a process of the program may
/// have given up rights since its start: a service that drops root, a sandbox, a container. Connecting
/// with the target's identity (setfsuid, setns) was rejected, because it needs root and gets close to
/// what a sandbox must do right, and so were user ids alone: a filter, a label or a chroot is what they
/// do not show. What differs continues over TCP (docs/decisions/0100).
#[derive(Debug)]
pub struct Rights {
    pub process: u32,
    /// User and group, in turn: real, effective, saved, of the file system.
    ids: [u32; 8],
    capabilities: u64,
    /// None where they are sure to be those that the program was started with.
    inherited: Option<Inherited>,
    user_namespace: Vec<u8>,
    /// The mount namespace is not asked for: paths begin at this directory, and its mount belongs to one namespace.
    root: Directory,
    /// Of SELinux or AppArmor, where there is one.
    label: Option<String>,
}

/// What every thread of the program has from the first one, until a call that stops changes it.
/// A connect took about 100 µs more under `run` than over TCP, and most of that was `/proc`: this status,
/// namespaces and descriptors. `setgroups`, `seccomp` and `prctl(PR_SET_SECCOMP)` stop, by all numbers of
/// the processor, and after the first of them everything is read again for every thread. Keeping all
/// rights by thread was rejected: `clone3` has its flags in memory, and an executed program changes its
/// label and capabilities without a call that could be told from others (docs/decisions/0115).
#[derive(Debug, PartialEq)]
struct Inherited {
    groups: String,
    /// Filters of system calls; not on every kernel.
    filters: Option<u64>,
}

impl Rights {
    pub fn of(thread: &Thread) -> io::Result<Self> {
        Self::read(thread, true, thread.read("attr/current").ok())
    }

    /// Those of a thread to compare with these: no label is looked for where this kernel has none. Groups and filters are read
    /// where a thread of the program may have changed its own, and where this kernel does not tell the rest by the pidfd.
    pub fn of_another(&self, thread: &Thread, may_differ: bool) -> io::Result<Self> {
        let label = match self.label {
            Some(_) => thread.read("attr/current").ok(),
            None => None,
        };
        Self::read(thread, may_differ, label)
    }

    fn read(thread: &Thread, may_differ: bool, label: Option<String>) -> io::Result<Self> {
        let identity = if may_differ { None } else { thread.identity() };
        let (process, ids, inherited) = match identity {
            Some(identity) => (identity.process, identity.ids, None),
            None => {
                let Some((process, ids, inherited)) = of_status(&thread.status()?) else {
                    return Err(io::Error::other("its status lacks a line"));
                };
                (process, ids, Some(inherited))
            }
        };
        let number = Pid::from_raw(thread.number as i32);
        Ok(Rights {
            process,
            ids,
            capabilities: capabilities(number)?.effective.bits(),
            inherited,
            user_namespace: thread.link("ns/user")?,
            root: thread.directory("root")?,
            label,
        })
    }

    /// These rights with so many filters more.
    pub fn with_filters(mut self, more: u64) -> Self {
        if let Some(Inherited { filters: Some(filters), .. }) = &mut self.inherited {
            *filters += more;
        }
        self
    }

    /// In what the other differs so that it may do less than this, or simply other things; the words continue "the process
    /// has". What was not read of either is the same: nothing has changed it.
    pub fn difference(&self, other: &Rights) -> Option<&'static str> {
        let (has_other_groups, has_other_filters) = match (&self.inherited, &other.inherited) {
            (Some(own), Some(its)) => (own.groups != its.groups, own.filters != its.filters),
            _ => (false, false),
        };
        if self.ids != other.ids || has_other_groups {
            Some("another user or group")
        } else if self.capabilities & !other.capabilities != 0 {
            Some("fewer capabilities")
        } else if self.user_namespace != other.user_namespace {
            Some("another user namespace")
        } else if self.root != other.root {
            Some("another root directory or mount namespace")
        } else if self.label != other.label {
            Some("another security label")
        } else if has_other_filters {
            Some("a filter of system calls of its own")
        } else {
            None
        }
    }
}

/// The process, users and groups, and what is inherited, of `/proc/TID/status`; `None` if a line is missing.
fn of_status(status: &str) -> Option<(u32, [u32; 8], Inherited)> {
    let mut users = value(status, "Uid:")?.split_whitespace();
    let mut groups = value(status, "Gid:")?.split_whitespace();
    let mut ids = [0; 8];
    for pair in ids.chunks_exact_mut(2) {
        pair[0] = users.next()?.parse().ok()?;
        pair[1] = groups.next()?.parse().ok()?;
    }
    let filters = match value(status, "Seccomp_filters:") {
        Some(number) => number.parse().ok(),
        None => None,
    };
    let inherited = Inherited { groups: value(status, "Groups:")?.to_owned(), filters };
    Some((value(status, "Tgid:")?.parse().ok()?, ids, inherited))
}

fn value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim())
}

#[cfg(test)]
mod tests {
    use super::super::thread::Threads;
    use super::*;

    fn thread() -> std::rc::Rc<Thread> {
        Threads::open().expect("/proc").of(std::process::id()).expect("this process")
    }

    fn own() -> Rights {
        Rights::of(&thread()).expect("readable")
    }

    fn an_open_directory() -> Directory {
        thread().directory("cwd").expect("a directory that is not the root")
    }

    #[test]
    fn whatever_differs_is_found() {
        assert_eq!(own().difference(&own()), None);
        fn inherited(rights: &mut Rights) -> &mut Inherited {
            rights.inherited.as_mut().expect("read")
        }
        let changes: [fn(&mut Rights); 6] = [
            |other| other.ids[4] += 1,
            |other| inherited(other).groups.push_str(" 4"),
            |other| other.user_namespace.push(b'1'),
            |other| other.root = an_open_directory(),
            |other| other.label = Some("confined".into()),
            |other| inherited(other).filters = Some(99),
        ];
        for change in changes {
            let mut other = own();
            change(&mut other);
            assert!(own().difference(&other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn a_pidfd_says_the_same_as_the_status() {
        let (own, thread) = (own(), thread());
        let short = own.of_another(&thread, false).expect("readable");
        assert_eq!((own.process, own.ids, own.capabilities), (short.process, short.ids, short.capabilities));
        assert_eq!(own.difference(&short), None);
        assert_eq!(thread.identity().is_some(), short.inherited.is_none());
    }

    #[test]
    fn only_more_capabilities_than_the_other_has_are_too_many() {
        let (mut few, mut many) = (own(), own());
        (few.capabilities, many.capabilities) = (1, 3);
        assert_eq!(few.difference(&many), None);
        assert_eq!(many.difference(&few), Some("fewer capabilities"));
    }
}
