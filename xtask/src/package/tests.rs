//! Packages are made, looked at by the tools of their distributions, installed, used, removed and purged. The long tests
//! in whole roots of Debian are `cargo xtask evidence packages`.

mod crates;
mod made;
mod private_root;
mod suites;
mod switches;
mod unit;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use samehost_testing::Ended;

use super::{Release, formats, tree};

/// A package in a folder that goes with it.
struct Package {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

type Build = fn(&Release<'_>) -> anyhow::Result<PathBuf>;

/// The program that SAMEHOST_BINARY names, or the one of the tests.
fn binary() -> PathBuf {
    std::env::var_os("SAMEHOST_BINARY").map_or_else(crate::tested_program, PathBuf::from)
}

/// Makes a package of the program that the other tests use, with as little work as possible.
fn pack(version: &str, build: Build) -> Package {
    let folder = tempfile::tempdir().unwrap();
    let path = pack_in(folder.path(), version, build);
    Package { _folder: folder, path }
}

fn pack_in(out: &Path, version: &str, build: Build) -> PathBuf {
    let binary = binary();
    let elf = tree::read_elf(&binary).unwrap();
    let speaker = binary.clone();
    let epoch = crate::dist::epoch().unwrap();
    static LICENCES: OnceLock<String> = OnceLock::new();
    let licences = LICENCES.get_or_init(|| crate::dist::licences_of_others().unwrap());
    build(&Release { binary: &binary, elf, speaker, version, epoch, level: 0, licences, out }).unwrap()
}

/// Makes a package of version 0.1.0 that several tests use. It is in the target directory, since nobody is the last to
/// use it.
fn pack_once(build: Build) -> PathBuf {
    let out = crate::target().join("tmp/packages");
    std::fs::create_dir_all(&out).unwrap();
    pack_in(&out, "0.1.0", build)
}

/// The package for Debian.
fn deb() -> &'static Path {
    static DEB: OnceLock<PathBuf> = OnceLock::new();
    DEB.get_or_init(|| pack_once(formats::build_deb))
}

/// The other one.
fn rpm() -> &'static Path {
    static RPM: OnceLock<PathBuf> = OnceLock::new();
    RPM.get_or_init(|| pack_once(formats::build_rpm))
}

fn ended(command: &mut Command) -> Ended {
    let name = command.get_program().display().to_string();
    Ended::of(&command.output().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Runs a command that has to succeed; gives both of its outputs.
fn must(command: &mut Command) -> String {
    let ended = ended(command);
    assert_eq!(ended.status, 0, "{command:?}\n{}", ended.both());
    ended.both()
}

fn assert_root(why: &str) {
    let id = must(Command::new("id").arg("-u"));
    assert_eq!(id.trim(), "0", "{why}: run it as root");
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_ansible_collection_has_the_version_and_the_licences_of_the_program_and_is_python() {
    let place = crate::root().join("packaging/ansible");
    let described = text(&place.join("galaxy.yml"));
    let version = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(described.contains(&version), "galaxy.yml has not{version}");
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert_eq!(
            text(&crate::root().join(name)),
            text(&place.join(name)),
            "{name} of the collection is another"
        );
    }
    let parse = "import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]";
    let modules = ["modules/switch.py", "modules/samehost_facts.py", "module_utils/program.py"];
    let modules = modules.map(|name| place.join("plugins").join(name));
    must(Command::new("python3").args(["-c", parse]).args(modules));
}
