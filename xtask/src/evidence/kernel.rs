//! Emulated machines. Old kernels are started with the static program and busybox: Debian 12's, and Debian 11's, which is
//! older than README promises and lacks epoll_pwait2(2); what counts exchanges in the kernel, on Debian 11's, 12's and
//! 13's. The unit of the timer runs under a real systemd, with Debian 12 and its kernel: the scan works with everything
//! that the unit takes away, with the drop-in for metrics too, and what the unit forbids is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::scripts::{build_test, keep_findings};
use super::{Account, need};
use crate::debug_program;
use crate::fetched::Apt;
use crate::process::{cargo_command, find_program, succeed, text};

/// The kernel for virtual machines of a suite of Debian, the newest that it has.
struct Kernel {
    suite: &'static str,
    /// How many of the commands of `INIT` end well on it.
    good: usize,
}

const DEBIAN_12: Kernel = Kernel { suite: "bookworm", good: 5 };
/// Debian 11's has all but the checkup.
const DEBIAN_11: Kernel = Kernel { suite: "bullseye", good: 4 };
const KERNELS: &[Kernel] = &[DEBIAN_12, DEBIAN_11];
/// Depends on the package of the newest kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";
const NEEDED: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("cpio", "cpio")];
/// What the first process does. The first line of each command's output and its status are what is kept.
const INIT: &str = "\
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox ip link set lo up
for words in --version 'how redis' scan 'bench raw --budget 5s --quiet --markdown -' '--budget 20s --quiet'; do
  /samehost $words > /tmp/out 2>&1
  echo \"kept: $(/busybox uname -r) | samehost $words | status $? | $(/busybox grep -m 1 . /tmp/out)\"
  /busybox sed 's/^/said: /' /tmp/out
done
/busybox poweroff -f
";

pub(super) fn boot(account: &mut Account, program: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        account.tell("kernel | only tried on x86_64");
        return Ok(());
    }
    need(NEEDED)?;
    let folder = tempfile::tempdir()?;
    let (root, archive) = (folder.path().join("root"), folder.path().join("root.cpio"));
    make_root(&root, &["proc", "tmp", "dev"], INIT)?;
    fs::copy(program, root.join("samehost"))?;
    pack(&root, &archive)?;
    for kernel in KERNELS {
        match kernel.fetch(folder.path()) {
            Ok(image) => keep_lines(account, kernel, &machine(&image, &archive, 1024, "").output()?.stdout)?,
            Err(error) => {
                account.tell(&format!("kernel | that of {} was not tried: {error:#}", kernel.suite));
            }
        }
    }
    Ok(())
}

impl Kernel {
    /// Downloads and unpacks its package below a folder, and returns the kernel's file.
    fn fetch(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let (packages, unpacked) = (folder.join(self.suite), folder.join(self.suite).join("kernel"));
        let apt = Apt::new(&packages, self.suite)?;
        let depends = text(apt.command("apt-cache").args(["depends", PACKAGE]))?;
        let newest = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let newest = newest.with_context(|| format!("{PACKAGE} of {}: {depends}", self.suite))?;
        succeed(apt.command("apt-get").args(["download", newest]))?;
        let package = crate::names(&packages)?.into_iter().find(|name| name.ends_with(".deb"));
        let package = packages.join(package.context("apt downloaded no package")?);
        succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
        Ok(unpacked.join("boot").join(newest.replace("linux-image", "vmlinuz")))
    }
}

/// An emulated machine with a root directory in memory, of which it may have so many megabytes.
fn machine(image: &Path, archive: &Path, megabytes: u32, words: &str) -> Command {
    let mut machine = Command::new("timeout");
    machine.args(["600", "qemu-system-x86_64", "-accel", "tcg", "-smp", "2", "-nographic", "-no-reboot"]);
    machine.args(["-m", &megabytes.to_string(), "-append", &format!("console=ttyS0 quiet panic=-1 {words}")]);
    machine.arg("-kernel").arg(image).arg("-initrd").arg(archive).stdin(Stdio::null());
    machine
}

fn keep_lines(account: &mut Account, kernel: &Kernel, printed: &[u8]) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(printed);
    let mut good = 0;
    for line in text.lines() {
        let Some((_, kept)) = line.split_once("kept: ") else { continue };
        account.tell(&format!("kernel | {}", kept.trim()));
        good += usize::from(kept.contains("| status 0 |"));
    }
    ensure!(good == kernel.good, "{good} commands ended well, not {}:\n{text}", kernel.good);
    Ok(())
}

