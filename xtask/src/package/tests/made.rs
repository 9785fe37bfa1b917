//! What is in a package, and what lintian and rpm say of it; and the crates as crates.io would have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{deb, must, pack, rpm};
use crate::package::{formats, tree};
use crate::process::cargo_command;

#[test]
fn the_same_input_gives_the_same_bytes_with_programs() {
    for (one, again) in
        [(deb(), pack("0.1.0", formats::build_deb)), (rpm(), pack("0.1.0", formats::build_rpm))]
    {
        assert!(fs::read(one).unwrap() == fs::read(&again.path).unwrap(), "{} differs", one.display());
    }
}

#[test]
fn lintian_finds_nothing_in_the_deb_with_programs() {
    let mut lintian = Command::new("lintian");
    // Information and pedantry are advice; these two are not.
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
    let said = must(lintian.arg(deb()));
    let found: Vec<&str> =
        said.lines().filter(|line| line.starts_with("E:") || line.starts_with("W:")).collect();
    assert!(found.is_empty(), "{said}");
}

#[test]
fn the_deb_has_everything_at_its_place_and_of_root_with_programs() {
    let listing = must(Command::new("dpkg-deb").arg("--contents").arg(deb()));
    for line in listing.lines() {
        assert!(line.contains(" root/root "), "{line}");
        let is_program = line.ends_with("usr/bin/samehost");
        let mode = if line.starts_with('d') || is_program { "rwxr-xr-x" } else { "rw-r--r--" };
        assert_eq!(&line[1..10], mode, "{line}");
    }
    let wanted = [
        "usr/bin/samehost",
        "usr/lib/systemd/system/samehost-scan.service",
        "usr/lib/systemd/system/samehost-scan.timer",
        "usr/share/bash-completion/completions/samehost",
        "usr/share/zsh/vendor-completions/_samehost",
        "usr/share/fish/vendor_completions.d/samehost.fish",
        "usr/share/man/man1/samehost.1.gz",
        "usr/share/man/man1/samehost-bench-raw.1.gz",
        "usr/share/doc/samehost/changelog.gz",
        "usr/share/doc/samehost/changelog.Debian.gz",
        "usr/share/doc/samehost/copyright",
        "usr/share/doc/samehost/LICENSES-OF-OTHERS.txt.gz",
        "usr/share/samehost/prometheus/samehost.rules.yml",
        "usr/share/samehost/prometheus/samehost.dashboard.json",
        "usr/share/samehost/kubernetes/samehost.yaml",
    ];
    for name in wanted {
        assert!(listing.lines().any(|line| line.ends_with(&format!("./{name}"))), "{name}:\n{listing}");
    }
    let copyright = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(deb()).output().unwrap().stdout;
    let copyright = String::from_utf8_lossy(&copyright);
    assert!(copyright.contains("Permission is hereby granted") && copyright.contains("Apache License"));
}

#[test]
fn rpm_reads_the_rpm_and_its_sums_hold_with_programs() {
    let rpm = rpm();
    let said = must(Command::new("rpm").args(["--checksig", "--verbose"]).arg(rpm));
    assert!(said.contains("digest: OK") && !said.contains("BAD") && !said.contains("NOT OK"), "{said}");
    let listing =
        must(Command::new("rpm").args(["-qp", "--qf", "[%{FILEUSERNAME} %{FILENAMES}\\n]"]).arg(rpm));
    let wanted =
        ["/usr/bin/samehost", "/usr/share/man/man1/samehost.1.gz", "/usr/share/zsh/site-functions/_samehost"];
    let others = [
        "/usr/share/licenses/samehost/LICENSE-MIT",
        "/usr/share/licenses/samehost/LICENSES-OF-OTHERS.txt",
        "/usr/share/samehost/prometheus/samehost.rules.yml",
    ];
    for name in wanted.into_iter().chain(others) {
        assert!(listing.lines().any(|line| line == format!("root {name}")), "{name}:\n{listing}");
    }
    let scripts = must(Command::new("rpm").args(["-qp", "--scripts"]).arg(rpm));
    assert!(!scripts.contains("rm -r"), "a removed rpm keeps what it wrote: {scripts}");
}

