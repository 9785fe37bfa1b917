//! The crates as crates.io would have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{must, text};

fn cargo(words: &[&str], target: &Path) -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(words).args(["--offline", "--locked"]).env("CARGO_TARGET_DIR", target);
    cargo
}

/// Makes the archives of all crates but `xtask` and `samehost-testing` below a folder.
fn packaged(folder: &Path) -> Vec<PathBuf> {
    let words = ["package", "--workspace", "--exclude", "xtask", "--exclude", "samehost-testing"];
    let mut package = cargo(&words, folder);
    package.args(["--no-verify", "--allow-dirty"]);
    must(package.current_dir(crate::root()));
    let entries = fs::read_dir(folder.join("package")).unwrap().map(|entry| entry.unwrap().path());
    let made: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "crate")).collect();
    let crates = fs::read_dir(crate::root().join("crates")).unwrap().count();
    assert_eq!(made.len(), crates - 1, "{made:?}");
    made
}

/// Each with its licences, without its tests.
#[test]
fn every_crate_of_the_program_can_be_packaged() {
    let folder = tempfile::tempdir().unwrap();
    for path in packaged(folder.path()) {
        let listing = must(Command::new("tar").arg("-tzf").arg(&path));
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "src/"] {
            assert!(listing.lines().any(|line| line.contains(&format!("/{name}"))), "{name}: {listing}");
        }
        let is_test =
            |line: &&str| line.contains("/tests/") && !line.contains("/src/") && !line.contains("/recorded/");
        assert_eq!(listing.lines().find(is_test), None, "{}", path.display());
    }
}

/// `cargo install samehost`, with the archives in place of crates.io for our own crates.
#[test]
#[ignore = "compiles everything: cargo xtask evidence packages"]
fn the_packaged_crates_install_a_program_that_scans() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, out) = (folder.path().join("sources"), folder.path().join("out"));
    fs::create_dir(&sources).unwrap();
    let archives = packaged(folder.path());
    for archive in &archives {
        must(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&sources));
    }
    let version = env!("CARGO_PKG_VERSION");
    let own = sources.join(format!("samehost-{version}"));
    let target = folder.path().join("target");
    let mut install = cargo(&["install", "--debug"], &target);
    install.arg("--path").arg(&own).arg("--root").arg(&out).current_dir(folder.path());
    for archive in &archives {
        let folder = archive.file_stem().unwrap().to_str().unwrap();
        let name = folder.strip_suffix(&format!("-{version}")).unwrap();
        if name != "samehost" {
            let path = sources.join(folder);
            install
                .args(["--config", &format!("patch.crates-io.{name}.path = {:?}", path.to_str().unwrap())]);
        }
    }
    fs::write(own.join("Cargo.lock"), without_sources(&text(&own.join("Cargo.lock")))).unwrap();
    must(&mut install);
    let program = out.join("bin/samehost");
    let said = must(Command::new(&program).arg("--version"));
    let scan = must(Command::new(&program).args(["scan", "--json", "--quiet"]));
    assert!(scan.starts_with("{\"schema\":"), "{scan}");
    println!(
        "held: crates | cargo install --debug --locked --offline, from {} .crate files: {}; it scans",
        archives.len(),
        said.trim()
    );
}

/// A lock file whose own crates may come from a folder.
fn without_sources(lock: &str) -> String {
    let packages = lock.split("[[package]]").map(|package| {
        let is_own = package.lines().any(|line| line.starts_with("name = \"samehost"));
        let keep =
            |line: &&str| !is_own || !(line.starts_with("source = ") || line.starts_with("checksum = "));
        package.split_inclusive('\n').filter(keep).collect::<String>()
    });
    packages.collect::<Vec<_>>().join("[[package]]")
}
