//! Programs that the tests need besides Rust. Each is a line of `packages.txt`. Nothing is skipped silently: missing programs are
//! installed as root, or listed.

use std::process::Command;

use anyhow::bail;
use samehost_services::Kind;
use samehost_testing::mariadb::is_root;

use crate::process::{find_program, show};

/// What is needed, and its package of Debian and Ubuntu.
struct Needed {
    /// `None` for a package that has none, such as a library.
    program: Option<&'static str>,
    package: &'static str,
    why: &'static str,
}

const PACKAGES: &str = include_str!("../packages.txt");

/// What a line of the list says; `None` for comments, and for what is there in any case.
fn needed_by(line: &'static str) -> Option<Needed> {
    let (kind, rest) = line.split_once(' ')?;
    let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
    match kind {
        "service" => {
            let known = Kind::named(name)?.descriptor();
            let (program, package) = (known.programs.first()?, known.package.as_deref()?);
            Some(Needed { program: Some(program), package, why: more })
        }
        "program" => {
            let (package, why) = more.split_once(' ')?;
            Some(Needed { program: Some(name), package, why })
        }
        "package" if more.is_empty() => Some(Needed { program: None, package: name, why: "" }),
        _ => None,
    }
}

impl Needed {
    fn is_missing(&self) -> bool {
        match self.program {
            Some(program) => find_program(program).is_none(),
            None => !is_installed(self.package),
        }
    }
}

/// Whether dpkg reports a package as installed. Without dpkg it returns true, and a test will fail if it is missing.
fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]).output();
    status.map_or(true, |output| output.stdout.trim_ascii() == b"installed")
}

fn needed() -> impl Iterator<Item = Needed> {
    PACKAGES.lines().filter_map(needed_by)
}

/// Says how much is about to be installed; apt knows its size where its lists are there.
pub(crate) fn announce() {
    let packages: Vec<&str> = needed().filter(Needed::is_missing).map(|needed| needed.package).collect();
    println!("{} packages are needed, {} are to be installed.", needed().count(), packages.len());
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
    let missing: Vec<Needed> = needed().filter(Needed::is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for Needed { program, package, why } in &missing {
        match program {
            Some(program) => println!("{program} is missing ({why}): package {package}"),
            None => println!("package {package} is missing"),
        }
    }
    let packages = missing.iter().map(|needed| needed.package).collect::<Vec<_>>().join(" ");
    let command = format!("apt-get update && apt-get install -y --no-install-recommends {packages}");
    if !is_root() || find_program("apt-get").is_none() {
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
    use std::path::Path;

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
        let listed: Vec<&str> = needed().filter_map(|needed| needed.program).chain(others).collect();
        let mut unlisted = Vec::new();
        for folder in ["crates", "xtask"] {
            let mut files = crate::files(&crate::root().join(folder), &["rs"]).unwrap();
            files.retain(|path| crate::tidy::is_test(path));
            for path in files {
                let text = std::fs::read_to_string(&path).unwrap();
                let missing = started(&text).filter(|program| !listed.contains(program));
                unlisted.extend(missing.map(|program| format!("{}: {program}", path.display())));
            }
        }
        assert!(unlisted.is_empty(), "add these to xtask/packages.txt: {unlisted:#?}");
    }

    #[test]
    fn each_line_is_understood() {
        for line in PACKAGES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with("others ") {
                continue;
            }
            assert!(needed_by(line).is_some(), "{line}");
        }
    }
}
