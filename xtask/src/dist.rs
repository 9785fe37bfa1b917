//! `cargo xtask dist`: what a release consists of, made twice in two folders and compared. Every file is made from the last
//! commit and from nothing else of this machine: no path, no name, no time of the build.

mod binary;
mod licences;
mod versions;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::process::{succeed, tar, text};
use crate::{names, package, target};
pub(crate) use binary::Target;

/// Size of the static program, in bytes, that is not exceeded.
/// It was 17.5 MB before unwinding, charts in JavaScript and unpacked relocations went, and 14.2 then. Folding identical functions (`--icf` of lld) was
/// rejected: 0.1 MB, for another linker (docs/decisions/0095).
const LARGEST: u64 = 15_000_000;

/// Name of the file beside the program with the commit that it was made of.
const COMMIT: &str = "commit";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Make it once and compare nothing; what was compiled before is used
    #[arg(long)]
    once: bool,
    /// Demand what a release has: no uncommitted change, the tag, the version on top of CHANGELOG.md
    #[arg(long)]
    release: bool,
}

pub(crate) struct Release {
    target: Target,
    /// Seconds since 1970 that every file carries.
    epoch: u64,
}

/// Makes the files of a release, twice unless asked to do it once, and prints where they are. Fails if the two differ, or if the
/// program is larger than [`LARGEST`].
pub(crate) fn make(options: &Options) -> anyhow::Result<()> {
    versions::check(&crate::root(), options.release)?;
    let target = Target::here()?;
    target.check()?;
    let release = Release { target, epoch: epoch()? };
    let work = release.target.folder();
    let (first, second) = (work.join("first"), work.join("second/in-a-folder-of-another-length"));
    if !options.once {
        // What was compiled before would be the same in both.
        for place in [&first, &work.join("second")] {
            remove(place)?;
        }
    }
    let made = release.make(&first)?;
    if !options.once {
        same(&made, &release.make(&second)?)?;
        remove(&work.join("second"))?;
    }
    let out = folder().join(release.target.release_name());
    remove(&out)?;
    fs::rename(&made, &out)?;
    show(&out, options.once)?;
    let length = fs::metadata(first.join(binary::PROGRAM))?.len();
    ensure!(length <= LARGEST, "the program has {length} bytes, more than {LARGEST}");
    Ok(())
}

fn folder() -> PathBuf {
    // Cargo has a folder `dist` for the profile of that name.
    target().join("distribution")
}

/// The last commit, which releases are made of, in one of git's formats.
fn last_commit(format: &str) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", &format!("--format={format}")]).current_dir(crate::root());
    Ok(text(&mut git)?.trim().to_owned())
}

fn commit() -> anyhow::Result<String> {
    last_commit("%h")
}

/// Time of the last commit, which every file gets; SOURCE_DATE_EPOCH overrides it.
pub(crate) fn epoch() -> anyhow::Result<u64> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => last_commit("%ct")?,
    };
    time.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH is not a number of seconds: {time}"))
}

impl Release {
    /// Makes all files in `folder`, and returns the folder with those to publish.
    fn make(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let begun = Instant::now();
        let (source, out) = (folder.join("source"), folder.join("out"));
        copy_source("HEAD", &source)?;
        remove(&out)?;
        fs::create_dir_all(&out)?;
        let built = binary::build(self, &source, &folder.join("target"))?;
        let program = binary::split(&self.target, &built, folder, &out)?;
        fs::write(folder.join(COMMIT), commit()?)?;
        binary::check(&program, &[&source, &folder.join("target")])?;
        self.documents(&source, &program, &out)?;
        sums(&out)?;
        println!("{}: made in {} s", folder.display(), begun.elapsed().as_secs());
        Ok(out)
    }

    /// Makes everything but the program: the archive, the packages.
    fn documents(&self, source: &Path, program: &Path, out: &Path) -> anyhow::Result<()> {
        let licences = licences::collect(source, &self.target)?;
        self.archive(source, program, &licences, out)?;
        package::all(program, self.epoch, &licences, out).map(drop)
    }

    fn archive(&self, source: &Path, program: &Path, licences: &str, out: &Path) -> anyhow::Result<()> {
        let name = self.target.release_name();
        let unpacked = out.join(&name);
        fs::create_dir(&unpacked)?;
        fs::copy(program, unpacked.join(binary::PROGRAM))?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(source.join(name), unpacked.join(name)).with_context(|| name.to_owned())?;
        }
        fs::write(unpacked.join(package::LICENCES), licences)?;
        package::manual(program, &unpacked)?;
        let mut tar = tar(&out.join(self.target.archive_name()), self.epoch);
        tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9n", "-C"]).arg(out).arg(name);
        succeed(&mut tar)?;
        remove(&unpacked)
    }
}

/// The licences of what is linked into a program of the working tree.
pub(crate) fn licences_of_others() -> anyhow::Result<String> {
    licences::collect(&crate::root(), &Target::here()?)
}

/// Copies a commit. All files are new to cargo, so that nothing is taken for already compiled.
pub(crate) fn copy_source(commit: &str, folder: &Path) -> anyhow::Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder)?;
    let archive = folder.with_extension("tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", commit, "-o"]).arg(&archive);
    succeed(git.current_dir(crate::root()))?;
    succeed(
        Command::new("tar").args(["--extract", "--touch", "--file"]).arg(&archive).arg("-C").arg(folder),
    )?;
    Ok(fs::remove_file(archive)?)
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