/// Begins the first root directory of a machine: with folders, busybox, and the script that is its first process.
fn make_root(root: &Path, folders: &[&str], init: &str) -> anyhow::Result<()> {
    for name in folders {
        fs::create_dir_all(root.join(name))?;
    }
    fs::copy(find_program("busybox").context("busybox")?, root.join("busybox"))?;
    fs::write(root.join("init"), init)?;
    Ok(fs::set_permissions(root.join("init"), Permissions::from_mode(0o755))?)
}

fn pack(root: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut pack = Command::new("sh");
    pack.args(["-c", "find . | cpio --create --format=newc --quiet"]).current_dir(root);
    let status = pack.stdout(fs::File::create(archive)?).status()?;
    ensure!(status.success(), "cpio: {status}");
    Ok(())
}

const DEBIAN_13: Kernel = Kernel { suite: "trixie", good: 0 };
/// Kernels that are to count 3,000 exchanges over each family, each with other programs of samehost-bpf: the name for `--only`, the
/// kernel, how it is to measure (a variant of `samehost_bpf::Mode`), and the tests that it is to pass.
const COUNTING: [(&str, Kernel, &str, &str); 3] = [
    ("5.10", DEBIAN_11, "FunctionsByCookie", TESTS),
    ("6.1", DEBIAN_12, "Functions", UNIX_TOO),
    ("6.12", DEBIAN_13, "Entries", ALL_TESTS),
];
/// Modules by which sockets are listed, and those for what the kernel encrypts (kTLS), as far as each kernel has them as modules; in
/// the order in which they need each other.
const MODULES: [&str; 12] = [
    "inet_diag", "tcp_diag", "unix_diag", "cryptomgr", "gf128mul", "ghash-generic", "ctr", "aead", "geniv",
    "crypto_null", "gcm", "tls",
];
const SERVER: &[(&str, &str)] =
    &[("/usr/bin/redis-server", "redis-server"), ("/usr/bin/redis-benchmark", "redis-tools")];
/// Tests that count, and do not look at the time.
const TESTS: &str = "all_exchanges each_way received_in_two overlapping nobody_asked encrypts";
/// The same with connections that are not listed by anybody.
const UNIX_TOO: &str =
    "all_exchanges each_way received_in_two overlapping nobody_asked encrypts connections_to_a_unix_socket";
