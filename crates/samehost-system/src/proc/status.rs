//! Parses `/proc/PID/status`: user, groups and capabilities of a process. Pure, except [`read`].

/// User, groups and capabilities of a process, by which the kernel decides on its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Pid of the parent.
    pub parent: u32,
    /// File-system uid.
    pub uid: u32,
    /// File-system gid.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities.
    pub capabilities: u64,
}

/// `CAP_DAC_OVERRIDE`: overrides permission bits.
const DAC_OVERRIDE: u32 = 1;
/// `CAP_DAC_READ_SEARCH`: may search every directory.
const DAC_READ_SEARCH: u32 = 2;

/// Status of a process; `None` if it has ended.
pub fn read(pid: u32) -> Option<Status> {
    // 65,536 groups, the maximum, take 700 KB.
    crate::open::proc_file(&format!("/proc/{pid}/status"), 1 << 20).ok().map(|bytes| Status::parse(&bytes))
}

impl Status {
    /// Parses the relevant lines; missing values stay 0.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut status = Status::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            // Real, effective, saved and file-system id; the last one decides on files.
            let for_files = || value.split_whitespace().nth(3).and_then(|id| id.parse().ok());
            match key {
                "PPid" => status.parent = value.trim().parse().unwrap_or(0),
                "Uid" => status.uid = for_files().unwrap_or(0),
                "Gid" => status.gid = for_files().unwrap_or(0),
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
}
