//! Packages of one program: `.deb`, `.rpm` and an image for containers. What is put in is the program, what it writes
//! about itself (manual pages, completions), and the files in `packaging/`. Same input, same bytes.

mod formats;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::VERSION;
use tree::Elf;

/// Level of xz for what people download.
const LEVEL: u8 = 6;

struct Release<'a> {
    binary: &'a Path,
    elf: Elf,
    /// One that runs here and says the same about itself: the manual pages of an aarch64 program are made on x86_64 too.
    speaker: PathBuf,
    /// `0.1.0`
    version: &'a str,
    /// Seconds since 1970 that every file carries.
    epoch: u64,
    /// Of xz, 0 to 9.
    level: u8,
    licences: &'a str,
    out: &'a Path,
}

pub(crate) const LICENCES: &str = "LICENSES-OF-OTHERS.txt";

impl Release<'_> {
    /// The version as dpkg and rpm order it: a pre-release comes before its release.
    fn ordered_version(&self) -> String {
        self.version.replacen('-', "~", 1)
    }
}

pub(crate) fn run(binary: Option<PathBuf>, out: Option<PathBuf>) -> anyhow::Result<()> {
    let binary = binary.map_or_else(crate::dist::dynamic_program, Ok)?;
    let out = out.unwrap_or_else(|| crate::target().join("packages"));
    let licences = crate::dist::licences_of_others()?;
    for file in all(&binary, crate::dist::epoch()?, &licences, &out)? {
        let length = std::fs::metadata(&file)?.len();
        println!("{:>6.1} MB  {}", length as f64 / 1e6, file.display());
    }
    Ok(())
}

/// Makes every package of a program in a folder, and returns their paths. The image is left out where the program
/// needs libraries.
pub(crate) fn all(binary: &Path, epoch: u64, licences: &str, out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let elf = tree::read_elf(binary)?;
    let speaker = speaker(binary, elf)?;
    let release = Release { binary, elf, speaker, version: VERSION, epoch, level: LEVEL, licences, out };
    let mut made = vec![formats::build_deb(&release)?, formats::build_rpm(&release)?];
    if release.elf.is_static {
        made.push(formats::build_image(&release)?);
    } else {
        println!("no image for containers: {} needs the libraries of this machine", binary.display());
    }
    Ok(made)
}

/// Makes a package for Debian with as little work as possible; it is larger than a release's.
pub(crate) fn quick_deb(binary: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let (elf, version, epoch) = (tree::read_elf(binary)?, VERSION, crate::dist::epoch()?);
    let licences = &crate::dist::licences_of_others()?;
    let speaker = binary.to_owned();
    formats::build_deb(&Release { binary, elf, speaker, version, epoch, level: 0, licences, out })
}

/// Writes what a program says about itself into folders of an archive: `man` and `completions`.
pub(crate) fn manual(binary: &Path, archive: &Path) -> anyhow::Result<()> {
    let speaker = speaker(binary, tree::read_elf(binary)?)?;
    let completions = [("bash", "samehost.bash"), ("zsh", "_samehost"), ("fish", "samehost.fish")];
    tree::manual(
        &speaker,
        &archive.join("man"),
        &completions.map(|(shell, name)| (shell, archive.join("completions").join(name))),
    )
}

/// A program that runs here and says the same about itself as this one.
fn speaker(binary: &Path, elf: Elf) -> anyhow::Result<PathBuf> {
    if elf.is_native() { Ok(binary.to_owned()) } else { crate::release_program() }
}

/// A file of `packaging/`, with the words between @ filled in.
fn template(name: &str, words: &[(&str, &str)]) -> anyhow::Result<String> {
    let path = crate::root().join("packaging").join(name);
    let mut text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for (word, value) in words {
        text = text.replace(&format!("@{word}@"), value);
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
