//! The files that every package has, in a folder: the program, its manual pages and completions, the units, what Prometheus and
//! Grafana read.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};

use super::{Release, template};
use crate::process::bytes;

/// Files of `packaging/`, and the folders that they are installed in.
const AS_THEY_ARE: [(&str, &str); 7] = [
    ("systemd/samehost-scan.service", "usr/lib/systemd/system"),
    ("systemd/samehost-scan.timer", "usr/lib/systemd/system"),
    ("prometheus/samehost.rules.yml", "usr/share/samehost/prometheus"),
    ("prometheus/samehost.dashboard.json", "usr/share/samehost/prometheus"),
    ("kubernetes/samehost.yaml", "usr/share/samehost/kubernetes"),
    ("kubernetes/shared-socket.yaml", "usr/share/samehost/kubernetes"),
    ("kubernetes/kubectl-samehost", "usr/share/samehost/kubernetes"),
];

/// Writes a file below `root`, with the folders above it.
pub(super) fn write(root: &Path, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
    let path = root.join(name);
    let above = path.parent().unwrap_or(root);
    fs::create_dir_all(above).with_context(|| above.display().to_string())?;
    fs::write(&path, content).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Copies the program into `usr/bin` below `root`, without its symbols.
pub(super) fn program(release: &Release<'_>, root: &Path) -> anyhow::Result<()> {
    let program = fs::read(release.binary).with_context(|| release.binary.display().to_string())?;
    let path = write(root, "usr/bin/samehost", program)?;
    if release.elf.has_symbols && release.elf.is_native() {
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
    manual(&release.speaker, &pages, &completions)?;
    zip(&files(&pages)?.into_iter().map(|page| pages.join(page)).collect::<Vec<_>>())?;
    for (file, folder) in AS_THEY_ARE {
        let (_, name) = file.split_once('/').context("a file of packaging/ in a folder")?;
        write(root, &format!("{folder}/{name}"), template(file, &[])?)?;
    }
    Ok(())
}

/// Manual pages, and completions for shells, as the program writes them.
pub(super) fn manual(speaker: &Path, pages: &Path, completions: &[(&str, PathBuf)]) -> anyhow::Result<()> {
    fs::create_dir_all(pages)?;
    bytes(Command::new(speaker).arg("man").arg(pages))?;
    for (shell, path) in completions {
        let above = path.parent().unwrap_or(path);
        fs::create_dir_all(above).with_context(|| above.display().to_string())?;
        fs::write(path, bytes(Command::new(speaker).args(["completions", *shell]))?)?;
    }
    Ok(())
}

/// Compresses files in place; without name and time, which differ from build to build.
pub(super) fn zip(paths: &[PathBuf]) -> anyhow::Result<()> {
    bytes(Command::new("gzip").arg("-9n").args(paths)).map(drop)
}

/// The files below a folder, by name.
pub(super) fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                all.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Gives every file and folder the permissions and the time that a package has, whoever builds it and when.
pub(super) fn settle(root: &Path, epoch: u64) -> anyhow::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
    for name in files(root)? {
        let path = root.join(&name);
        let is_program = name.starts_with("usr/bin") || name.ends_with("kubectl-samehost");
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
// Reads the header of ELF (System V ABI, chapter 4); 64 bits, little-endian.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// Name in Debian, and in Go and OCI.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Machine::X86_64 => "amd64",
            Machine::Aarch64 => "arm64",
        }
    }

    /// Name in Rust, uname and rpm.
    pub(super) fn kernel(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// No program interpreter: it needs no library.
    pub(super) is_static: bool,
    pub(super) has_symbols: bool,
}

impl Elf {
    pub(super) fn is_native(self) -> bool {
        self.machine.kernel() == std::env::consts::ARCH
    }
}

/// Type of the program header that names the interpreter (`PT_INTERP`).
const INTERPRETER: u32 = 3;
/// Type of the section with symbols (`SHT_SYMTAB`).
const SYMBOLS: u32 = 2;

pub(super) fn read_elf(path: &Path) -> anyhow::Result<Elf> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    parse(&bytes).with_context(|| format!("{} is not a program for Linux", path.display()))
}

fn parse(bytes: &[u8]) -> anyhow::Result<Elf> {
    // Class 2: 64 bits; data 1: little-endian.
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let machine = match number(bytes, 18, 2)? {
        62 => Machine::X86_64,
        183 => Machine::Aarch64,
        other => bail!("no package is made for ELF machine {other}"),
    };
    Ok(Elf {
        machine,
        is_static: !has_entry(bytes, [32, 54, 56], 0, INTERPRETER)?,
        has_symbols: has_entry(bytes, [40, 58, 60], 4, SYMBOLS)?,
    })
}

/// Whether an entry of a table has this type, which stands `at` bytes into it. `table` is where the header has the table's
/// offset, the size of an entry, and the number of entries.
fn has_entry(bytes: &[u8], table: [u64; 3], at: u64, wanted: u32) -> anyhow::Result<bool> {
    let (start, size) = (number(bytes, table[0], 8)?, number(bytes, table[1], 2)?);
    for entry in 0..number(bytes, table[2], 2)? {
        if number(bytes, start + entry * size + at, 4)? == u64::from(wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn number(bytes: &[u8], at: u64, length: usize) -> anyhow::Result<u64> {
    let at = usize::try_from(at)?;
    let part = bytes.get(at..at + length).context("it is cut off")?;
    let mut number = [0; 8];
    number[..length].copy_from_slice(part);
    Ok(u64::from_le_bytes(number))
}
