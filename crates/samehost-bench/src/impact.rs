//! What a measurement does to servers that are already running: what it writes and where, and how much of the
//! free connections, memory and disk it takes. This is found out before anything is written, and the user
//! decides. Pure, except for the free space of a disk: workloads query their servers.

use std::path::Path;

/// A measurement takes at most one PARTth of what a running server has left of connections, memory and
/// disk. A measurement used to make databases, rows and keys in servers that others use, after one line
/// on standard error, and took as many connections as it was told to. Now the server is asked first what
/// would be written, where that goes (binary log, replicas, append-only file) and what is left, and
/// somebody has to agree; `--yes` agrees where nobody can be asked (docs/decisions/0079).
const PART: u64 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    pub server: String,
    /// What is written, or done to other clients; empty if the server is only read.
    pub does: Vec<String>,
    /// What else was found out: connections, binary log, replicas, memory, disk.
    pub found: Vec<String>,
    /// Where the measurement exceeds what a server in use should bear, and what to do instead.
    pub beyond: Vec<String>,
}

impl Impact {
    pub(crate) fn on(server: impl Into<String>) -> Self {
        Impact { server: server.into(), ..Impact::default() }
    }

    /// Whether the user has to consent first.
    #[must_use]
    pub fn needs_consent(&self) -> bool {
        !self.does.is_empty()
    }

    /// Records how many connections are free, and whether the measurement takes too many of them: `ours` at once,
    /// beside those that others have open now, of the most that the server takes without those that are reserved for
    /// administrators. Nothing where it does not tell. `setting` names its limit.
    pub(crate) fn connections(&mut self, ours: u32, open: Option<u64>, most: Option<u64>, setting: &str) {
        let (ours, Some(open), Some(most)) = (u64::from(ours), open, most) else { return };
        let left = most.saturating_sub(open);
        self.found
            .push(format!("{open} of {most} connections are open ({setting}); the measurement opens {ours}"));
        if ours.saturating_mul(PART) > left.max(1) && ours > 1 {
            self.beyond.push(format!(
                "{ours} connections are more than a quarter of the {left} that are left, and its own clients may be turned away: use at most {} (--connections), or raise {setting}",
                (left / PART).max(1)
            ));
        }
    }

    pub(crate) fn room(&mut self, needed: u64, left: u64, place: &str) {
        self.found.push(format!("{} are left {place}", in_words(left)));
        if needed.saturating_mul(PART) > left {
            self.beyond.push(format!(
                "about {} are more than a quarter of the {} that are left {place}: write less (--rows, --size)",
                in_words(needed),
                in_words(left)
            ));
        }
    }

    /// Records the use of a memory of `all` bytes, of which `used` are in use. A cache is normally full and
    /// evicts what was used least: a hundredth of it may be taken.
    pub(crate) fn memory(&mut self, needed: u64, used: u64, all: u64, place: &str) {
        if needed.saturating_mul(100) > all {
            self.room(needed, all.saturating_sub(used), place);
        } else {
            self.found.push(format!("{} of {} are used {place}", in_words(used), in_words(all)));
        }
    }

    pub(crate) fn disk(&mut self, needed: u64, directory: &str) {
        if let Ok(space) = rustix::fs::statvfs(Path::new(directory)) {
            let left = space.f_bavail.saturating_mul(space.f_frsize);
            self.room(needed, left, &format!("on the disk of {directory}"));
        }
    }
}

/// `12 MiB`: in the largest unit of which there are at least ten, rounded down.
pub(crate) fn in_words(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{bytes} bytes"),
        0x2800..0xA0_0000 => format!("{} KiB", bytes >> 10),
        0xA0_0000..0x2_8000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connecting(ours: u32, open: u64, most: u64) -> Impact {
        let mut impact = Impact::on("a server");
        impact.connections(ours, Some(open), Some(most), "max_connections");
        impact
    }

    #[test]
    fn a_quarter_of_the_connections_that_are_left_may_be_taken() {
        assert!(connecting(30, 31, 151).beyond.is_empty());
        let beyond = connecting(31, 31, 151).beyond;
        assert!(beyond[0].contains("at most 30 (--connections)"), "{beyond:?}");
        assert!(!connecting(2, 151, 151).beyond.is_empty(), "none is left");
        assert!(connecting(1, 149, 151).beyond.is_empty(), "one is the least that measures anything");
        assert!(!connecting(1, 1, 1).needs_consent());
    }

    #[test]
    fn a_quarter_of_the_room_that_is_left_may_be_filled() {
        let mut impact = Impact::on("a server");
        impact.room(25 << 20, 100 << 20, "in its memory");
        assert!(impact.beyond.is_empty() && impact.found[0].contains("100 MiB"), "{impact:?}");
        impact.room(26 << 20, 100 << 20, "in its memory");
        assert!(impact.beyond[0].contains("--size"), "{impact:?}");

        let mut cache = Impact::on("a full cache");
        cache.memory(1 << 20, 128 << 20, 128 << 20, "in its memory");
        assert!(cache.beyond.is_empty(), "{cache:?}");
        cache.memory(2 << 20, 128 << 20, 128 << 20, "in its memory");
        assert_eq!(cache.beyond.len(), 1, "{cache:?}");
        assert_eq!(
            (in_words(500), in_words(64 << 10), in_words(20 << 30)),
            ("500 bytes".into(), "64 KiB".into(), "20 GiB".into())
        );
    }
}