fn sums(folder: &Path) -> anyhow::Result<()> {
    let sums = text(Command::new("sha256sum").arg("--").args(names(folder)?).current_dir(folder))?;
    Ok(fs::write(folder.join("SHA256SUMS"), sums)?)
}

/// Fails when two builds differ, and names the files.
/// A program that people run as root should be one that they can make themselves, byte for byte. So a
/// release is built twice, in two folders of different length, with paths replaced and the commit's time.
/// `-Ztrim-paths` was rejected because it is not stable, and a container for the build because it would
/// hide what the result depends on (docs/decisions/0096).
fn same(first: &Path, second: &Path) -> anyhow::Result<()> {
    let (one, other) = (read(first)?, read(second)?);
    let differing: Vec<&str> = differing(&one, &other);
    if differing.is_empty() {
        println!("two builds in two folders: {} files, all the same", one.lines().count());
        return Ok(());
    }
    let folders = format!("{}\n  {}", first.display(), second.display());
    bail!(
        "two builds differ in {}.\nBoth are kept:\n  {folders}\n`diffoscope` shows where they differ",
        differing.join(", ")
    )
}

fn read(folder: &Path) -> std::io::Result<String> {
    fs::read_to_string(folder.join("SHA256SUMS"))
}

/// Names of the files whose sums differ, or that only one of the lists has.
fn differing<'a>(one: &'a str, other: &'a str) -> Vec<&'a str> {
    let lines = |text: &'a str| text.lines().collect::<BTreeSet<_>>();
    let mut names = BTreeSet::new();
    for line in lines(one).symmetric_difference(&lines(other)) {
        names.insert(line.split_once("  ").map_or(*line, |(_, name)| name));
    }
    names.into_iter().collect()
}

fn show(out: &Path, once: bool) -> anyhow::Result<()> {
    println!("\n{}", out.display());
    for name in names(out)? {
        println!("{:>12}  {name}", fs::metadata(out.join(&name))?.len());
    }
    println!("\n{}", fs::read_to_string(out.join("SHA256SUMS"))?.trim_end());
    if once {
        println!("made once: whether another build is the same was not tried");
    }
    Ok(())
}

/// The static program: the last that was made, or a new one. Says which commit it is of.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let folder = Target::here()?.folder().join("first");
    let program = folder.join(binary::PROGRAM);
    if !program.is_file() {
        make(&Options { once: true, release: false })?;
    }
    ensure!(program.is_file(), "{} is missing, although it was just made", program.display());
    let made =
        fs::read_to_string(folder.join(COMMIT)).unwrap_or_else(|_| "a commit that was not noted".into());
    println!("{}: made of {made}; the last commit is {}", program.display(), commit()?);
    Ok(program)
}

/// The program with this machine's C library and otherwise as releases have it.
pub(crate) fn dynamic_program() -> anyhow::Result<PathBuf> {
    let folder = folder().join("dynamic");
    let words = ["build", "--profile", "dist", "--locked", "-p", "samehost", "--target-dir"];
    crate::cargo(&[&words[..], &[&folder.display().to_string()]].concat())?;
    Ok(folder.join("dist/samehost"))
}

/// Makes the packages alone, of a program that is given or made here.
pub(crate) fn package(binary: Option<PathBuf>, out: Option<PathBuf>) -> anyhow::Result<()> {
    let binary = binary.map_or_else(dynamic_program, Ok)?;
    let out = out.unwrap_or_else(|| target().join("packages"));
    let licences = licences_of_others()?;
    for file in package::all(&binary, epoch()?, &licences, &out)? {
        let length = fs::metadata(&file)?.len();
        println!("{:>6.1} MB  {}", length as f64 / 1e6, file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Target, differing};
    use crate::VERSION;

    /// cargo-binstall looks for the archive, and for the program in it, by the words of the manifest.
    #[test]
    fn binstall_looks_for_the_archive_and_the_folder_that_are_made() {
        let manifest = std::fs::read_to_string(crate::root().join("crates/samehost/Cargo.toml")).unwrap();
        let target = Target::here().unwrap();
        let filled = |key: &str| {
            let value = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
            let value = value.trim_matches('"').replace("{ version }", VERSION);
            value.replace("{ target }", &target.triple).replace("{ bin }", super::binary::PROGRAM)
        };
        assert_eq!(filled("pkg-url").rsplit_once('/').unwrap().1, target.archive_name());
        assert!(
            filled("pkg-url").starts_with(&format!("{{ repo }}/releases/download/v{VERSION}/")),
            "{}",
            filled("pkg-url")
        );
        assert_eq!(filled("bin-dir"), format!("{}/{}", target.release_name(), super::binary::PROGRAM));
        assert_eq!(filled("pkg-fmt"), "tgz");
    }

    #[test]
    fn builds_that_differ_are_named() {
        let one = "aa  a.deb\nbb  b.deb\ncc  c.deb\n";
        assert!(differing(one, one).is_empty());
        assert_eq!(differing(one, "aa  a.deb\nb0  b.deb\ndd  d.deb\n"), ["b.deb", "c.deb", "d.deb"]);
    }
}
