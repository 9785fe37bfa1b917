//! Runs code with another user's file permissions, so that it cannot read what that user cannot read. A new
//! thread takes the permissions on and then ends; the calling thread never changes.

use std::io;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::process::geteuid;
use rustix::thread::set_thread_groups;

/// A user as the kernel checks file accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Runs `work` with an account's file permissions. A caller other than root keeps its own permissions.
///
/// # Errors
/// When root may not take on another user's permissions, or the thread cannot be started.
pub fn as_user<T: Send>(account: &Account, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !geteuid().is_root() || account.uid == 0 {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            become_it(account)?;
            Ok(work())
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives this thread an account's file permissions.
fn become_it(account: &Account) -> io::Result<()> {
    let groups: Vec<_> = account.groups.iter().map(|id| rustix::process::Gid::from_raw(*id)).collect();
    // Changes only this thread; the C library's setgroups would change all threads.
    set_thread_groups(&groups)?;
    let (gid, uid) = (Gid::from_raw(account.gid), Uid::from_raw(account.uid));
    setfsgid(gid);
    setfsuid(uid);
    // These calls report no failure; the second call returns what is set. Leaving root's file-system uid
    // also drops the capabilities that override permissions (capabilities(7)).
    if setfsgid(gid) != gid || setfsuid(uid) != uid {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_the_user_may_not_read_is_not_read_as_root() {
        assert!(geteuid().is_root(), "this test is about root's permissions: run it as root");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        std::os::unix::fs::chown(&path, None, Some(33)).unwrap();
        let other = Account { uid: 65534, gid: 65534, groups: Vec::new() };
        let read = || crate::open::read(&path, 10);
        assert_eq!(as_user(&other, read).unwrap().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let member = Account { groups: vec![33], ..other };
        assert_eq!(as_user(&member, read).unwrap().unwrap(), b"x");
        assert_eq!(read().unwrap(), b"x", "this thread is who it was");
        assert_eq!(as_user(&Account { uid: 0, gid: 0, groups: Vec::new() }, read).unwrap().unwrap(), b"x");
    }
}
