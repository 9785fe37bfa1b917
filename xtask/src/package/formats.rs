//! The formats of a package: for Debian and Ubuntu, by dpkg-deb, which needs nothing of debhelper, as there is nothing to
//! build; for Fedora, openSUSE and their kin, by rpmbuild (Debian's package `rpm`); and an image for containers with the
//! program, its licences and nothing else: the layout of the OCI image specification 1.1 in a tar file, as `podman load`,
//! `docker load` (25 and later) and `skopeo` read it. No daemon and no registry takes part.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{Release, template, tree};
use crate::names;
use crate::process::{bytes, date, sha256, succeed, tar, text};

const DOCUMENTS: &str = "usr/share/doc/samehost";

pub(super) fn build_deb(release: &Release<'_>) -> anyhow::Result<PathBuf> {
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
    let (version, machine) = (version(release), release.elf.machine.debian);
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
    let read = |name: &str| fs::read_to_string(source.join(name)).with_context(|| name.to_owned());
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

/// Writes the control file, the sums and the maintainer's scripts.
/// cargo-deb would take over about 60 lines: this file, `md5sums` and the call of dpkg-deb. What would
/// stay are manual pages and completions that the packed program itself writes, the licences of others,
/// two changelogs, lintian's overrides and programs of another processor, and all of that would stand in
/// `Cargo.toml`. The package is installed, used and purged in `cargo test`, so the tool would have to be
/// there for everybody who runs the tests (docs/decisions/0136).
fn control(release: &Release<'_>, root: &Path) -> anyhow::Result<()> {
    let names = tree::files(root)?;
    let mut bytes = 0;
    for name in &names {
        bytes += fs::metadata(root.join(name))?.len();
    }
    let depends = if release.elf.is_static { String::new() } else { depends(release)? };
    let control = template(
        "debian/control",
        &[
            ("VERSION", &version(release)),
            ("ARCHITECTURE", release.elf.machine.debian),
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

pub(super) fn build_rpm(release: &Release<'_>) -> anyhow::Result<PathBuf> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("tree");
    tree::common(release, &root, "usr/share/zsh/site-functions")?;
    for name in ["CHANGELOG.md", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let kind = if name.starts_with("LICENSE") { "licenses" } else { "doc" };
        let text = fs::read(crate::root().join(name)).with_context(|| name.to_owned())?;
        tree::write(&root, &format!("usr/share/{kind}/samehost/{name}"), text)?;
    }
    let licences = format!("usr/share/licenses/samehost/{}", super::LICENCES);
    tree::write(&root, &licences, release.licences)?;
    tree::settle(&root, release.epoch)?;
    let (version, machine) = (release.ordered_version(), release.elf.machine.kernel);
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
        fs::create_dir_all(&value)?;
        pack.args(["--define", &format!("{name} {}", value.display())]);
    }
    // Without it rpm reads the settings of whoever builds.
    pack.env("HOME", folder.path()).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    bytes(pack.arg(&spec)).context("rpmbuild (package rpm)")?;
    let packed = tree::files(&made)?;
    ensure!(packed.len() == 1, "rpmbuild made {packed:?}");
    let path = release.out.join(format!("samehost-{version}-1.{machine}.rpm"));
    fs::copy(made.join(&packed[0]), &path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The list of files in the words of a spec, with the folders that only this package has: rpm leaves others behind.
fn files(root: &Path) -> anyhow::Result<String> {
    let files = tree::files(root)?;
    let mut folders = BTreeSet::new();
    for folder in files.iter().flat_map(|file| file.ancestors().skip(1)) {
        if folder.components().any(|part| part.as_os_str() == "samehost") {
            folders.insert(folder);
        }
    }
    let mut lines: Vec<String> = folders.iter().map(|folder| format!("%dir /{}", folder.display())).collect();
    for file in &files {
        let kind = if file.starts_with("usr/share/licenses") {
            "%license "
        } else if file.starts_with("usr/share/doc") {
            "%doc "
        } else {
            ""
        };
        lines.push(format!("{kind}/{}", file.display()));
    }
    Ok(lines.join("\n"))
}

const LICENCES: &str = "usr/share/licenses/samehost";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(super) fn build_image(release: &Release<'_>) -> anyhow::Result<PathBuf> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    tree::program(release, &root)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        tree::write(&root, &format!("{LICENCES}/{name}"), fs::read(crate::root().join(name))?)?;
    }
    tree::write(&root, &format!("{LICENCES}/{}", super::LICENCES), release.licences)?;
    tree::settle(&root, release.epoch)?;
    let layer = folder.path().join("layer.tar");
    archive(release, &root, &layer)?;
    let unpacked = sha256(&layer)?;
    tree::zip(std::slice::from_ref(&layer))?;
    let layout = folder.path().join("layout");
    let layer = blob(&layout, LAYER, &fs::read(folder.path().join("layer.tar.gz"))?)?;
    let config = blob(&layout, CONFIG, &serde_json::to_vec(&config(release, &unpacked)?)?)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = blob(&layout, MANIFEST, &serde_json::to_vec(&manifest)?)?;
    let name = json!({ "org.opencontainers.image.ref.name": format!("samehost:{}", release.version) });
    manifest["annotations"] = name;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    tree::write(&layout, "index.json", serde_json::to_vec(&index)?)?;
    tree::write(&layout, "oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    tree::settle(&layout, release.epoch)?;
    let machine = release.elf.machine.debian;
    let path = release.out.join(format!("samehost-{}-{machine}.oci.tar", release.version));
    archive(release, &layout, &path)?;
    Ok(path)
}

fn archive(release: &Release<'_>, folder: &Path, path: &Path) -> anyhow::Result<()> {
    succeed(tar(path, release.epoch).arg("--directory").arg(folder).args(names(folder)?))
}

fn config(release: &Release<'_>, unpacked: &str) -> anyhow::Result<Value> {
    let date = date(release.epoch, "+%FT%TZ")?;
    Ok(json!({
        "created": date,
        "architecture": release.elf.machine.debian,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/samehost"],
            "Env": ["PATH=/usr/bin", "HOME=/"],
            "Labels": {
                "org.opencontainers.image.title": "samehost",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "org.opencontainers.image.source": "https://github.com/samehost/samehost",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created": date, "created_by": "cargo xtask package" }],
    }))
}

/// Stores bytes under their sum, and describes them.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> anyhow::Result<Value> {
    let path = tree::write(layout, "blobs/sha256/new", bytes)?;
    let sum = sha256(&path)?;
    fs::rename(&path, path.with_file_name(&sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
}
