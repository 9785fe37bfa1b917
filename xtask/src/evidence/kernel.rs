//! Old kernels, started in an emulated machine that has the static program and busybox: Debian 12's, and Debian 11's, which is
//! older than README promises and lacks epoll_pwait2(2).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::Account;
use crate::newest::Apt;
use crate::{servers, succeed, text};

/// The kernel for virtual machines of a suite of Debian, the newest that it has.
pub(super) struct Kernel {
    suite: &'static str,
    /// How many of the commands of `INIT` end well on it.
    good: usize,
}

pub(super) const DEBIAN_12: Kernel = Kernel { suite: "bookworm", good: 5 };
/// Debian 11's has all but the checkup.
const KERNELS: &[Kernel] = &[DEBIAN_12, Kernel { suite: "bullseye", good: 4 }];
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

/// Starts each kernel, and keeps how the program's commands ended.
pub(super) fn boot(account: &mut Account<'_>, program: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        account.tell("kernel | only tried on x86_64");
        return Ok(());
    }
    for (needed, package) in NEEDED {
        ensure!(servers::is_there(needed), "{needed} is missing: apt-get install {package}");
    }
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("root.cpio");
    pack(program, &folder.path().join("root"), &archive)?;
    for kernel in KERNELS {
        match kernel.fetch(folder.path()) {
            Ok(image) => one(account, kernel, &image, &archive)?,
            Err(error) => {
                account.tell(&format!("kernel | that of {} was not tried: {error:#}", kernel.suite));
            }
        }
    }
    Ok(())
}

impl Kernel {
    /// Downloads and unpacks its package below a folder, and returns the kernel's file.
    pub(super) fn fetch(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let (packages, unpacked) = (folder.join(self.suite), folder.join(self.suite).join("kernel"));
        let apt = Apt::new(&packages, self.suite)?;
        let depends = text(apt.command("apt-cache").args(["depends", PACKAGE]))?;
        let newest = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let newest = newest.with_context(|| format!("{PACKAGE} of {}: {depends}", self.suite))?;
        succeed(apt.command("apt-get").args(["download", newest]))?;
        let package = the_only(&packages, ".deb")?;
        succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked))?;
        Ok(unpacked.join("boot").join(newest.replace("linux-image", "vmlinuz")))
    }
}

/// The file of a folder whose name ends like that.
fn the_only(folder: &Path, end: &str) -> anyhow::Result<PathBuf> {
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut files = files.filter(|path| path.display().to_string().ends_with(end));
    files.next().with_context(|| format!("{} has no {end}", folder.display()))
}

/// An emulated machine with a root directory in memory, of which it may have so many megabytes.
pub(super) fn machine(image: &Path, archive: &Path, megabytes: u32, words: &str) -> Command {
    let mut machine = Command::new("timeout");
    machine.args(["600", "qemu-system-x86_64", "-accel", "tcg", "-smp", "2", "-nographic", "-no-reboot"]);
    machine.args(["-m", &megabytes.to_string(), "-append", &format!("console=ttyS0 quiet panic=-1 {words}")]);
    machine.arg("-kernel").arg(image).arg("-initrd").arg(archive).stdin(Stdio::null());
    machine
}

fn one(account: &mut Account<'_>, kernel: &Kernel, image: &Path, archive: &Path) -> anyhow::Result<()> {
    let output = machine(image, archive, 1024, "").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let kept: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("kept: ")).map(|(_, kept)| kept.trim()).collect();
    for line in &kept {
        account.tell(&format!("kernel | {line}"));
    }
    let good = kept.iter().filter(|line| line.contains("| status 0 |")).count();
    ensure!(good == kernel.good, "{good} commands ended well, not {}:\n{text}", kernel.good);
    Ok(())
}

/// Writes the first root directory of the machine.
fn pack(program: &Path, root: &Path, archive: &Path) -> anyhow::Result<()> {
    for name in ["proc", "tmp", "dev"] {
        fs::create_dir_all(root.join(name))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let busybox =
        std::env::split_paths(&path).map(|folder| folder.join("busybox")).find(|file| file.is_file());
    fs::copy(busybox.context("busybox")?, root.join("busybox"))?;
    fs::copy(program, root.join("samehost"))?;
    fs::write(root.join("init"), INIT)?;
    fs::set_permissions(root.join("init"), Permissions::from_mode(0o755))?;
    self::archive(root, archive)
}

/// Packs a folder as the first root directory of a machine.
pub(super) fn archive(root: &Path, archive: &Path) -> anyhow::Result<()> {
    let pack = "find . | cpio --create --format=newc --quiet";
    let status = Command::new("sh")
        .args(["-c", pack])
        .current_dir(root)
        .stdout(fs::File::create(archive)?)
        .status()?;
    ensure!(status.success(), "cpio: {status}");
    Ok(())
}
