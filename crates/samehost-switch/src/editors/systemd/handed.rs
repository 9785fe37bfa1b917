//! What a unit hands to its processes besides what stands in it: the files that `EnvironmentFile=` names. The system
//! manager reads them as root, so that a file may be root's alone and still be the application's.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use samehost_system::decider;

use super::unit::{DIRECTORIES, Unit};
use crate::glob::glob;
use crate::{Disk, Reads};

/// Whether a unit of this system hands its processes what stands in a file: root alone decides over both the file and
/// what names it.
pub(crate) fn hands_over(unit: &str, file: &Path) -> bool {
    is_roots(file) && named_below(Path::new("/"), unit).contains(&real(file))
}

fn is_roots(path: &Path) -> bool {
    matches!(decider(path), Ok(None))
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The files that a unit's `EnvironmentFile=` names, without symbolic links; none where its text leaves a doubt.
fn named_below(root: &Path, unit: &str) -> Vec<PathBuf> {
    let template = template(unit);
    let names = [Some(unit), template.as_deref()].into_iter().flatten();
    let places = names.flat_map(|name| DIRECTORIES.iter().map(move |at| root.join(at).join(name)));
    let Some(path) = places.into_iter().find(|path| path.exists()) else { return Vec::new() };
    let disk = Disk::of(&path, Reads::RootsServer, None);
    let Ok(read) = Unit::open(&path, &disk) else { return Vec::new() };
    let named = read.list("Service", "EnvironmentFile").into_iter().filter(|one| is_roots(&one.file));
    let named = named.filter_map(|one| filled(one.value.trim_start_matches('-').trim_matches('"'), unit));
    named
        .flat_map(|name| {
            glob(&disk, super::unit::under(root, &name).as_os_str().as_bytes()).unwrap_or_default()
        })
        .map(|path| real(&path))
        .collect()
}

/// `app@.service` of `app@shop.service`.
fn template(unit: &str) -> Option<String> {
    let (before, after) = unit.split_once('@')?;
    let (_, kind) = after.rsplit_once('.')?;
    Some(format!("{before}@.{kind}"))
}

/// A path with the specifiers of its unit's names in it filled in; none where it has others.
fn filled(text: &str, unit: &str) -> Option<String> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        out.push_str(match letters.next()? {
            '%' => "%",
            'i' => instance,
            'n' => unit,
            'N' => stem,
            'p' => prefix,
            _ => return None,
        });
    }
    Some(out)
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
    fn what_a_unit_names_and_only_root_wrote_is_handed_over() {
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
        // An empty one takes back what was named before.
        let drop_in = "[Service]\nEnvironmentFile=\nEnvironmentFile=/etc/shop/other.env\n";
        let drop_in = write(root, "etc/systemd/system/shop.service.d/a.conf", drop_in);
        assert_eq!(named("shop.service"), [other]);
        // What somebody else wrote names nothing.
        chown(&drop_in, Some(54_321), None).unwrap();
        assert_eq!(named("shop.service"), Vec::<PathBuf>::new());
        assert!(!hands_over("none.service", &shop));
    }

    #[test]
    fn specifiers_of_names_are_filled_in() {
        let said = |text: &str| filled(text, "app@shop.service");
        assert_eq!(said("/etc/%p/%i.env").as_deref(), Some("/etc/app/shop.env"));
        assert_eq!(said("/etc/%n %N %%").as_deref(), Some("/etc/app@shop.service app@shop %"));
        assert_eq!((said("/home/%u/env"), said("/x%")), (None, None));
        assert_eq!(template("app@shop.service").as_deref(), Some("app@.service"));
    }
}
