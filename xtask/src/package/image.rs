//! An image for containers with the program, its licences and nothing else: the layout of the OCI image specification 1.1 in a tar
//! file, as `podman load`, `docker load` (25 and later) and `skopeo` read it. No daemon and no registry takes part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Release, tree};
use crate::files::names;
use crate::{date, succeed, tar, text};

/// Folder of the licences.
const LICENCES: &str = "usr/share/licenses/samehost";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(super) fn build(release: &Release<'_>) -> anyhow::Result<PathBuf> {
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
    let unpacked = sum(&layer)?;
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
    let machine = release.elf.machine.debian();
    let path = release.out.join(format!("samehost-{}-{machine}.oci.tar", release.version));
    archive(release, &layout, &path)?;
    Ok(path)
}

/// Everything in a folder, by name, of root.
fn archive(release: &Release<'_>, folder: &Path, path: &Path) -> anyhow::Result<()> {
    succeed(tar(path, release.epoch).arg("--directory").arg(folder).args(names(folder)?))
}

fn config(release: &Release<'_>, unpacked: &str) -> anyhow::Result<Value> {
    let date = date(release.epoch, "+%FT%TZ")?;
    Ok(json!({
        "created": date,
        "architecture": release.elf.machine.debian(),
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
    let sum = sum(&path)?;
    fs::rename(&path, path.with_file_name(&sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
}

/// SHA-256 of a file, in hexadecimal.
fn sum(path: &Path) -> anyhow::Result<String> {
    let line = text(Command::new("sha256sum").arg("--binary").arg(path))?;
    line.split(' ').next().map(str::to_owned).context("sha256sum printed nothing")
}
