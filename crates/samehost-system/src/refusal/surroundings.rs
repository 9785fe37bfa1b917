//! What the kernel says of this process and its surroundings, by which it decides. System calls come before files of `/proc`,
//! which may be what is missing.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{PROC_SUPER_MAGIC, statfs};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, SecureComputingMode, capabilities, secure_computing_mode};

use crate::open::proc_file;

/// Inodes of the initial PID and user namespaces (`PROC_PID_INIT_INO`, `PROC_USER_INIT_INO`).
pub(crate) const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
const FIRST_USER_NAMESPACE: u64 = 0xefff_fffd;
/// Most bytes read of a table of mounts.
const LONGEST: u64 = 16 << 20;
/// What Linux 5.8 took out of CAP_SYS_ADMIN, which is still enough.
pub(super) const PARTS: u64 = CapabilitySet::PERFMON.union(CapabilitySet::BPF).bits();

/// How `/proc` is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    Not,
    /// This process is not in the PID namespace that it shows.
    Foreign,
    /// With this option, processes of others are hidden from those without CAP_SYS_PTRACE.
    Hiding(String),
    Whole,
}

#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Its effective user id is 0, in whatever user namespace.
    pub(super) is_root: bool,
    /// The effective ones.
    pub(super) capabilities: u64,
    pub(super) is_in_user_namespace: bool,
    pub(super) is_in_pid_namespace: bool,
    pub(super) has_filter: bool,
    /// The mode that forbids to read the kernel's memory.
    pub(super) lockdown: Option<String>,
    pub(super) kernel: (u32, u32),
    pub(super) release: String,
    pub(super) proc: Mounted,
}

impl Surroundings {
    pub(super) fn read() -> Self {
        let release = uname().release().to_string_lossy().into_owned();
        Surroundings {
            is_root: rustix::process::geteuid().is_root(),
            capabilities: capabilities(None).map_or(0, |sets| sets.effective.bits()),
            is_in_user_namespace: is_other("user", FIRST_USER_NAMESPACE),
            is_in_pid_namespace: is_other("pid", FIRST_PID_NAMESPACE),
            has_filter: secure_computing_mode().is_ok_and(|mode| mode == SecureComputingMode::Filter),
            lockdown: lockdown(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default()),
            kernel: version(&release),
            release,
            proc: mounted(),
        }
    }

    pub(super) fn has(&self, capabilities: u64) -> bool {
        const ADMIN: u64 = CapabilitySet::SYS_ADMIN.bits();
        let has_all = self.capabilities & capabilities == capabilities;
        has_all || capabilities & !PARTS == 0 && self.capabilities & ADMIN != 0
    }
}

/// Whether a namespace of this process is another one than the first; false where `/proc` does not tell.
fn is_other(kind: &str, first: u64) -> bool {
    fs::metadata(format!("/proc/self/ns/{kind}")).is_ok_and(|own| own.ino() != first)
}

/// Whether `/proc` is a procfs: an empty directory can be opened as well.
pub(crate) fn is_proc() -> bool {
    statfs("/proc").is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
}

/// Whether `/proc` shows the PID namespace of this process, or one around it.
pub(crate) fn is_own_proc() -> bool {
    fs::read_link("/proc/self").is_ok()
}

fn mounted() -> Mounted {
    if !is_proc() {
        return Mounted::Not;
    }
    if !is_own_proc() {
        return Mounted::Foreign;
    }
    let table = proc_file("/proc/self/mountinfo", LONGEST).unwrap_or_default();
    match hiding(&String::from_utf8_lossy(&table)) {
        Some(option) => Mounted::Hiding(option),
        None => Mounted::Whole,
    }
}

/// The option of the mount at `/proc` that hides processes. The last mount there is the one that is seen.
fn hiding(mountinfo: &str) -> Option<String> {
    let mut lines = mountinfo.lines().rev();
    let line = lines.find(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let options = line.split_once(" - ")?.1.split(' ').nth(2)?;
    let mut hiding = options.split(',').filter(|option| {
        let level = option.strip_prefix("hidepid=");
        level.is_some_and(|level| !matches!(level, "0" | "off"))
    });
    hiding.next().map(str::to_owned)
}

/// The mode of lockdown(7) that forbids to read the kernel's memory: `none integrity [confidentiality]`.
fn lockdown(modes: &str) -> Option<String> {
    modes.contains("[confidentiality]").then(|| "confidentiality".to_owned())
}

/// The version and patch level of a release: `6.1.0-18-amd64`.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_hides_is_found_at_the_last_mount_of_proc() {
        fn of(options: &str) -> Option<String> {
            hiding(&format!(
                "22 1 0:21 / /proc rw - proc proc rw,hidepid=2\n23 1 0:22 / /proc/x rw - proc p rw,hidepid=1\n24 22 0:23 / /proc rw,nosuid - proc proc {options}\n"
            ))
        }
        assert_eq!(of("rw,hidepid=invisible"), Some("hidepid=invisible".to_owned()));
        assert_eq!(of("rw,gid=5,hidepid=2"), Some("hidepid=2".to_owned()));
        assert_eq!(
            [of("rw"), of("rw,hidepid=0"), of("rw,hidepid=off"), hiding("")],
            [None, None, None, None]
        );
    }

    #[test]
    fn versions_and_modes_are_read() {
        assert_eq!([version("6.1.0-18-amd64"), version("5.4"), version("")], [(6, 1), (5, 4), (0, 0)]);
        assert_eq!(lockdown("none [integrity] confidentiality\n"), None);
        assert!(lockdown("none integrity [confidentiality]\n").is_some());
    }

    #[test]
    fn this_process_is_read() {
        let around = Surroundings::read();
        assert!(around.kernel > (4, 0) && around.proc != Mounted::Not);
    }
}
