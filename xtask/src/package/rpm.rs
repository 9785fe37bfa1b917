//! The package for Fedora, openSUSE and their kin, by rpmbuild (Debian's package `rpm`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::{Release, template, tree};
use crate::bytes;

pub(super) fn build(release: &Release<'_>) -> anyhow::Result<PathBuf> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("tree");
    tree::common(release, &root, "usr/share/zsh/site-functions")?;
    for name in ["CHANGELOG.md", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let kind = if name.starts_with("LICENSE") { "licenses" } else { "doc" };
        let text = std::fs::read(crate::root().join(name)).with_context(|| name.to_owned())?;
        tree::write(&root, &format!("usr/share/{kind}/samehost/{name}"), text)?;
    }
    let licences = format!("usr/share/licenses/samehost/{}", super::LICENCES);
    tree::write(&root, &licences, release.licences)?;
    tree::settle(&root, release.epoch)?;
    let (version, machine) = (release.ordered_version(), release.elf.machine.kernel());
    let words = [
        ("VERSION", version.as_str()),
        ("LEVEL", &release.level.to_string()),
        ("TREE", &root.display().to_string()),
        ("FILES", &files(&root)?),
    ];
    let spec = tree::write(folder.path(), "samehost.spec", template("rpm/samehost.spec", &words)?)?;
    let mut pack = Command::new("rpmbuild");
    pack.args(["-bb", "--quiet", "--target", &format!("{machine}-linux")]);
    let made = folder.path().join("made");
    let top = [
        ("_topdir", folder.path().join("top")),
        ("_rpmdir", made.clone()),
        ("_tmppath", folder.path().join("tmp")),
    ];
    for (name, value) in top {
        std::fs::create_dir_all(&value)?;
        pack.args(["--define", &format!("{name} {}", value.display())]);
    }
    // Without it rpm reads the settings of whoever builds.
    pack.env("HOME", folder.path()).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    bytes(pack.arg(&spec)).context("rpmbuild (package rpm)")?;
    let packed = tree::files(&made)?;
    ensure!(packed.len() == 1, "rpmbuild made {packed:?}");
    let path = release.out.join(format!("samehost-{version}-1.{machine}.rpm"));
    std::fs::copy(made.join(&packed[0]), &path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The list of files in the words of a spec, with the folders that only this package has: rpm leaves others behind.
fn files(root: &Path) -> anyhow::Result<String> {
    let files = tree::files(root)?;
    let folders: BTreeSet<&Path> = files
        .iter()
        .flat_map(|file| file.ancestors().skip(1))
        .filter(|folder| folder.components().any(|part| part.as_os_str() == "samehost"))
        .collect();
    let line = |name: &PathBuf| {
        let name = name.display();
        match name.to_string() {
            text if text.starts_with("usr/share/licenses") => format!("%license /{text}"),
            text if text.starts_with("usr/share/doc") => format!("%doc /{text}"),
            text => format!("/{text}"),
        }
    };
    let folders = folders.iter().map(|folder| format!("%dir /{}", folder.display()));
    Ok(folders.chain(files.iter().map(line)).collect::<Vec<_>>().join("\n"))
}
