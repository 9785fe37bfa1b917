//! What a measurement does to servers that already run: what it would write and where that goes, how many of the
//! connections that are left it takes, and what it leaves to others. Looked at before anything is written; whoever
//! measures decides. Pure, but for a disk's free room: workloads ask their servers.

use std::path::Path;

/// A measurement takes at most this part of what is left of anything.
const PART: u64 = 4;

/// What a measurement does to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    /// Which server, and where.
    pub server: String,
    /// What is written there, or done to whoever else uses it; empty where it is only read.
    pub does: Vec<String>,
    /// What else it was asked: connections, binary log, replicas, memory, disk.
    pub found: Vec<String>,
    /// Where it goes beyond what a server in use should bear, and what would not.
    pub beyond: Vec<String>,
}

/// Connections of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    /// Those that the measurement opens at the same time.
    pub(crate) ours: u64,
    /// Those that are open now.
    pub(crate) open: u64,
    /// The most that there can be, without those that are kept for administrators.
    pub(crate) most: u64,
}

impl Impact {
    /// One of a server.
    pub(crate) fn of(server: impl Into<String>) -> Self {
        Impact { server: server.into(), ..Impact::default() }
    }

    /// Whether somebody has to agree to it first.
    #[must_use]
    pub fn needs_consent(&self) -> bool {
        !self.does.is_empty()
    }

    /// Says how many connections are left, and whether the measurement takes too many of them; `setting` is what limits
    /// them.
    pub(crate) fn connections(&mut self, connections: Connections, setting: &str) {
        let Connections { ours, open, most } = connections;
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

    /// Says how much room is left where it writes so many bytes.
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

    /// The same for a memory of `all` bytes, `used` of which are in use. One that is full, as a cache should be, gives up
    /// what was used least: a hundredth of it may go.
    pub(crate) fn memory(&mut self, needed: u64, used: u64, all: u64, place: &str) {
        if needed.saturating_mul(100) > all {
            self.room(needed, all.saturating_sub(used), place);
        } else {
            self.found.push(format!("{} of {} are used {place}", in_words(used), in_words(all)));
        }
    }

    /// The same for the disk of a directory of this machine, where it can be seen.
    pub(crate) fn disk(&mut self, needed: u64, directory: &str) {
        if let Ok(space) = rustix::fs::statvfs(Path::new(directory)) {
            let left = space.f_bavail.saturating_mul(space.f_frsize);
            self.room(needed, left, &format!("on the disk of {directory}"));
        }
    }
}

/// Bytes for a person.
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

    fn connecting(ours: u64, open: u64, most: u64) -> Impact {
        let mut impact = Impact::of("a server");
        impact.connections(Connections { ours, open, most }, "max_connections");
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
        let mut impact = Impact::of("a server");
        impact.room(25 << 20, 100 << 20, "in its memory");
        assert!(impact.beyond.is_empty() && impact.found[0].contains("100 MiB"), "{impact:?}");
        impact.room(26 << 20, 100 << 20, "in its memory");
        assert!(impact.beyond[0].contains("--size"), "{impact:?}");

        let mut cache = Impact::of("a full cache");
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
