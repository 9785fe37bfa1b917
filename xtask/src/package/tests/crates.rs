//! The crates as crates.io would have them. Nothing is compiled here.

use std::path::PathBuf;
use std::process::Command;

use super::must;

/// All but `xtask` and `samehost-testing`, each with its licences, without its tests.
#[test]
fn every_crate_of_the_program_can_be_packaged() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut package = Command::new(cargo);
    package.args(["package", "--workspace", "--exclude", "xtask", "--exclude", "samehost-testing"]);
    package.args(["--no-verify", "--allow-dirty", "--offline", "--locked"]);
    must(package.env("CARGO_TARGET_DIR", folder.path()).current_dir(crate::root()));
    let made: Vec<PathBuf> = std::fs::read_dir(folder.path().join("package"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "crate"))
        .collect();
    let crates = std::fs::read_dir(crate::root().join("crates")).unwrap().count();
    assert_eq!(made.len(), crates - 1, "{made:?}");
    for path in made {
        let listing = must(Command::new("tar").arg("-tzf").arg(&path));
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "src/"] {
            assert!(listing.lines().any(|line| line.contains(&format!("/{name}"))), "{name}: {listing}");
        }
        let is_test =
            |line: &&str| line.contains("/tests/") && !line.contains("/src/") && !line.contains("/recorded/");
        assert_eq!(listing.lines().find(is_test), None, "{}", path.display());
    }
}