#[test]
fn completions_are_understood_by_their_shells_with_programs() {
    let folder = tempfile::tempdir().unwrap();
    must(Command::new("dpkg-deb").arg("--extract").arg(deb()).arg(folder.path()));
    let shells = [
        ("bash", "usr/share/bash-completion/completions/samehost"),
        ("zsh", "usr/share/zsh/vendor-completions/_samehost"),
        ("fish", "usr/share/fish/vendor_completions.d/samehost.fish"),
    ];
    for (shell, file) in shells {
        must(Command::new(shell).arg("-n").arg(folder.path().join(file)));
    }
    let line = ". \"$0\"; COMP_WORDS=(samehost ver); COMP_CWORD=1; _samehost samehost ver samehost; echo ${COMPREPLY[@]}";
    let file = folder.path().join(shells[0].1);
    assert_eq!(must(Command::new("bash").args(["-c", line]).arg(file)).trim(), "verify");
}

#[test]
fn manual_pages_and_completions_are_written_into_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    crate::package::manual(&crate::tested_program(), folder.path()).unwrap();
    let names = tree::files(folder.path()).unwrap();
    let wanted =
        ["completions/_samehost", "completions/samehost.bash", "completions/samehost.fish", "man/samehost.1"];
    for name in wanted.into_iter().chain(["man/samehost-scan.1"]) {
        assert!(names.iter().any(|found| found == Path::new(name)), "{name}: {names:?}");
    }
}

/// Its blobs are what their names say, and the program is in it.
#[test]
fn an_image_is_made_of_what_its_index_names_with_programs() {
    let folder = tempfile::tempdir().unwrap();
    let image = pack("0.1.0", formats::build_image);
    let layout = folder.path().join("layout");
    fs::create_dir(&layout).unwrap();
    must(Command::new("tar").arg("-xf").arg(&image.path).arg("-C").arg(&layout));
    for blob in tree::files(&layout.join("blobs/sha256")).unwrap() {
        let path = layout.join("blobs/sha256").join(&blob);
        assert!(must(Command::new("sha256sum").arg(&path)).starts_with(blob.to_str().unwrap()), "{blob:?}");
    }
    let read = |digest: &serde_json::Value| -> Vec<u8> {
        fs::read(layout.join("blobs").join(digest.as_str().unwrap().replace(':', "/"))).unwrap()
    };
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let manifest: serde_json::Value =
        serde_json::from_slice(&read(&index["manifests"][0]["digest"])).unwrap();
    let layer = folder.path().join("layer.tar.gz");
    fs::write(&layer, read(&manifest["layers"][0]["digest"])).unwrap();
    let listing = must(Command::new("tar").arg("-tvf").arg(&layer));
    let licences = "usr/share/licenses/samehost/LICENSES-OF-OTHERS.txt";
    for (mode, name) in [("-rwxr-xr-x 0/0", "usr/bin/samehost"), ("-rw-r--r-- 0/0", licences)] {
        let is_it = |line: &&str| line.starts_with(mode) && line.ends_with(&format!(" {name}"));
        assert_eq!(listing.lines().filter(is_it).count(), 1, "{name}: {listing}");
    }
    let licences = must(Command::new("tar").args(["-xzOf"]).arg(&layer).arg(licences));
    assert!(licences.contains("serde_json 1.") && licences.contains("Rich Felker"), "{licences:.2000}");
}

#[test]
fn every_word_of_a_template_is_filled_in_with_programs() {
    let control = must(Command::new("dpkg-deb").arg("--field").arg(deb()));
    assert!(!control.replace("samehost@users", "").contains('@'), "{control}");
}

fn cargo(words: &[&str], target: &Path) -> Command {
    let mut cargo = cargo_command(words);
    cargo.args(["--offline", "--locked"]).env("CARGO_TARGET_DIR", target);
    cargo
}

/// Makes the archives of all crates but `xtask` and `samehost-testing` below a folder.
fn packaged(folder: &Path) -> Vec<PathBuf> {
    let words = ["package", "--workspace", "--exclude", "xtask", "--exclude", "samehost-testing"];
    let mut package = cargo(&words, folder);
    package.args(["--no-verify", "--allow-dirty"]);
    must(&mut package);
    let made = fs::read_dir(folder.join("package")).unwrap().map(|entry| entry.unwrap().path());
    let mut made: Vec<PathBuf> = made.collect();
    made.retain(|path| path.extension().is_some_and(|end| end == "crate"));
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
