//! Emulated machines, in which the kernels of Debian 11, 12 and 13 count exchanges, each with other programs of samehost-bpf.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::scripts::build_test;
use super::{Account, need};
use crate::debug_program;
use crate::fetched::Apt;
use crate::process::{find_program, succeed, text};

/// Depends on the package of the newest kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";
const NEEDED: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("cpio", "cpio")];

/// Downloads the newest kernel for virtual machines of a suite of Debian, unpacks it below a folder, and returns its file.
fn fetch(suite: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (packages, unpacked) = (folder.join(suite), folder.join(suite).join("kernel"));
    let apt = Apt::new(&packages, suite)?;
    let depends = text(apt.command("apt-cache").args(["depends", PACKAGE]))?;
    let newest = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let newest = newest.with_context(|| format!("{PACKAGE} of {suite}: {depends}"))?;
    succeed(apt.command("apt-get").args(["download", newest]))?;
    let package = crate::names(&packages)?.into_iter().find(|name| name.ends_with(".deb"));
    let package = packages.join(package.context("apt downloaded no package")?);
    succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
    Ok(unpacked.join("boot").join(newest.replace("linux-image", "vmlinuz")))
}

/// An emulated machine with a root directory in memory, and one processor, on which nothing is late.
fn machine(image: &Path, archive: &Path) -> Command {
    let mut machine = Command::new("timeout");
    machine.args(["600", "qemu-system-x86_64", "-accel", "tcg", "-smp", "1", "-nographic", "-no-reboot"]);
    machine.args(["-m", "512", "-append", "console=ttyS0 quiet panic=-1"]);
    machine.arg("-kernel").arg(image).arg("-initrd").arg(archive).stdin(Stdio::null());
    machine
}

/// Begins the root directory of a machine: with folders, busybox, and the script that is its first process.
fn make_root(root: &Path, init: &str) -> anyhow::Result<()> {
    for name in ["proc", "sys", "dev", "tmp", "run", "modules"] {
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

/// Kernels that are to count 3,000 exchanges over each family, each with other programs of samehost-bpf: the name for `--only`, the
/// suite of Debian, how it is to measure (a variant of `samehost_bpf::Mode`), and the tests that it is to pass.
const COUNTING: [(&str, &str, &str, &str); 3] = [
    ("5.10", "bullseye", "FunctionsByCookie", TESTS),
    ("6.1", "bookworm", "Functions", UNIX_TOO),
    ("6.12", "trixie", "Entries", ALL_TESTS),
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
    for (name, suite, mode, named) in &COUNTING {
        if !account.wants(name) {
            continue;
        }
        let reported = run(suite, named, &tests, &program).with_context(|| format!("Linux {name}"))?;
        judge(account, name, mode, &reported)?;
    }
    Ok(())
}

fn run(suite: &str, named: &str, tests: &Path, program: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let image = fetch(suite, folder.path())?;
    let (root, packed) = (folder.path().join("root"), folder.path().join("root.cpio"));
    make_root(&root, &COUNTS.replace("TESTS", named))?;
    put(tests, "tests", &root)?;
    put(program, "samehost", &root)?;
    for (path, _) in SERVER {
        put(Path::new(path), path.trim_start_matches('/'), &root)?;
    }
    for (number, module) in MODULES.iter().enumerate() {
        put_module(&folder.path().join(suite), module, &root.join(format!("modules/{number:02}")))?;
    }
    pack(&root, &packed)?;
    let output = machine(&image, &packed).output()?;
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
