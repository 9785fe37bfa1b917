//! Files that systemd reads as root and passes to an application: those in `EnvironmentFile=` of its unit. Such a file
//! may belong to root alone and still be the application's.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use samehost_edit::formats::systemd::{environment_files, places};
use samehost_edit::glob;
use samehost_system::decider;

use crate::disk::{Disk, Reads};

/// Whether a unit of this system passes a file's content to its processes. Root alone must control both the file and
/// what names it.
pub(crate) fn hands_over(unit: &str, file: &Path) -> bool {
    is_roots(file) && named_below(Path::new("/"), unit).contains(&real(file))
}

/// The files in `EnvironmentFile=` of a unit of this system that root alone wrote.
pub(crate) fn environment_files_of(unit: &str) -> Vec<PathBuf> {
    named_below(Path::new("/"), unit)
}

fn is_roots(path: &Path) -> bool {
    matches!(decider(path), Ok(None))
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Files in a unit's `EnvironmentFile=` that root alone wrote, with symbolic links resolved; none if the unit is not
/// understood.
fn named_below(root: &Path, unit: &str) -> Vec<PathBuf> {
    let Some(path) = places(root, unit).into_iter().find(|path| path.exists()) else { return Vec::new() };
    let disk = Disk::of(&path, Reads::RootsServer, None);
    let named = environment_files(root, &path, unit, &disk).unwrap_or_default();
    named
        .into_iter()
        .filter(|one| is_roots(&one.named_in))
        .flat_map(|one| glob(&disk, one.pattern.as_os_str().as_bytes()).unwrap_or_default())
        .map(|path| real(&path))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn write(root: &Path, name: &str, text: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_a_unit_names_and_only_root_wrote_is_handed_over_as_root() {
        assert!(rustix::process::geteuid().is_root(), "this test gives a file away: run it as root");
        let folder = tempfile::Builder::new().tempdir_in("/var").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = folder.path();
        let named = |unit: &str| named_below(root, unit);
        let shop = write(root, "etc/shop/env", "A=b\n");
        let other = write(root, "etc/shop/other.env", "A=b\n");
        write(root, "usr/lib/systemd/system/shop.service", "[Service]\nEnvironmentFile=-/etc/shop/env\n");
        write(root, "etc/systemd/system/at@.service", "[Service]\nEnvironmentFile=/etc/%i/*.env\n");
        assert_eq!(named("shop.service"), std::slice::from_ref(&shop));
        assert_eq!(named("at@shop.service"), std::slice::from_ref(&other));
        assert_eq!(named("none.service"), Vec::<PathBuf>::new());
        // An empty one resets the list.
        let drop_in = "[Service]\nEnvironmentFile=\nEnvironmentFile=/etc/shop/other.env\n";
        let drop_in = write(root, "etc/systemd/system/shop.service.d/a.conf", drop_in);
        assert_eq!(named("shop.service"), [other]);
        // Lines of other users do not count.
        chown(&drop_in, Some(54_321), None).unwrap();
        assert_eq!(named("shop.service"), Vec::<PathBuf>::new());
        assert!(!hands_over("none.service", &shop));
    }
}
