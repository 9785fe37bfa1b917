//! Decides whether a process may be taken for the client of a configuration. Its name is its own claim; its user, its
//! program and its namespaces come from the kernel. Processes that could not read the configuration are not used, so
//! that another customer's process neither learns its content nor influences the result.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_model::scan::Process;
use samehost_system::identity::is_of_the_system;
use samehost_system::proc::status::{self, Status};
use samehost_system::{Account, Executable, as_user, open, ownership};

use crate::configuration::server_files::hands_over;

/// Who has to be able to read the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The process.
    Itself,
    /// The process, or the one that started it and passes the content on: a master to its workers, the system manager
    /// to its units.
    OrItsMaster,
}

/// An account without any group, for files that everyone may read.
const ANYONE: u32 = 65_534;

/// Reason not to take a process for a client; `None` if it may be one. With an account: for a process that it will
/// start as that user.
pub(super) fn unfit(
    process: &Process,
    will_be: Option<&Account>,
    file: &Path,
    reader: Reader,
) -> Option<String> {
    let Some(mut status) = status::read(process.pid) else { return Some("it has ended".into()) };
    if let Some(account) = will_be {
        let Account { uid, gid, groups } = account.clone();
        status = Status { uid, gid, groups, capabilities: 0, ..status };
    }
    let of_container = process.container.as_ref().is_some_and(|container| !container.foreign);
    // Without root, no other user's view can be taken.
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    if !is_of_the_system(process.pid) {
        return Some("an ordinary user made its namespaces, and what it sees in there".into());
    }
    if !may_read(process.pid, &status, file) {
        let is_handed = reader == Reader::OrItsMaster
            && (process.unit.is_some() || status::read(process.parent).is_some_and(|master| master.uid == 0));
        if !is_handed && !process.unit.as_deref().is_some_and(|unit| hands_over(unit, file)) {
            return Some(format!("its user may not read {}", file.display()));
        }
    }
    // In a container of the system, and where it is not visible, the executable is not judged.
    let program = Executable::of(process.pid).filter(|_| !of_container)?;
    let owner = std::fs::metadata(file).map_or(0, |found| found.uid());
    // A user's own program is acceptable for a file that was given to that user; a file for everyone was given to
    // nobody.
    let is_own = program.owner == status.uid && (owner == status.uid || !may_anyone_read(file));
    if (program.owner == 0 || program.owner == owner || is_own) && program.mode & 0o002 == 0 {
        return None;
    }
    let path = program.path.display();
    Some(format!(
        "its program {path} belongs to user {}, and anyone may read {}",
        program.owner,
        file.display()
    ))
}

fn may_anyone_read(file: &Path) -> bool {
    can_open(&Account { uid: ANYONE, gid: ANYONE, groups: Vec::new() }, file)
}

fn may_read(pid: u32, status: &Status, file: &Path) -> bool {
    let account = Account { uid: status.uid, gid: status.gid, groups: status.groups.clone() };
    if can_open(&account, file) {
        return true;
    }
    // With another root directory the path leads elsewhere, so the file's own permissions decide.
    let has_own_root = ownership::root_of(Some(pid)) != Path::new("/");
    let found = std::fs::metadata(file);
    has_own_root && found.is_ok_and(|found| status.may(4, found.mode(), found.uid(), found.gid()))
}

fn can_open(account: &Account, file: &Path) -> bool {
    as_user(account, || open::regular(file).is_ok()).unwrap_or(false)
}
