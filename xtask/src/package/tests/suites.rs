//! The package in fresh roots of Debian's suites: installed by apt, used as a person and as systemd would, upgraded,
//! removed, purged. Needs Debian's archive; `cargo xtask evidence packages` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::switches::Switches;
use super::unit::{Pair, constrained, values};
use super::{assert_root, binary, deb, elf, ended, must, pack, text};
use crate::package::image;

const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// What a person has who reads manuals and presses the tab key.
const WITH: &str = "systemd,man-db,bash-completion,libcap2-bin";

struct Root {
    suite: &'static str,
    folder: tempfile::TempDir,
}

impl Root {
    fn new(suite: &'static str) -> Self {
        let root = Root { suite, folder: tempfile::tempdir().unwrap() };
        let begun = Instant::now();
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", &format!("--include={WITH}"), suite]).arg(root.path());
        must(&mut make);
        root.held(&format!("a fresh root with {WITH} was made in {} s", begun.elapsed().as_secs()));
        root
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn held(&self, what: &str) {
        println!("held: {} | {what}", self.suite);
    }

    /// Runs a script inside. The mounts that it needs end with it.
    fn inside(&self, script: &str) -> String {
        self.with_mounts("", &["sh", "-ec", script])
    }

    /// Runs a command inside, after more mounts; `$R` is the root.
    fn with_mounts(&self, mounts: &str, words: &[&str]) -> String {
        let before = format!(
            "R=$1; shift; mount -t proc proc $R/proc; mount --rbind /dev $R/dev; {mounts}\n\
             exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
             chroot $R \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &before, "sh"]).arg(self.path());
        must(command.args(words))
    }

    fn apt(&self, deb: &Path) -> String {
        fs::copy(deb, self.path().join("tmp").join(deb.file_name().unwrap())).unwrap();
        self.inside(&format!(
            "apt-get install --yes /tmp/{} 2>&1",
            deb.file_name().unwrap().to_str().unwrap()
        ))
    }
}

#[test]
#[ignore = "takes minutes and Debian's archive: cargo xtask evidence packages"]
fn in_fresh_roots_of_two_suites() {
    assert_root("this test makes roots of Debian");
    for suite in SUITES {
        let root = Root::new(suite);
        install(&root);
        read_and_complete(&root);
        timer(&root);
        scans(&root);
        upgrade_remove_purge(&root);
    }
}

fn install(root: &Root) {
    let said = root.apt(deb());
    let version = root.inside("samehost --version");
    assert!(version.starts_with("samehost "), "{said}{version}");
    let status = root.inside("dpkg-query -W -f '${db:Status-Abbrev} ${Depends}' samehost; apt-get check");
    assert!(status.starts_with("ii "), "{status}");
    let verified =
        root.inside("systemd-analyze verify --man=yes /usr/lib/systemd/system/samehost-scan.* 2>&1");
    assert!(!verified.contains("samehost"), "{verified}");
    root.held(&format!("apt install: {}; systemd-analyze verify says nothing", version.trim()));
}

fn read_and_complete(root: &Root) {
    let page = root.inside("man -P cat samehost 2>&1");
    for section in ["EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
        assert!(page.contains(section), "{page}");
    }
    let faults =
        "for page in /usr/share/man/man1/samehost*; do man --warnings -l -P cat $page 2>&1 >/dev/null; done";
    assert_eq!(root.inside(faults), "");
    assert!(root.inside("whatis --long samehost-scan").contains("could use a Unix socket"));
    // As an interactive bash does it: bash-completion loads the file when the word is completed for the first time.
    let script = ". /usr/share/bash-completion/bash_completion
        # Renamed in bash-completion 2.12.
        _completion_loader samehost 2>/dev/null || _comp_load samehost 2>/dev/null || true
        complete -p samehost
        COMP_WORDS=(samehost sca) COMP_CWORD=1 COMP_LINE='samehost sca' COMP_POINT=12
        $(complete -p samehost | sed 's/.*-F \\([^ ]*\\).*/\\1/') samehost sca samehost
        echo \"=${COMPREPLY[*]}\"";
    let completed = root.with_mounts("", &["bash", "-c", script]);
    assert!(completed.contains("samehost") && completed.lines().last() == Some("=scan"), "{completed}");
    let rule = completed.lines().next().unwrap_or_default();
    root.held(&format!("man samehost: {} lines; {rule}; `sca` completes to `scan`", page.lines().count()));
}