/// The same with what a trial counts: it names a thread by a descriptor, which Linux has since 6.9.
const ALL_TESTS: &str = "all_exchanges each_way received_in_two overlapping nobody_asked encrypts connections_to_a_unix_socket short_connections the_kernel_has";
const COUNTS: &str = "\
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sysfs /sys
/busybox mount -t devtmpfs dev /dev
/busybox ip link set lo up
for module in /modules/*; do /busybox insmod $module 2> /dev/null; done
echo \"kernel: $(/busybox uname -r)\"
/tests --test-threads 1 --nocapture TESTS 2>&1
/usr/bin/redis-server --port 6379 --bind 127.0.0.1 --unixsocket /run/redis.sock --save '' --daemonize yes > /dev/null
/busybox sleep 3
/usr/bin/redis-benchmark -c 1 -n 100000000 -t get -q > /dev/null 2>&1 &
/usr/bin/redis-benchmark -c 1 -n 100000000 -t get -q -s /run/redis.sock > /dev/null 2>&1 &
/busybox sleep 5
/samehost scan redis --observe 10s 2>&1 | /busybox sed 's/^/scan: /'
/busybox mount -t tmpfs none /sys/kernel/btf
/samehost scan redis --observe 1s 2>&1 | /busybox sed 's/^/without types: /'
/busybox poweroff -f
";

pub(super) fn counting(account: &mut Account) -> anyhow::Result<()> {
    ensure!(std::env::consts::ARCH == "x86_64", "only tried on x86_64");
    account.has_part(&COUNTING.each_ref().map(|(name, ..)| *name))?;
    need(SERVER)?;
    need(NEEDED)?;
    let (tests, program) = (build_test(&["-p", "samehost-bpf", "--lib"])?, debug_program()?);
    for (name, kernel, mode, named) in &COUNTING {
        if !account.wants(name) {
            continue;
        }
        let reported = run(kernel, named, &tests, &program).with_context(|| format!("Linux {name}"))?;
        judge(account, name, mode, &reported)?;
    }
    Ok(())
}

fn run(kernel: &Kernel, named: &str, tests: &Path, program: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let image = kernel.fetch(folder.path())?;
    let (root, packed) = (folder.path().join("root"), folder.path().join("root.cpio"));
    let folders = ["proc", "sys", "dev", "tmp", "run", "modules"];
    make_root(&root, &folders, &COUNTS.replace("TESTS", named))?;
    put(tests, "tests", &root)?;
    put(program, "samehost", &root)?;
    for (path, _) in SERVER {
        put(Path::new(path), path.trim_start_matches('/'), &root)?;
    }
    for (number, module) in MODULES.iter().enumerate() {
        put_module(&folder.path().join(kernel.suite), module, &root.join(format!("modules/{number:02}")))?;
    }
    pack(&root, &packed)?;
    // One processor, on which nothing is late.
    let output = machine(&image, &packed, 512, "").args(["-smp", "1"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Keeps what was counted and what the scan said of it; checks the mode and the tests.
fn judge(account: &mut Account, name: &str, mode: &str, reported: &str) -> anyhow::Result<()> {
    let mut is_in_section = false;
    let mut replies = 0;
    let mut counted = 0;
    for line in reported.lines().map(str::trim_end) {
        if let Some((_, text)) = line.split_once("counted: ") {
            ensure!(text.contains(&format!(", {mode}: ")), "not by {mode}: {text}");
            account.tell(&format!("{name} | {text}"));
            counted += 1;
        } else if let Some(text) = line.strip_prefix("scan: ") {
            is_in_section = text == "How long requests take" || is_in_section && !text.trim().is_empty();
            if is_in_section {
                account.tell(&format!("{name} | {text}"));
                replies += usize::from(text.contains("reply after "));
            }
        } else if let Some(at) = line.find("NOT TESTED") {
            account.tell(&format!("{name} | {}", &line[at..]));
        } else if let Some(text) = line.strip_prefix("test result: ") {
            account.tell(&format!("{name} | tests: {text}"));
        } else if let Some(text) =
            line.strip_prefix("without types: ").filter(|text| text.contains("not measured"))
        {
            account.tell(&format!("{name} | without the kernel's types: {text}"));
        }
    }
    ensure!(reported.contains("test result: ok."), "a test failed:\n{reported}");
    ensure!(counted == 2 && replies == 2, "not both families were counted:\n{reported}");
    ensure!(reported.contains("no types of its own"), "nothing is said of missing types:\n{reported}");
    Ok(())
}

/// Copies a program without what is for debuggers, and the libraries that it is linked with.
fn put(program: &Path, name: &str, root: &Path) -> anyhow::Result<()> {
    let to = root.join(name);
    fs::create_dir_all(to.parent().context("it has a folder")?)?;
    succeed(Command::new("strip").arg("-o").arg(&to).arg(program))?;
    let linked = Command::new("ldd").arg(program).output().context("starting ldd")?;
    let linked = String::from_utf8_lossy(&linked.stdout);
    for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("it has a folder")?)?;
        fs::copy(library, to)?;
    }
    Ok(())
}

/// Copies a module of the kernel, unpacked, if it is one there.
fn put_module(unpacked: &Path, name: &str, to: &Path) -> anyhow::Result<()> {
    let find = format!("find \"$1\" -name '{name}.ko*' | head -n 1");
    let found = text(Command::new("sh").args(["-c", &find, "sh"]).arg(unpacked))?;
    let found = Path::new(found.trim());
    if found.as_os_str().is_empty() {
        return Ok(());
    }
    if found.extension().is_some_and(|ending| ending == "xz") {
        let output = Command::new("xz").arg("-dc").arg(found).output().context("starting xz")?;
        fs::write(to, output.stdout)?;
    } else {
        fs::copy(found, to).with_context(|| name.to_owned())?;
    }
    Ok(())
}

const TRIAL: &str = include_str!("sandbox/trial.sh");
/// What the unit forbids, tried one by one.
const PROBE: &str = include_str!("sandbox/probe.pl");
const WITH: &str = "systemd,systemd-sysv,prometheus-node-exporter";
const SERVICE: &str = "[Service]\nType=oneshot\nExecStart=/bin/bash /trial.sh\nStandardOutput=tty\nStandardError=tty\n\
                       TTYPath=/dev/ttyS0\n[Install]\nWantedBy=multi-user.target\n";

fn sandbox(account: &mut Account, program: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        account.tell("unit | only tried on x86_64");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", &format!("--include={WITH}"), "bookworm"]);
    succeed(make.arg(&root))?;
    let package = crate::package::quick_deb(program, folder.path())?;
    fs::copy(package, root.join("samehost.deb"))?;
    succeed(Command::new("chroot").arg(&root).args(["dpkg", "--install", "/samehost.deb"]))?;
    for (name, text) in [
        ("trial.sh", TRIAL),
        ("probe.pl", PROBE),
        ("metrics.conf", &drop_in()?),
        ("etc/systemd/system/trial.service", SERVICE),
    ] {
        fs::write(root.join(name), text)?;
    }
    succeed(Command::new("systemctl").arg("--root").arg(&root).args(["enable", "trial.service"]))?;
    score(account, &root)?;
    // The root directory is unpacked into memory.
    for dropped in ["samehost.deb", "var/lib/apt/lists", "var/cache", "usr/share/doc", "usr/share/locale"] {
        succeed(Command::new("rm").arg("-rf").arg(root.join(dropped)))?;
    }
    fs::create_dir_all(root.join("var/cache"))?;
    let archive = folder.path().join("root.cpio");
    pack(&root, &archive)?;
    let image = DEBIAN_12.fetch(folder.path())?;
    let words = "rdinit=/lib/systemd/systemd systemd.unit=trial.service";
    let output = machine(&image, &archive, 3072, words).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut last = "";
    let mut is_right = true;
    for line in text.lines() {
        let Some((_, found)) = line.split_once("held: ") else { continue };
        last = found.trim();
        is_right &= !last.contains("WRONG");
        account.tell(&format!("unit | {last}"));
    }
    ensure!(is_right && last == "the end", "{text}");
    Ok(())
}

/// What `systemd-analyze security` says of the unit in all, in its last line.
fn score(account: &mut Account, root: &Path) -> anyhow::Result<()> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(format!("--root={}", root.display()));
    let analysis = text(analyze.arg("samehost-scan.service"))?;
    let last = analysis.lines().rfind(|line| line.contains("exposure level")).context("no score")?;
    let words: Vec<&str> = last.split_whitespace().filter(|word| word.is_ascii()).collect();
    account.tell(&format!("unit | systemd-analyze security --offline: {}", words.join(" ")));
    Ok(())
}

fn drop_in() -> anyhow::Result<String> {
    let text = fs::read_to_string(crate::root().join("docs/metrics.md"))?;
    let block = text.split("```ini\n").find(|block| block.contains("ExecStart=")).context("no drop-in")?;
    Ok(block.split("```").next().unwrap_or_default().to_owned())
}

// Packages of the static program: in fresh roots of Debian, in a root of rpm, in podman, and what lintian says of them. Longer
// than a test may take.

const NEEDED_FOR_TESTS: &[(&str, &str)] = &[
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/bin/podman", "podman"),
    ("/usr/bin/crun", "crun"),
    ("/usr/bin/lintian", "lintian"),
    ("/usr/bin/rpm", "rpm"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/cpio", "cpio"),
];

const PACKAGE_TESTS: &str = "tests";
const UNIT: &str = "unit";

pub(super) fn packages(account: &mut Account) -> anyhow::Result<()> {
    need(NEEDED_FOR_TESTS)?;
    let program = crate::dist::program(None)?;
    account.has_part(&[PACKAGE_TESTS, UNIT])?;
    if account.wants(PACKAGE_TESTS) {
        // Those that are too long for `cargo xtask test` too.
        let mut test =
            cargo_command(&["test", "--all-features", "--locked", "-p", "xtask", "package::tests"]);
        test.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]);
        test.env("SAMEHOST_BINARY", &program);
        keep_findings(account, test, |line| {
            Some(format!("{PACKAGE_TESTS} | {}", line.split_once("held: ")?.1))
        })?;
    }
    if account.wants(UNIT) {
        sandbox(account, &program)?;
    }
    Ok(())
}
