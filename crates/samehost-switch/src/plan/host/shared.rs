//! Files that other machines may read as well. A loopback address means each machine's own server, so the socket has to
//! exist on each of them.

use std::path::Path;

use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;

use super::{file_system, note};
use crate::plan::shown;

/// File system types in statfs (statfs(2), linux/magic.h).
const KINDS: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x00c3_6400, "CephFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9p, of the machine that runs this one"),
    (0x786f_4256, "a folder that VirtualBox shares"),
    (0x6573_5546, "FUSE, which may be GlusterFS, sshfs or virtiofs"),
];

/// A note if a file is on such a file system.
pub(super) fn look(file: &Path) -> Option<SwitchObstacle> {
    let kind = kind(file_system(file)?)?;
    Some(note(
        ObstacleCode::SharedFiles,
        format!(
            "{} is on {kind}: other machines may read the same file, and each has to have the socket; what they do at the same time is not seen here",
            shown(file)
        ),
        "See that this machine alone uses it, or that every one has the socket; unattended: --accept shared-files",
    ))
}

fn kind(magic: u64) -> Option<&'static str> {
    KINDS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_types_of_network_file_systems_are_named() {
        for (magic, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0116_1970, "GFS2")] {
            assert_eq!(kind(magic), Some(name));
        }
        // ext4, XFS, btrfs, tmpfs, overlay, ZFS.
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(kind(local), None);
        }
    }

    #[test]
    fn this_disk_is_nobody_elses() {
        assert_eq!(look(&std::env::current_exe().unwrap()), None);
    }
}
