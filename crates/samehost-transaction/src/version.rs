//! A file's content by its hash, what is at a path now, and the names of prepared versions beside the files that they
//! replace. Reads only.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a content, in hexadecimal: by it a version of a file is known.
///
/// After a crash the journal says what was planned, not what is in the file. Trusting it alone was
/// rejected, because that would overwrite what somebody edited meanwhile. A file that is none of the
/// switch's versions is someone else's work and is left alone. So the journal holds hashes and never
/// content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(String);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            // Writing into a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Digest(text)
    }

    /// 64 hexadecimal digits, usable as a file name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is a hash, and not a path that somebody put into a journal.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Whether a file is the same in the same state, which every write, rename over it, or change of its metadata changes.
fn is_unchanged(before: &Stat, now: &Stat) -> bool {
    (before.st_dev, before.st_ino, before.st_size) == (now.st_dev, now.st_ino, now.st_size)
        && (before.st_mtime, before.st_mtime_nsec) == (now.st_mtime, now.st_mtime_nsec)
        && (before.st_ctime, before.st_ctime_nsec) == (now.st_ctime, now.st_ctime_nsec)
}

#[derive(Debug)]
pub(crate) enum Found {
    Absent,
    /// A regular file, opened and read.
    Regular(Box<Regular>),
    /// Something other than a regular file, in words with an article.
    Other(&'static str),
}

#[derive(Debug)]
pub(crate) struct Regular {
    pub(crate) file: OwnedFd,
    /// The state before it was read, because reading may change the time of access.
    pub(crate) stat: Stat,
    pub(crate) digest: Digest,
    pub(crate) content: Vec<u8>,
}

impl Found {
    /// What is under a name in a directory. Links are not followed, and a pipe or a device that took the file's place
    /// meanwhile does not hold the open up (`O_NONBLOCK`). The time of access stays where the kernel allows that.
    pub(crate) fn at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Found::Absent),
            other => other?,
        };
        if let Some(kind) = no_regular_file(&stat) {
            return Ok(Found::Other(kind));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
            other => other,
        };
        let file = match file {
            Err(Errno::NOENT) => return Ok(Found::Absent),
            Err(Errno::LOOP) => return Ok(Found::Other("a symbolic link")),
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        if let Some(kind) = no_regular_file(&stat) {
            return Ok(Found::Other(kind));
        }
        let mut content = Vec::new();
        let mut file = File::from(file);
        file.read_to_end(&mut content)?;
        let digest = Digest::of(&content);
        Ok(Found::Regular(Box::new(Regular { file: file.into(), stat, digest, content })))
    }

    /// Whether it is this version; `None` means "missing".
    pub(crate) fn is(&self, version: Option<&Digest>) -> bool {
        match (self, version) {
            (Found::Absent, None) => true,
            (Found::Regular(regular), Some(digest)) => regular.digest == *digest,
            _ => false,
        }
    }

    /// Whether the name still leads to the same inode with the same size and times as when it was looked at.
    pub(crate) fn still(&self, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
        match (self, statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
            (Found::Absent, Err(Errno::NOENT)) => Ok(true),
            (Found::Regular(regular), Ok(now)) => Ok(is_unchanged(&regular.stat, &now)),
            (_, Err(Errno::NOENT) | Ok(_)) => Ok(false),
            (_, Err(error)) => Err(error.into()),
        }
    }
}

fn no_regular_file(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    }
}

/// What the name of a prepared file has after the dot and the file's own name, before id, token and
/// number. Servers include `*.conf`, read whole directories by extension, and deliver what is in a web
/// root. The leading dot hides the file from the first, its end from `!includedir`, and the token has 64
/// random bits: with a name that can be guessed a web server would hand out a configuration with its
/// password. Root sees by the name that a user's switch is at work.
const MARK: &str = ".samehost-";
const ID: usize = "20261121-104455-abcd".len();
/// The longest name that a file may have, in bytes (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Prefix of the names of all prepared versions of a file, cut so that the whole name is not too long.
pub(crate) fn prepared_prefix(name: &str) -> String {
    // Id, token of 16 letters, number of the step, a letter, and the separators.
    let room = LONGEST_NAME - MARK.len() - ID - 16 - 12;
    let mut end = name.len().min(room);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}{MARK}", &name[..end])
}

/// Id of the switch that prepared a file of this name; `None` for any other file.
pub(crate) fn id_of_prepared(name: &OsStr) -> Option<String> {
    let (_, end) = name.to_str()?.rsplit_once(MARK)?;
    let is_ours = end.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_ours {
        return None;
    }
    end.get(..ID).map(str::to_owned)
}
