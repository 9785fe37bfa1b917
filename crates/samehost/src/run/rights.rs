//! What a thread may do: users, groups, capabilities, namespaces, root directory, label, filters. Whoever connects for
//! another must have no more than it.

use std::io;

use super::thread::Thread;

/// The lines of `/proc/PID/status` that must be the same.
const SAME: [&str; 3] = ["Uid:", "Gid:", "Groups:"];
const NAMESPACES: [&str; 3] = ["ns/user", "ns/mnt", "ns/net"];

#[derive(Debug)]
pub struct Rights {
    ids: Vec<String>,
    capabilities: u64,
    /// Filters of system calls; not on every kernel.
    filters: Option<u64>,
    namespaces: Vec<Vec<u8>>,
    root: (u64, u64),
    /// Of SELinux or AppArmor, where there is one.
    label: Option<String>,
}

impl Rights {
    pub fn of(thread: &Thread) -> io::Result<Self> {
        Self::with_label(thread, thread.read("attr/current").ok())
    }

    /// Those of a thread to compare with these: no label is looked for where this kernel has none.
    pub fn of_another(&self, thread: &Thread) -> io::Result<Self> {
        Self::with_label(thread, self.label.as_ref().and_then(|_| thread.read("attr/current").ok()))
    }

    fn with_label(thread: &Thread, label: Option<String>) -> io::Result<Self> {
        let status = thread.read("status")?;
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let missing = || io::Error::other("its status lacks a line");
        let ids = SAME.iter().map(|name| value(name).map(str::to_owned).ok_or_else(missing));
        let capabilities = value("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok());
        Ok(Rights {
            ids: ids.collect::<io::Result<_>>()?,
            capabilities: capabilities.ok_or_else(missing)?,
            filters: value("Seccomp_filters:").and_then(|text| text.parse().ok()),
            namespaces: NAMESPACES.iter().map(|name| thread.link(name)).collect::<io::Result<_>>()?,
            root: thread.identity("root")?,
            label,
        })
    }

    /// These, for a thread with as many more filters.
    pub fn with_filters(mut self, more: u64) -> Self {
        self.filters = self.filters.map(|filters| filters + more);
        self
    }

    /// In what the other differs so that it may do less than this, or simply other things.
    pub fn difference(&self, other: &Rights) -> Option<&'static str> {
        if self.ids != other.ids {
            Some("another user or group")
        } else if self.capabilities & !other.capabilities != 0 {
            Some("fewer capabilities")
        } else if self.namespaces != other.namespaces {
            Some("another namespace")
        } else if self.root != other.root {
            Some("another root directory")
        } else if self.label != other.label {
            Some("another security label")
        } else if self.filters != other.filters {
            Some("a filter of system calls of its own")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Rights {
        Rights::of(&Thread::open(std::process::id()).expect("this process")).expect("readable")
    }

    #[test]
    fn whatever_differs_is_found() {
        assert_eq!(own().difference(&own()), None);
        let changes: [fn(&mut Rights); 6] = [
            |other| other.ids[0].push('1'),
            |other| other.ids[2].push_str(" 4"),
            |other| other.namespaces[2].push(b'1'),
            |other| other.root.1 += 1,
            |other| other.label = Some("confined".into()),
            |other| other.filters = Some(99),
        ];
        for change in changes {
            let mut other = own();
            change(&mut other);
            assert!(own().difference(&other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn only_more_capabilities_than_the_other_has_are_too_many() {
        let (mut few, mut many) = (own(), own());
        (few.capabilities, many.capabilities) = (1, 3);
        assert_eq!(few.difference(&many), None);
        assert_eq!(many.difference(&few), Some("fewer capabilities"));
    }
}
