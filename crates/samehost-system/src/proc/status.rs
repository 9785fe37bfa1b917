//! Parses `/proc/PID/stat` and `/proc/PID/status`: name, parent and CPU time of a process, all its threads together, and
//! its user, groups and capabilities. Pure, except [`read`] and [`read_stat`].

use crate::accounts::Account;

/// User, groups and capabilities of a process, by which the kernel decides on its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub parent: u32,
    /// File-system uid and gid.
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The effective ones.
    pub capabilities: u64,
}

/// `CAP_DAC_OVERRIDE`: overrides permission bits.
const DAC_OVERRIDE: u32 = 1;
/// `CAP_DAC_READ_SEARCH`: may search every directory.
const DAC_READ_SEARCH: u32 = 2;

/// `None` if the process has ended.
pub fn read(pid: u32) -> Option<Status> {
    // 65,536 groups, the maximum, take 700 KB.
    let bytes = crate::open::proc_file(&format!("/proc/{pid}/status"), 1 << 20).ok()?;
    Some(Status::parse(&bytes))
}

impl Status {
    /// Parses the relevant lines; missing values stay 0.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut status = Status::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key {
                "PPid" => status.parent = value.trim().parse().unwrap_or(0),
                "Uid" => status.uid = id_for_files(value),
                "Gid" => status.gid = id_for_files(value),
                "Groups" => {
                    status.groups = value.split_whitespace().filter_map(|id| id.parse().ok()).collect();
                }
                "CapEff" => status.capabilities = u64::from_str_radix(value.trim(), 16).unwrap_or(0),
                _ => {}
            }
        }
        status
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    /// As whom the process opens files.
    #[must_use]
    pub fn account(self) -> Account {
        Account { uid: self.uid, gid: self.gid, groups: self.groups }
    }

    /// Whether its capabilities grant the permissions `wanted`, whatever those of a file are.
    pub fn is_above_rights(&self, wanted: u32, is_directory: bool) -> bool {
        self.has(DAC_OVERRIDE) || (is_directory && wanted == 1 && self.has(DAC_READ_SEARCH))
    }

    /// Whether a file with this mode, owner and group grants the permissions `wanted` (4 read, 2 write, 1
    /// search) to this process. Access control lists are not considered.
    pub fn may(&self, wanted: u32, mode: u32, owner: u32, group: u32) -> bool {
        let bits = if self.uid == owner {
            mode >> 6
        } else if self.gid == group || self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        bits & wanted == wanted
    }
}

/// The last of real, effective, saved and file-system id.
fn id_for_files(ids: &str) -> u32 {
    let id = ids.split_whitespace().nth(3).unwrap_or_default();
    id.parse().unwrap_or(0)
}

/// Fields of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the executable, at most 15 bytes.
    pub name: String,
    pub parent: u32,
    /// User time in ticks, including threads that have ended.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// User and system time of children that ended and were waited for, in ticks.
    pub reaped_ticks: u64,
}

/// Clock ticks per second in /proc (`USER_HZ`, read from the kernel; 100 on every Linux of interest).
#[must_use]
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second().max(1) as f64
}

/// `None` if the process has ended.
#[must_use]
pub fn read_stat(pid: u32) -> Option<Stat> {
    Stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

impl Stat {
    /// The fields are counted after the name, which may contain anything.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // fields[0] is field 3 of the manual page, the state.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            name: head.split_once('(')?.1.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            reaped_ticks: number(16)?.checked_add(number(17)?)?,
        })
    }

    /// User and system time in seconds, of all threads, without children.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        (self.user_ticks as f64 + self.system_ticks as f64) / ticks_per_second()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"Name:\tphp-fpm8.2\nPPid:\t17\nUid:\t33\t33\t33\t33\nGid:\t33\t33\t33\t33\nGroups:\t33 110 \nCapEff:\t0000000000000000\n";

    #[test]
    fn rights_follow_the_first_class_that_fits() {
        let status = Status::parse(TEXT);
        assert_eq!((status.parent, status.uid, status.gid), (17, 33, 33));
        assert_eq!(status.groups, [33, 110]);
        assert!(status.may(2, 0o660, 0, 110));
        assert!(!status.may(2, 0o606, 0, 110), "the group's bits decide, though others may");
        assert!(!status.may(2, 0o077, 33, 0), "the owner's bits decide");
        assert!(status.may(1, 0o711, 0, 0));
        let root = Status { capabilities: 0x1ff_ffff_ffff, ..Status::default() };
        assert!(root.is_above_rights(2, false));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Status::parse(&bytes);
        }
    }

    #[test]
    fn a_name_may_hold_blanks_and_brackets() {
        let line = b"7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 1 0 5 6 7\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c)", 1));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.reaped_ticks), (250, 50, 15));
        for part in [&b"7 (a) S 1"[..], b"", b"1 (x", b"1 (x) S"] {
            assert_eq!(Stat::parse(part), None);
        }
        assert!(read_stat(std::process::id()).is_some() && read_stat(u32::MAX).is_none());
    }
}
