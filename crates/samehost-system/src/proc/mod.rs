//! Facts about processes from /proc. This file, `descriptors` and `cgroup` read; the other files parse bytes.

pub mod cgroup;
pub mod descriptors;
pub mod net_table;
pub mod status;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fd::AsFd;
use samehost_model::Redactor;
use samehost_model::scan::{Process, text_of_bytes};

use crate::accounts::Names;
use crate::open::proc_file;

/// Most bytes read of a file whose length the process controls.
const LONGEST: u64 = 64 << 10;

/// Pids of all processes, ascending; none if /proc cannot be read.
#[must_use]
pub fn pids() -> Vec<u32> {
    descriptors::proc().and_then(|proc| descriptors::pids(proc.as_fd())).unwrap_or_default()
}

/// The pid of this program in the PID namespace that `/proc` shows, which may be one around its own.
#[must_use]
pub fn own_pid() -> Option<u32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// This program and the processes that started it, one after the other, up to the first process.
#[must_use]
pub fn own_ancestry() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut at = own_pid().unwrap_or_default();
    while at > 1 && found.insert(at) {
        let Some(status) = status::read(at) else { break };
        at = status.parent;
    }
    found
}

/// A program's file by the link beside it that has the process' name: Debian's redis-server is a link to redis-check-rdb.
/// The kernel names what a link leads to; whoever may write that directory decides what the program is anyway.
fn by_its_link(program: PathBuf, name: &str) -> PathBuf {
    let file = program.file_name().unwrap_or_default().as_bytes();
    if name.contains('/') || file.starts_with(name.as_bytes()) || name.as_bytes().starts_with(file) {
        return program;
    }
    let link = program.with_file_name(name);
    if fs::canonicalize(&link).is_ok_and(|leads_to| leads_to == program) { link } else { program }
}

/// Everything that we can see of a process; `None` if it has ended. What is not visible to us is `None` or empty. Secrets in
/// the command line are redacted.
pub fn process(pid: u32, users: &Names) -> Option<Process> {
    let name = proc_file(&format!("/proc/{pid}/comm"), LONGEST).ok()?;
    let status = status::read(pid)?;
    let (unit, container) = cgroup::parse(&text(pid, "cgroup"));
    let name = text_of_bytes(name.strip_suffix(b"\n").unwrap_or(&name));
    let executable = match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => Some(text_of_bytes(by_its_link(path, &name).as_os_str().as_bytes())),
        Err(_) => None,
    };
    Some(Process {
        pid,
        parent: status.parent,
        name,
        uid: status.uid,
        user: users.name(status.uid).map(str::to_owned),
        executable,
        command_line: parse_command_line(&text(pid, "cmdline")),
        unit,
        container,
        network_namespace: namespace(pid, "net"),
        mount_namespace: namespace(pid, "mnt"),
    })
}

/// The name of a process, as the kernel has it; empty if it has ended.
#[must_use]
pub fn name(pid: u32) -> String {
    String::from_utf8_lossy(&text(pid, "comm")).trim().to_owned()
}

/// The command line of a process, each word ended by a zero byte, or the title that it wrote there; empty if it has ended.
/// May have secrets.
#[must_use]
pub fn command_line(pid: u32) -> Vec<u8> {
    text(pid, "cmdline")
}

fn text(pid: u32, name: &str) -> Vec<u8> {
    proc_file(&format!("/proc/{pid}/{name}"), LONGEST).unwrap_or_default()
}

/// Inode of a namespace of a process (`mnt`, `net`), or of `self` or `thread-self`; `None` if it is not visible to us.
pub(crate) fn namespace(pid: impl Display, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?.ino())
}

/// The container of a process by its control group; `None` if it is in none, or has ended.
#[must_use]
pub fn container_of(pid: u32) -> Option<samehost_model::scan::Container> {
    let (_, container) = cgroup::parse(&text(pid, "cgroup"));
    container
}

/// The unit (`mariadb.service`) or the container of a process, as [`cgroup::names`] calls it.
#[must_use]
pub fn unit_or_container(pid: u32) -> Option<String> {
    cgroup::of_text(&text(pid, "cgroup"))
}

/// Runs every parser of a process's files on these bytes.
#[cfg(test)]
pub fn fuzzed(bytes: &[u8]) {
    let words = parse_command_line(bytes);
    assert!(words.len() <= bytes.len() + 1);
    let _ = (cgroup::parse(bytes), status::Stat::parse(bytes));
    let _ = descriptors::inode_of(bytes);
}

const MOST_WORDS: usize = 64;

/// The arguments in `/proc/PID/cmdline`, redacted.
pub(crate) fn parse_command_line(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    Redactor::default().words(bytes.split(|byte| *byte == 0).take(MOST_WORDS).map(text_of_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_process_can_be_seen() {
        let process = process(std::process::id(), &Names::of_users()).unwrap();
        assert_eq!(process.uid, rustix::process::geteuid().as_raw());
        assert!(process.mount_namespace.is_some());
        assert!(process.executable.unwrap().contains("samehost_system"));
        assert!(super::process(u32::MAX, &Names::default()).is_none());
    }

    #[test]
    fn a_program_has_the_name_of_the_link_by_which_it_was_started() {
        // As Debian's redis-server, which is a link to redis-check-rdb.
        let directory = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(directory.path()).unwrap();
        fs::copy("/bin/sleep", place.join("checker")).unwrap();
        std::os::unix::fs::symlink("checker", place.join("server")).unwrap();
        for name in ["server", "checker"] {
            let mut child = std::process::Command::new(place.join(name)).arg("60").spawn().unwrap();
            let seen = process(child.id(), &Names::default()).unwrap().executable;
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(seen.as_deref(), place.join(name).to_str());
        }
        assert_eq!(by_its_link(place.join("checker"), "nginx"), place.join("checker"));
    }

    fn shown(line: &str) -> String {
        parse_command_line(line.replace(' ', "\0").as_bytes()).join(" ")
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        assert_eq!(
            shown("redis-server --requirepass hunter2 --port 1"),
            "redis-server --requirepass *** --port 1"
        );
        assert_eq!(shown("app mysql://bob:hunter2@h/db /a/b"), "app mysql://bob:***@h/db /a/b");
        assert!(parse_command_line(b"").is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse_command_line(&bytes).len() <= MOST_WORDS);
        }
    }
}
