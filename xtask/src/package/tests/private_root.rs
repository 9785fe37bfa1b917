//! The packages in a root of their own, by dpkg and by rpm, with their scripts; no file of this machine is touched.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Switches, assert_root, deb, must, pack, rpm};
use crate::package::formats;

struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        assert_root("this test installs a package in a root of its own");
        let root = Root(tempfile::tempdir().unwrap());
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "etc", "usr/bin"]
        {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        root
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn dpkg(&self, arguments: &[&str]) -> String {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(self.path()).args(["--force-script-chrootless", "--force-depends"]);
        must(dpkg.args(arguments).env("LC_ALL", "C"))
    }

    fn systemctl(&self, arguments: &[&str]) -> String {
        must(Command::new("systemctl").arg("--root").arg(self.path()).args(arguments))
    }

    fn is_enabled(&self) -> bool {
        self.path().join("etc/systemd/system/timers.target.wants/samehost-scan.timer").is_symlink()
    }
}

#[test]
fn installed_upgraded_removed_and_purged_it_keeps_what_can_be_undone_as_root() {
    let root = Root::new();
    let (old, new) = (deb(), pack("0.1.1", formats::build_deb));
    root.dpkg(&["--install", old.to_str().unwrap()]);
    assert!(!root.is_enabled(), "the timer is off by default");
    let program = root.path().join("usr/bin/samehost");
    assert!(must(Command::new(&program).arg("--version")).starts_with("samehost "));
    root.systemctl(&["enable", "samehost-scan.timer"]);
    assert!(root.is_enabled());
    let switches = Switches::new(root.path());
    let scans = root.path().join("var/lib/samehost/scans");
    fs::create_dir(&scans).unwrap();
    fs::write(scans.join("one.json"), "{}").unwrap();
    let all = switches.there();
    assert_eq!(all, &switches.needed | &switches.over);

    root.dpkg(&["--install", new.path.to_str().unwrap()]);
    assert!(root.is_enabled() && switches.there() == all && scans.exists(), "upgraded");

    let said = root.dpkg(&["--remove", "samehost"]);
    assert!(!program.exists() && switches.there() == all && scans.exists(), "removed: {said}");
    assert!(said.contains(&format!("switch {} awaits its confirmation", switches.awaiting)), "{said}");

    let said = root.dpkg(&["--purge", "samehost"]);
    assert_eq!(switches.there(), switches.needed, "{said}");
    assert!(!scans.exists() && !root.is_enabled(), "{said}");
    let place = root.path().join("var/lib/samehost/switches");
    assert!(said.contains(place.to_str().unwrap()), "{said}");
    for id in &switches.needed {
        assert!(said.lines().any(|line| line.trim() == id), "{id}: {said}");
    }
    assert!(
        said.lines().all(|line| line.contains("/var/lib/samehost/") || line.chars().count() <= 90),
        "{said}"
    );

    root.dpkg(&["--install", new.path.to_str().unwrap()]);
    let mut undo = Command::new(&program);
    undo.args(["switch", "undo", &switches.in_force, "--yes"])
        .env("XDG_STATE_HOME", root.path().join("var/lib"));
    must(&mut undo);
    assert_eq!(switches.file_in_force(), "tcp\n", "undone by the program that was installed again");
}

#[test]
fn a_purge_with_nothing_to_undo_leaves_nothing_as_root() {
    let root = Root::new();
    root.dpkg(&["--install", deb().to_str().unwrap()]);
    fs::create_dir_all(root.path().join("var/lib/samehost/switches")).unwrap();
    fs::create_dir_all(root.path().join("var/lib/samehost/scans")).unwrap();
    let said = root.dpkg(&["--purge", "samehost"]);
    assert!(!root.path().join("var/lib/samehost").exists(), "{said}");
    assert!(!said.contains("passwords"), "{said}");
}

/// systemd reads the units, and finds nothing to say of them.
#[test]
fn systemd_verifies_the_units_as_root() {
    let root = Root::new();
    root.dpkg(&["--install", deb().to_str().unwrap()]);
    // What the units refer to: targets and slices.
    must(
        Command::new("cp")
            .args(["-a", "--no-clobber", "/lib/systemd/system", "/usr/lib/systemd/system"])
            .arg(root.path().join("usr/lib/systemd")),
    );
    for unit in ["samehost-scan.service", "samehost-scan.timer"] {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(format!("--root={}", root.path().display()));
        let said = must(verify.arg(format!("/usr/lib/systemd/system/{unit}")));
        assert!(!said.contains("samehost"), "{unit}: {said}");
    }
}

/// A root with what the scripts of an rpm need, a shell.
fn root_of_rpm() -> Root {
    assert_root("this test installs a package in a root of its own");
    let root = Root(tempfile::tempdir().unwrap());
    let libraries = must(Command::new("ldd").arg("/bin/sh"));
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        let copy = root.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }
    root
}

#[test]
fn an_rpm_is_installed_upgraded_and_removed_and_keeps_what_it_wrote_as_root() {
    let root = root_of_rpm();
    let in_root = |arguments: &[&str]| {
        let mut rpm = Command::new("rpm");
        // Debian's rpm does not know which packages of Debian have a shell.
        rpm.arg("--root").arg(root.path()).args(["--nodeps"]);
        must(rpm.args(arguments).env("LC_ALL", "C"))
    };
    let (old, new) = (rpm(), pack("0.1.1", formats::build_rpm));
    in_root(&["--install", old.to_str().unwrap()]);
    let program = root.path().join("usr/bin/samehost");
    assert!(must(Command::new(&program).arg("--version")).starts_with("samehost "));
    assert!(!root.is_enabled(), "the timer is off by default");
    let switches = Switches::new(root.path());
    let all = switches.there();

    let said = in_root(&["--upgrade", new.path.to_str().unwrap()]);
    assert!(program.exists() && switches.there() == all, "upgraded: {said}");
    assert!(!said.contains("stay in"), "an upgrade removes nothing: {said}");
    let mut query = Command::new("rpm");
    query.arg("--root").arg(root.path()).args(["-q", "--qf", "%{VERSION}", "samehost"]);
    assert_eq!(must(&mut query), "0.1.1");

    let said = in_root(&["--erase", "samehost"]);
    assert!(!program.exists() && switches.there() == all, "removed: {said}");
    assert!(said.contains("stay in /var/lib/samehost"), "{said}");
    let mut find = Command::new("find");
    find.arg(root.path().join("usr")).args(["-name", "*samehost*"]);
    assert_eq!(must(&mut find), "", "nothing else is left");
}
