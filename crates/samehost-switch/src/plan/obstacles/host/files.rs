//! What stands in the way of a change of a file: it is mounted by itself into a container, other machines read it, an
//! editor has it open, or it belongs to another user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;
use samehost_system::User;
use samehost_system::identity::Namespaces;
use samehost_system::open::proc_file;
use samehost_system::proc::{self, pids};

use super::{file_system, note};
use crate::configuration::ParsedConfig;
use crate::findings::{bar, shown};
use crate::plan::stages::PlannedStage;

/// Maximum length of a list of mounts, in bytes; container hosts have thousands of mounts.
const LONGEST: u64 = 16 << 20;

/// Whether another mount namespace mounts the file individually, as a container may: replacing such a file leaves the old
/// one mounted there, and the program inside never sees the change. Of namespaces inside a foreign user namespace, only
/// those of the plan's own processes count, so that other users cannot interfere.
pub(super) fn mounted_by_itself(file: &Path, processes: &[u32]) -> Option<SwitchObstacle> {
    let own = Namespaces::of(std::process::id())?;
    let device = fs::metadata(file).ok()?.dev();
    let device = format!("{}:{}", major(device), minor(device));
    let inside = inside(&list(std::process::id()), &device, file)?;
    let mut seen = vec![own.mount];
    for pid in pids() {
        let Some(namespaces) = Namespaces::of(pid) else { continue };
        let is_of_plan = processes.contains(&pid);
        if seen.contains(&namespaces.mount) || (namespaces.user != own.user && !is_of_plan) {
            continue;
        }
        seen.push(namespaces.mount);
        if let Some(place) = mounted(&list(pid), &device, &inside) {
            let name = samehost_model::printable::clean(&proc::name(pid));
            return Some(bar(
                ObstacleCode::BindMount,
                format!(
                    "{} is mounted by itself into where {name} ({pid}) runs, at {}: it would go on seeing the old file",
                    shown(file),
                    shown(Path::new(&place))
                ),
                "Mount its directory instead of the file, and start it anew; or edit the file in its place by hand, and restart it",
            ));
        }
    }
    None
}

/// The mounts that a process sees (proc(5)).
fn list(pid: u32) -> String {
    let bytes = proc_file(&format!("/proc/{pid}/mountinfo"), LONGEST).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Mounts of a device: the directory inside its file system, and the mount point (proc(5)).
fn mounts(list: &str, device: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in list.lines() {
        let mut words = line.split(' ').skip(2);
        let (Some(of), Some(root), Some(place)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if of == device {
            found.push((unescaped(root), unescaped(place)));
        }
    }
    found
}

/// Path of a file inside its file system, from the innermost mount above it.
fn inside(list: &str, device: &str, file: &Path) -> Option<String> {
    let mut above = mounts(list, device);
    above.retain(|(_, place)| file.starts_with(place));
    let (root, place) = above.into_iter().max_by_key(|(_, place)| place.len())?;
    let below = file.strip_prefix(&place).ok()?;
    Some(Path::new(&root).join(below).to_str()?.trim_end_matches('/').to_owned())
}

fn mounted(list: &str, device: &str, inside: &str) -> Option<String> {
    for (root, place) in mounts(list, device) {
        if root == inside {
            return Some(place);
        }
    }
    None
}

/// `\040` is a blank.
fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (from, to) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(from, to);
    }
    text
}

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

/// A note if a file is on a file system that other machines may read as well. A loopback address means each machine's own
/// server, so the socket has to exist on each of them.
pub(super) fn shared_by_machines(file: &Path) -> Option<SwitchObstacle> {
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

/// A note if an editor's lock or swap file is beside a file: saving there later would overwrite the switch.
pub(super) fn open_in_editor(file: &Path) -> Option<SwitchObstacle> {
    let mark = marks(file)?.into_iter().find(|mark| fs::symlink_metadata(mark).is_ok())?;
    Some(note(
        ObstacleCode::OpenInEditor,
        format!(
            "{} seems to be open in an editor, or an editor was interrupted: {}",
            shown(file),
            shown(&mark)
        ),
        "Save and close it first: what it saves later would be written over the switch",
    ))
}

/// Vim's swap files (and nano's lock), Emacs' lock and autosave file, LibreOffice's lock.
fn marks(file: &Path) -> Option<Vec<PathBuf>> {
    let name = file.file_name()?.to_str()?;
    let marks = [
        format!(".{name}.swp"),
        format!(".{name}.swo"),
        format!(".#{name}"),
        format!("#{name}#"),
        format!(".~lock.{name}#"),
    ];
    Some(marks.iter().map(|mark| file.with_file_name(mark)).collect())
}

/// Files that change and belong neither to root nor to the owner of a configuration that the user named. It is read as
/// its program reads it, but no file of another user is changed because somebody else's file includes it.
pub(crate) fn other_owners(configurations: &[ParsedConfig], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut owners = vec![0];
    for read in configurations {
        owners.extend(owner(&read.config.file));
        owners.extend(read.config.files().user().map(|user| user.account.uid));
    }
    let mut found = Vec::new();
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        let Some(uid) = owner(&change.path) else { continue };
        if owners.contains(&uid) {
            continue;
        }
        let (path, owner) = (shown(&change.path), User::of(uid));
        found.push(bar(
            ObstacleCode::OtherOwner,
            format!("{path} belongs to {owner}, and only another user's configuration includes it"),
            format!("Where it is to change, name it: samehost switch {path}"),
        ));
    }
    found
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        40 22 254:0 /data/srv /srv rw - ext4 /dev/vda rw\n";
    const CONTAINER: &str = "700 600 0:55 / / rw - overlay overlay rw\n\
        710 700 254:0 /data/srv/shop/a\\040b.env /app/.env rw - ext4 /dev/vda rw\n\
        711 700 254:0 /data/srv/conf /etc/conf rw - ext4 /dev/vda rw\n";

    #[test]
    fn recorded_mounts_of_a_container_are_recognised() {
        let place =
            |file: &str| mounted(CONTAINER, "254:0", &inside(HOST, "254:0", Path::new(file)).unwrap());
        assert_eq!(inside(HOST, "254:0", Path::new("/etc/x")).as_deref(), Some("/etc/x"));
        assert_eq!(place("/srv/shop/a b.env").as_deref(), Some("/app/.env"));
        assert_eq!(
            place("/srv/conf/x.conf"),
            None,
            "a directory that is mounted shows what is renamed in it"
        );
        assert_eq!(place("/etc/x"), None);
        assert_eq!(mounted(CONTAINER, "254:1", "/data/srv/shop/a b.env"), None);
    }

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
        assert_eq!(shared_by_machines(&std::env::current_exe().unwrap()), None);
    }

    #[test]
    fn marks_of_editors_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.conf");
        fs::write(&file, "").unwrap();
        assert_eq!(open_in_editor(&file), None);
        // Emacs' lock is a dangling link.
        std::os::unix::fs::symlink("me@host.1:2", directory.path().join(".#a.conf")).unwrap();
        assert!(open_in_editor(&file).unwrap().found.contains(".#a.conf"));
        fs::write(directory.path().join(".a.conf.swp"), "").unwrap();
        let seen = open_in_editor(&file).unwrap();
        assert!(seen.found.contains(".a.conf.swp") && !seen.bars, "{seen:?}");
    }
}
