//! Programs that the tests need besides Rust. Each is a line of `packages.txt`. Nothing is skipped silently: missing programs are
//! installed as root, or listed.

use std::path::Path;
use std::process::Command;

use anyhow::bail;
use samehost_services::Kind;
use samehost_testing::mariadb::is_root;

use crate::process::show;

#[derive(Clone, Copy)]
struct Needed {
    program: &'static str,
    /// Of Debian and Ubuntu.
    package: &'static str,
    why: &'static str,
}

const PACKAGES: &str = include_str!("../packages.txt");

/// The packages that have no program, such as libraries.
fn without_program() -> impl Iterator<Item = &'static str> {
    PACKAGES.lines().filter_map(|line| line.strip_prefix("package "))
}

/// What a line of the list says of a program; `None` for other lines.
fn program(line: &'static str) -> Option<Needed> {
    let (kind, rest) = line.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    match kind {
        "service" => {
            let known = Kind::named(name)?.descriptor();
            Some(Needed { program: known.programs.first()?, package: known.package.as_deref()?, why: rest })
        }
        "program" => {
            let (package, why) = rest.split_once(' ')?;
            Some(Needed { program: name, package, why })
        }
        _ => None,
    }
}

/// Whether dpkg reports a package as installed. Without dpkg it returns true, and a test will fail if it is missing.
fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]).output();
    status.map_or(true, |output| output.stdout.trim_ascii() == b"installed")
}

/// Whether a program is on the path, or where administrators' programs are.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    // Debian has a directory for the programs of each PostgreSQL version.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    path.split(':').any(|directory| Path::new(directory).join(program).is_file())
        || versions.into_iter().any(|version| version.path().join("bin").join(program).is_file())
}

fn needed() -> impl Iterator<Item = Needed> {
    PACKAGES.lines().filter_map(program)
}

struct Missing {
    programs: Vec<Needed>,
    /// Packages without a program.
    libraries: Vec<&'static str>,
}

impl Missing {
    fn look() -> Self {
        Missing {
            programs: needed().filter(|needed| !is_there(needed.program)).collect(),
            libraries: without_program().filter(|package| !is_installed(package)).collect(),
        }
    }

    fn packages(&self) -> Vec<&'static str> {
        self.programs.iter().map(|needed| needed.package).chain(self.libraries.iter().copied()).collect()
    }
}

/// Says how much is about to be installed; apt knows its size where its lists are there.
pub(crate) fn announce() {
    let packages = Missing::look().packages();
    println!(
        "{} packages are needed, {} are to be installed.",
        needed().count() + without_program().count(),
        packages.len()
    );
    if packages.is_empty() {
        return;
    }
    let words = ["install", "--assume-no", "--no-install-recommends"];
    let output = Command::new("apt-get").args(words).args(&packages).env("LC_ALL", "C").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    for line in text.lines().filter(|line| line.contains("Need to get") || line.contains("disk space")) {
        println!("{line}");
    }
}

/// Installs what is missing as root; as another user it fails, and says what root has to run.
pub(crate) fn install() -> anyhow::Result<()> {
    let missing = Missing::look();
    let packages = missing.packages().join(" ");
    if packages.is_empty() {
        return Ok(());
    }
    for needed in &missing.programs {
        println!("{} is missing ({}): package {}", needed.program, needed.why, needed.package);
    }
    if !missing.libraries.is_empty() {
        println!("libraries and servers are missing: {}", missing.libraries.join(" "));
    }
    let command = format!("apt-get update && apt-get install -y --no-install-recommends {packages}");
    if !is_root() || !is_there("apt-get") {
        bail!("the tests need these packages; as root: {command}");
    }
    println!("$ {command}");
    show(
        Command::new("sh").args(["-c", &command]).env("DEBIAN_FRONTEND", "noninteractive"),
        "the installation",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of programs that the source of a test starts.
    fn started(text: &str) -> impl Iterator<Item = &str> {
        let starts = ["Command::new(\"", "Held::start(\""];
        let words = starts.into_iter().flat_map(|start| text.split(start).skip(1));
        let paths = words.filter_map(|rest| rest.split('"').next());
        paths.filter_map(|path| Path::new(path).file_name()?.to_str())
    }

    /// A test that starts what nothing installs passes where somebody installed it by hand, and fails everywhere else.
    #[test]
    fn what_a_test_starts_is_on_the_list() {
        let others = PACKAGES.lines().filter_map(|line| line.strip_prefix("others "));
        let others: Vec<&str> = others.flat_map(|names| names.split(' ')).collect();
        let listed: Vec<&str> = needed().map(|needed| needed.program).chain(others).collect();
        let mut unlisted = Vec::new();
        for folder in ["crates", "xtask"] {
            crate::walk(&crate::root().join(folder), "rs", &mut |path| {
                if !crate::tidy::is_test(path) {
                    return Ok(());
                }
                let text = std::fs::read_to_string(path)?;
                let missing = started(&text).filter(|program| !listed.contains(program));
                unlisted.extend(missing.map(|program| format!("{}: {program}", path.display())));
                Ok(())
            })
            .unwrap();
        }
        assert!(unlisted.is_empty(), "add these to xtask/packages.txt: {unlisted:#?}");
    }

    #[test]
    fn each_line_is_understood() {
        for line in PACKAGES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with("others ") {
                continue;
            }
            let is_package = line.strip_prefix("package ").is_some_and(|name| !name.contains(' '));
            assert!(is_package || program(line).is_some(), "{line}");
        }
    }
}