fn timer(root: &Root) {
    let state = |word: &str| {
        let mut ask = Command::new("systemctl");
        ask.arg("--root").arg(root.path()).args([word, "samehost-scan.timer"]);
        String::from_utf8(ask.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(state("is-enabled"), "disabled", "off by default");
    state("enable");
    assert_eq!(state("is-enabled"), "enabled");
    root.held("samehost-scan.timer: disabled after the installation, enabled by systemctl --root");
}

/// `ExecStart=`, twice, as the unit says: its capabilities, and nothing writable but its state directory.
fn scans(root: &Root) {
    let unit = text(&root.path().join("usr/lib/systemd/system/samehost-scan.service"));
    let [state] = &values(&unit, "StateDirectory")[..] else { panic!("{unit}") };
    let state = format!("/var/lib/{state}");
    let mode = values(&unit, "StateDirectoryMode").concat();
    root.inside(&format!("mkdir -p {state}; chmod {mode} {state}"));
    assert_eq!(values(&unit, "ProtectSystem"), ["strict"]);
    let read_only =
        format!("mount --bind $R $R; mount --bind $R{state} $R{state}; mount -o remount,bind,ro $R");
    // The mount of the root hides those below it.
    let read_only = format!("{read_only}; mount -t proc proc $R/proc; mount --rbind /dev $R/dev");
    let [command] = &values(&unit, "ExecStart")[..] else { panic!("{unit}") };
    let umask = values(&unit, "UMask").concat();
    let shell = format!("umask {umask}; exec {command}");
    let mut words = constrained(&unit);
    words.extend(["sh".into(), "-ec".into(), shell]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for time in ["first", "second"] {
        let said = root.with_mounts(&read_only, &words);
        let last = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing is said").to_owned();
        root.held(&format!(
            "{time} run of ExecStart, with the unit's capabilities on a read-only root: {last}"
        ));
    }
    let history = root.inside("samehost history --scans");
    let kept = fs::read_dir(root.path().join(state.trim_start_matches('/'))).unwrap().count();
    assert!(kept >= 2, "{history}");
    root.held(&format!("samehost history --scans: {}", history.lines().next().unwrap_or_default()));
}

fn upgrade_remove_purge(root: &Root) {
    let switches = Switches::new(&root.path());
    let there = switches.there();
    root.apt(&pack("0.1.1", deb::build).path);
    let version = root.inside("dpkg-query -W -f '${Version}' samehost");
    let is_enabled =
        || root.path().join("etc/systemd/system/timers.target.wants/samehost-scan.timer").is_symlink();
    assert!(version == "0.1.1-1" && is_enabled() && switches.there() == there);
    root.inside("samehost switch --list");
    root.inside("apt-get remove --yes samehost 2>&1");
    assert!(switches.there() == there && !root.path().join("usr/bin/samehost").exists());
    let said = root.inside("apt-get purge --yes samehost 2>&1");
    assert_eq!(switches.there(), switches.needed, "{said}");
    assert!(
        said.contains("stay in /var/lib/samehost/switches:") && said.contains(&switches.in_force),
        "{said}"
    );
    assert!(!root.path().join("var/lib/samehost/scans").exists() && !is_enabled(), "{said}");
    root.held(&format!(
        "upgraded to {version}; removed: {} switches stay; purged: {} that can be undone stay, {} that cannot are gone",
        there.len(),
        switches.needed.len(),
        switches.over.len()
    ));
    // It leads back: installed again, the program undoes what was in force. Paths in the journal are this machine's.
    root.apt(deb());
    let mut undo = Command::new(root.path().join("usr/bin/samehost"));
    undo.args(["switch", "--undo", &switches.in_force, "--yes"]);
    must(undo.env("XDG_STATE_HOME", root.path().join("var/lib")));
    assert_eq!(switches.file_in_force(), "tcp\n");
    root.held("installed again: the switch in force was undone");
}

/// podman with a store of its own. crun refuses a machine with control groups of both versions; podman has its locks in /dev/shm.
const PODMAN: &str = "for hidden in /run /dev/shm; do mount -t tmpfs none $hidden; done
umount /sys/fs/cgroup/unified 2>/dev/null || :
exec podman --root $0/store --runroot $0/run --tmpdir $0/tmp --storage-driver vfs --runtime crun --cgroup-manager cgroupfs \"$@\"";

/// The image sees the processes of the machine, and whose a connection is with the two capabilities that docs/install.md names.
#[test]
#[ignore = "needs a static program and podman: cargo xtask evidence packages"]
fn from_inside_a_container() {
    assert_root("this test runs podman");
    let held = |what: &str| println!("held: image | {what}");
    if !elf::read(&binary()).unwrap().is_static {
        held("not tested: the program needs libraries; SAMEHOST_BINARY names a static one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = pack("0.1.0", image::build);
    let podman = |words: &[&str]| {
        let mut podman = Command::new("unshare");
        podman.args(["--mount", "sh", "-ec", PODMAN]).arg(folder.path()).args(words);
        // One that reads and writes what crun, and nothing else, needs.
        ended(podman.env("CONTAINERS_CONF", "/dev/null"))
    };
    let name = "localhost/samehost:0.1.0";
    let loaded = podman(&["load", "--quiet", "--input", image.path.to_str().unwrap()]);
    assert_eq!(loaded.status, 0, "{}", loaded.both());
    let pair = Pair::new();
    let (own, server) = (u64::from(std::process::id()), u64::from(pair.server.id()));
    // `--ulimit=host`: root may not raise limits everywhere, as in a container.
    let run = ["run", "--rm", "--ulimit=host", "--pid=host", "--net=host"];
    for (capabilities, seen) in
        [(&[][..], [vec![], vec![]]), (&["--cap-add=SYS_PTRACE,DAC_READ_SEARCH"], [vec![own], vec![server]])]
    {
        let words = [&run[..], capabilities, &[name, "scan", "--json", "--quiet"]].concat();
        let ran = podman(&words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.both());
        let found = pair.found(&ran.stdout);
        assert_eq!(found, seen, "{words:?}");
        let whose = if found.iter().all(Vec::is_empty) { "hidden" } else { "named" };
        held(&format!(
            "podman {}: status 0; the processes at both ends of a connection are {whose}",
            words.join(" ")
        ));
    }
    // podman leaves the directories above those of its containers.
    let put_back =
        "find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null || :";
    must(Command::new("sh").args(["-c", put_back]));
}
