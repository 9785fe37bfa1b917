//! What a process may read, and where it works, as the kernel says it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use samehost_system::identity::is_shared_with;
use samehost_system::proc::status::{self, Status};
use samehost_system::{Account, as_user, open, ownership};

/// An account without any group, for files that everyone may read.
const ANYONE: u32 = 65_534;

/// Whether a process' working directory is this directory, by its real path, or below it.
pub(super) fn works_in(pid: u32, folder: &Path) -> bool {
    match std::fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(directory) => directory.starts_with(folder),
        Err(_) => false,
    }
}

pub(super) fn may_anyone_read(file: &Path) -> bool {
    can_open(&Account { uid: ANYONE, gid: ANYONE, groups: Vec::new() }, file)
}

pub(super) fn may_read(pid: u32, status: &Status, file: &Path) -> bool {
    let account = Account { uid: status.uid, gid: status.gid, groups: status.groups.clone() };
    if can_open(&account, file) {
        return true;
    }
    // With another root directory the path leads elsewhere, so the file's own permissions decide.
    let has_own_root = ownership::root_of(Some(pid)) != Path::new("/");
    match std::fs::metadata(file) {
        Ok(found) if has_own_root => status.may(4, found.mode(), found.uid(), found.gid()),
        _ => false,
    }
}

/// How much of a memory map is read, in bytes.
const MOST_MAPS: u64 = 4 << 20;

/// The files whose code is mapped into a process: data that it reads says nothing of whose it is.
pub(super) fn executed(pid: u32) -> Vec<PathBuf> {
    let maps = open::proc_file(&format!("/proc/{pid}/maps"), MOST_MAPS).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let is_code = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'));
    let code = maps.lines().filter(is_code);
    code.filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))).collect()
}

/// Whether a process that has our view of the files may not connect to a socket at a path, as the kernel says.
pub(crate) fn is_shut_out(pid: u32, socket: &Path) -> bool {
    let shares_files = is_shared_with(pid, "root") && is_shared_with(pid, "ns/mnt");
    let Some(account) = status::read(pid).map(Status::account).filter(|_| shares_files) else {
        return false;
    };
    let ask = || accessat(CWD, socket, Access::WRITE_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
    as_user(&account, ask).unwrap_or(false)
}

pub(super) fn can_open(account: &Account, file: &Path) -> bool {
    as_user(account, || open::regular(file).is_ok()).unwrap_or(false)
}
