//! Files that are mounted individually into a container. Replacing such a file leaves the old one mounted there, and
//! the program inside never sees the change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};
use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;
use samehost_system::identity::Namespaces;
use samehost_system::open::proc_file;
use samehost_system::proc::pids;

use crate::plan::{bar, shown};

/// Maximum length of a list of mounts, in bytes; container hosts have thousands of mounts.
const LONGEST: u64 = 16 << 20;

/// Whether another mount namespace mounts the file individually. Of namespaces inside a foreign user namespace, only
/// those of the plan's own processes count, so that other users cannot interfere.
pub(super) fn look(file: &Path, processes: &[u32]) -> Option<SwitchObstacle> {
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
            let name = proc_file(&format!("/proc/{pid}/comm"), 64).unwrap_or_default();
            let name = samehost_model::printable::clean(String::from_utf8_lossy(&name).trim());
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

fn list(pid: u32) -> String {
    let bytes = proc_file(&format!("/proc/{pid}/mountinfo"), LONGEST).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Mounts of a device: the directory inside its file system, and the mount point (proc(5)).
fn mounts<'a>(list: &'a str, device: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    list.lines().filter_map(move |line| {
        let mut words = line.split(' ').skip(2);
        let (of, root, place) = (words.next()?, words.next()?, words.next()?);
        (of == device).then(|| (unescaped(root), unescaped(place)))
    })
}

/// Path of a file inside its file system, from the innermost mount above it.
fn inside(list: &str, device: &str, file: &Path) -> Option<String> {
    let above = mounts(list, device).filter(|(_, place)| file.starts_with(place));
    let (root, place) = above.max_by_key(|(_, place)| place.len())?;
    let below = file.strip_prefix(&place).ok()?;
    Some(Path::new(&root).join(below).to_str()?.trim_end_matches('/').to_owned())
}

/// Mount point of a file that is mounted individually.
fn mounted(list: &str, device: &str, inside: &str) -> Option<String> {
    mounts(list, device).find(|(root, _)| root == inside).map(|(_, place)| place)
}

/// `\040` is a blank.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
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
}
