//! Passwords in this process: the files that they are read from, and those that were sent to servers, from whatever source (a
//! URL, a file, a prompt).
//!
//! Code that shows a server's messages redacts what was sent, since a server may repeat what it received. A process with
//! passwords writes no core dump, and no other process of its user may read its memory. A file is read only where it is a
//! regular one of limited length, and its permissions are those of the file that was opened.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Once, RwLock};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use samehost_model::Secret;
use samehost_system::open;

/// Reason to refuse a password file that other users may read.
pub const OPEN: &str = "it holds a password and others than its owner may read it; chmod 600 it";

static HELD: RwLock<Vec<Secret>> = RwLock::new(Vec::new());

/// All passwords that a login of this process has sent so far, wherever they came from.
/// A server may repeat the password that it was given, in its version or in an error, and that went into
/// JSON, HTML and stored results. Masking only passwords of the command line was rejected: one from an
/// option file or a prompt was not known (docs/decisions/0067).
#[must_use]
pub fn sent_passwords() -> Vec<Secret> {
    HELD.read().map(|all| all.clone()).unwrap_or_default()
}

/// Remembers a password.
pub(crate) fn hold(password: &str) {
    let is_known = HELD.read().is_ok_and(|all| all.iter().any(|one| one.reveal() == password));
    if !is_known && let Ok(mut all) = HELD.write() {
        all.push(Secret::new(password));
    }
}

/// Protects this process from here on; only the first call has an effect. If the kernel refuses, nothing else
/// can be done.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    });
}

/// Longest password file.
const LONGEST: u64 = 1 << 20;

/// Permission bits and text of the file.
pub(crate) fn read(path: &Path) -> io::Result<(u32, String)> {
    text_of(open::regular(path)?)
}

/// The same of a file as a process sees it, which has to be its user's own: nobody else's is read for it.
pub(crate) fn read_of_process(pid: u32, uid: u32, path: &Path) -> io::Result<(u32, String)> {
    let file = open::regular_in_root(pid, path)?;
    if file.metadata()?.uid() != uid {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
    }
    text_of(file)
}

fn text_of(file: File) -> io::Result<(u32, String)> {
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((mode, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_known_once() {
        for password in ["of-this-test", "of-this-test"] {
            hold(password);
        }
        assert_eq!(sent_passwords().iter().filter(|one| one.reveal() == "of-this-test").count(), 1);
    }

    #[test]
    fn no_memory_image_is_left() {
        guard();
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
