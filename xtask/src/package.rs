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

/// Makes every package of a program in a folder, and returns their paths. The image is left out where the program
/// needs libraries.
pub(crate) fn all(binary: &Path, epoch: u64, licences: &str, out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let elf = tree::read_elf(binary)?;
    let release = Release { binary, elf, version: VERSION, epoch, level: LEVEL, licences, out };
    let mut made = vec![formats::build_deb(&release)?, formats::build_rpm(&release)?];
    if release.elf.is_static {
        made.push(formats::build_image(&release)?);
    } else {
        println!("no image for containers: {} needs the libraries of this machine", binary.display());
    }
    Ok(made)
}

/// Writes what a program says about itself into folders of an archive: `man` and `completions`.
pub(crate) fn manual(binary: &Path, archive: &Path) -> anyhow::Result<()> {
    let completions = [("bash", "samehost.bash"), ("zsh", "_samehost"), ("fish", "samehost.fish")];
    tree::manual(
        binary,
        &archive.join("man"),
        &completions.map(|(shell, name)| (shell, archive.join("completions").join(name))),
    )
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
