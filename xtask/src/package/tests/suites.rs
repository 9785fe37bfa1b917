//! The package in fresh roots of Debian's suites: installed by apt, used as a person and as systemd would, upgraded,
//! removed, purged. Needs Debian's archive; `cargo xtask evidence packages` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use samehost_testing::free_port;

use super::unit::{constrained, found, values};
use super::{Switches, assert_root, binary, deb, must, pack, text};
use crate::package::{formats, tree};

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
    root.apt(&pack("0.1.1", formats::build_deb).path);
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

/// In a namespace of processes, which stands for the machine and ends with the script: a connection to a server of another user on
/// port $2, podman with a store in $1, and a scan of the image $3 without and with the capabilities of $4.
const IN_PODMAN: &str = "
cd $1; image=$3
for hidden in /run /dev/shm; do mount -t tmpfs none $hidden; done
# crun refuses a machine with control groups of both versions.
umount /sys/fs/cgroup/unified 2>/dev/null || :
setpriv --reuid=65534 --regid=65534 --clear-groups nc -l 127.0.0.1 $2 >/dev/null </dev/zero & server=$!
until ss -Hltn sport = :$2 | grep -q .; do sleep 0.1; done
sleep 1000 | nc 127.0.0.1 $2 >/dev/null & client=$!
until ss -Htnp state established sport = :$2 | grep -q pid=$server; do sleep 0.1; done
echo $client $server >pids
printf '[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"crun\"\n' >conf
export CONTAINERS_CONF=$1/conf
podman() { command podman --root $PWD/store --runroot $PWD/run --tmpdir $PWD/tmp --storage-driver vfs --log-level error \"$@\"; }
podman load --quiet --input $image >/dev/null
for more in '' $4; do
  podman run --rm --ulimit=host --pid=host --net=host $more localhost/samehost:0.1.0 scan --json --quiet >scan$more.json
done
# podman leaves the directories above those of its containers.
find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null || :
";

/// The image sees the processes of the machine, and whose a connection is with the two capabilities that docs/install.md names.
/// `--ulimit=host`: root may not raise limits everywhere.
#[test]
#[ignore = "needs a static program and podman: cargo xtask evidence packages"]
fn from_inside_a_container() {
    assert_root("this test runs podman");
    let held = |what: &str| println!("held: image | {what}");
    if !tree::read_elf(&binary()).unwrap().is_static {
        held("not tested: the program needs libraries; SAMEHOST_BINARY names a static one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = pack("0.1.0", formats::build_image);
    let (port, capabilities) = (free_port(), "--cap-add=SYS_PTRACE,DAC_READ_SEARCH");
    let mut script = Command::new("unshare");
    script.args([
        "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", IN_PODMAN, "bash",
    ]);
    script.arg(folder.path()).arg(port.to_string()).arg(&image.path).arg(capabilities);
    must(&mut script);
    let pids: Vec<Vec<u64>> =
        text(&folder.path().join("pids")).split_whitespace().map(|pid| vec![pid.parse().unwrap()]).collect();
    for (more, seen, whose) in [
        ("", vec![vec![], vec![]], "hides the processes at both ends of a connection"),
        (capabilities, pids, "names the processes at both ends"),
    ] {
        let scan = text(&folder.path().join(format!("scan{more}.json")));
        assert_eq!(found(&scan, port).to_vec(), seen, "{more}");
        held(&format!("podman run --ulimit=host --pid=host --net=host {more} … scan: status 0, {whose}"));
    }
}
