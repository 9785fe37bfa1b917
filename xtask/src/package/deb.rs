//! The package for Debian and Ubuntu, by dpkg-deb. Nothing of debhelper is needed: there is nothing to build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Release, template, tree};
use crate::{bytes, date, text};

const DOCUMENTS: &str = "usr/share/doc/samehost";

pub(super) fn build(release: &Release<'_>) -> anyhow::Result<PathBuf> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("samehost");
    tree::common(release, &root, "usr/share/zsh/vendor-completions")?;
    documents(release, &root)?;
    let mut overrides = template("debian/samehost.lintian-overrides", &[])?;
    if release.elf.is_static {
        overrides += &template("debian/samehost.lintian-overrides.static", &[])?;
    }
    tree::write(&root, "usr/share/lintian/overrides/samehost", overrides)?;
    control(release, &root)?;
    tree::settle(&root, release.epoch)?;
    let (version, machine) = (version(release), release.elf.machine.debian());
    let path = release.out.join(format!("samehost_{version}_{machine}.deb"));
    let mut pack = Command::new("dpkg-deb");
    // One thread: how the archive is cut into blocks depends on their number.
    pack.args(["--root-owner-group", "-Zxz", &format!("-z{}", release.level), "--threads-max=1", "--build"]);
    bytes(pack.arg(&root).arg(&path).env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    Ok(path)
}

fn version(release: &Release<'_>) -> String {
    format!("{}-1", release.ordered_version())
}

fn documents(release: &Release<'_>, root: &Path) -> anyhow::Result<()> {
    let source = crate::root();
    let read = |name: &str| std::fs::read_to_string(source.join(name)).with_context(|| name.to_owned());
    let licence: Vec<String> = read("LICENSE-MIT")?.lines().skip(4).map(paragraph).collect();
    let copyright = template("debian/copyright", &[("MIT", &licence.join("\n"))])?;
    tree::write(root, &format!("{DOCUMENTS}/copyright"), copyright)?;
    let upstream = tree::write(root, &format!("{DOCUMENTS}/changelog"), read("CHANGELOG.md")?)?;
    let date = date(release.epoch, "--rfc-email")?;
    let debian = template(
        "debian/changelog",
        &[("VERSION", &version(release)), ("UPSTREAM", release.version), ("DATE", &date)],
    )?;
    let debian = tree::write(root, &format!("{DOCUMENTS}/changelog.Debian"), debian)?;
    let licences = tree::write(root, &format!("{DOCUMENTS}/{}", super::LICENCES), release.licences)?;
    tree::zip(&[upstream, debian, licences])
}

/// A line of a licence as a line of a field: indented, a dot for an empty one.
fn paragraph(line: &str) -> String {
    if line.is_empty() { " .".into() } else { format!(" {line}") }
}

fn control(release: &Release<'_>, root: &Path) -> anyhow::Result<()> {
    let names = tree::files(root)?;
    let mut bytes = 0;
    for name in &names {
        bytes += std::fs::metadata(root.join(name))?.len();
    }
    let depends = if release.elf.is_static { String::new() } else { depends(release)? };
    let control = template(
        "debian/control",
        &[
            ("VERSION", &version(release)),
            ("ARCHITECTURE", release.elf.machine.debian()),
            ("INSTALLED_SIZE", &bytes.div_ceil(1024).to_string()),
            ("DEPENDS", &depends),
        ],
    )?;
    let sums = text(Command::new("md5sum").args(&names).current_dir(root))?;
    tree::write(root, "DEBIAN/control", control)?;
    tree::write(root, "DEBIAN/md5sums", sums)?;
    for script in ["postinst", "prerm", "postrm"] {
        tree::write(root, &format!("DEBIAN/{script}"), template(&format!("debian/{script}"), &[])?)?;
    }
    Ok(())
}

/// The libraries that a dynamic program needs, by the packages of this machine.
fn depends(release: &Release<'_>) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    // dpkg-shlibdeps wants the source package that there is none of.
    let source = "Source: samehost\n\nPackage: samehost\nArchitecture: any\nDescription: samehost\n";
    tree::write(folder.path(), "debian/control", source)?;
    let binary = release.binary.canonicalize()?;
    let output = text(Command::new("dpkg-shlibdeps").arg("-O").arg(binary).current_dir(folder.path()))?;
    let packages =
        output.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps named no package")?;
    Ok(format!("Depends: {packages}\n"))
}
