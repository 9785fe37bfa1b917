//! The files that every package has, in a folder: the program, its manual pages and completions, the units, what Prometheus and
//! Grafana read.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};

use super::{Release, template};
use crate::process::{bytes, text};

/// Files of `packaging/`, and the folders that they are installed in.
const AS_THEY_ARE: [(&str, &str); 5] = [
    ("systemd/samehost-scan.service", "usr/lib/systemd/system"),
    ("systemd/samehost-scan.timer", "usr/lib/systemd/system"),
    ("prometheus/samehost.rules.yml", "usr/share/samehost/prometheus"),
    ("prometheus/samehost.dashboard.json", "usr/share/samehost/prometheus"),
    ("kubernetes/samehost.yaml", "usr/share/samehost/kubernetes"),
];

pub(super) fn write(root: &Path, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
    let path = root.join(name);
    crate::write(&path, content)?;
    Ok(path)
}

/// Copies the program into `usr/bin` below `root`, without its symbols.
pub(super) fn program(release: &Release<'_>, root: &Path) -> anyhow::Result<()> {
    let program = fs::read(release.binary).with_context(|| release.binary.display().to_string())?;
    let path = write(root, "usr/bin/samehost", program)?;
    if release.elf.has_symbols {
        let mut strip = Command::new("strip");
        bytes(strip.args(["--remove-section=.comment", "--remove-section=.note"]).arg(&path))?;
    }
    Ok(())
}

/// Everything but the documents, whose places differ. `zsh` is the folder of zsh's completions.
pub(super) fn common(release: &Release<'_>, root: &Path, zsh: &str) -> anyhow::Result<()> {
    program(release, root)?;
    let pages = root.join("usr/share/man/man1");
    let completions = [
        ("bash", root.join("usr/share/bash-completion/completions/samehost")),
        ("zsh", root.join(zsh).join("_samehost")),
        ("fish", root.join("usr/share/fish/vendor_completions.d/samehost.fish")),
    ];
    manual(release.binary, &pages, &completions)?;
    zip(&files(&pages)?.into_iter().map(|page| pages.join(page)).collect::<Vec<_>>())?;
    for (file, folder) in AS_THEY_ARE {
        let (_, name) = file.split_once('/').context("a file of packaging/ in a folder")?;
        write(root, &format!("{folder}/{name}"), template(file, &[])?)?;
    }
    Ok(())
}

pub(super) fn manual(program: &Path, pages: &Path, completions: &[(&str, PathBuf)]) -> anyhow::Result<()> {
    fs::create_dir_all(pages)?;
    bytes(Command::new(program).arg("man").arg(pages))?;
    for (shell, path) in completions {
        crate::write(path, bytes(Command::new(program).args(["completions", *shell]))?)?;
    }
    Ok(())
}

/// Compresses files in place; without name and time, which differ from build to build.
pub(super) fn zip(paths: &[PathBuf]) -> anyhow::Result<()> {
    bytes(Command::new("gzip").arg("-9n").args(paths)).map(drop)
}

/// The files below a folder, as paths in it, by name.
pub(super) fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in crate::files(root, &[])? {
        all.push(path.strip_prefix(root)?.to_owned());
    }
    all.sort();
    Ok(all)
}

/// Gives every file and folder the permissions and the time that a package has, whoever builds it and when.
pub(super) fn settle(root: &Path, epoch: u64) -> anyhow::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
    for name in files(root)? {
        let path = root.join(&name);
        let is_program = name.starts_with("usr/bin");
        let is_script = name.parent() == Some(Path::new("DEBIAN"))
            && ["postinst", "prerm", "postrm"].iter().any(|script| name.ends_with(script));
        let mode = if is_program || is_script { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        File::options().write(true).open(&path)?.set_modified(time)?;
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
            File::open(folder)?.set_modified(time)?;
        }
    }
    Ok(())
}

// What a package must know of a program: its processor, whether it needs libraries, whether it still has symbols.

/// A processor, by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// In Debian, and in Go and OCI.
    pub(super) debian: &'static str,
    /// In Rust, uname and rpm.
    pub(super) kernel: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// No program interpreter: it needs no library.
    pub(super) is_static: bool,
    pub(super) has_symbols: bool,
}

pub(super) fn read_elf(path: &Path) -> anyhow::Result<Elf> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--file-header", "--program-headers", "--sections"]).env("LC_ALL", "C");
    let headers =
        text(readelf.arg(path)).with_context(|| format!("{} is not a program for Linux", path.display()))?;
    let machine = headers.lines().find_map(|line| line.trim().strip_prefix("Machine:"));
    let machine = match machine.unwrap_or_default().trim() {
        "Advanced Micro Devices X86-64" => Machine { debian: "amd64", kernel: "x86_64" },
        "AArch64" => Machine { debian: "arm64", kernel: "aarch64" },
        other => bail!("no package is made for ELF machine {other}"),
    };
    Ok(Elf { machine, is_static: !headers.contains(" INTERP "), has_symbols: headers.contains(" .symtab ") })
}
