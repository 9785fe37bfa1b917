//! The disk as editors read it: bounded, and with the permissions of whoever controls the files' content.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::geteuid;
use samehost_edit::Files;
use samehost_system::open::{self, Budget};
use samehost_system::ownership::Who;
use samehost_system::{User, as_user, decider};

/// Maximum number of directory entries in one reading.
///
/// A configuration may include any path: `/dev/zero`, a pipe, a sparse file of a terabyte, or a directory
/// of millions. So only regular files are read, at most 16 MB each, and 64 MB, [`MOST_FILES`] files and
/// this many entries for one reading. What is refused is named, and nothing hangs (docs/decisions/0076).
const MOST_NAMES: usize = 100_000;
/// Maximum number of files in one reading, because files can include each other without end.
const MOST_FILES: usize = 20_000;

/// The disk, for one reading. Each file is a regular one of bounded length, and so is their sum. What somebody else
/// than root controls is read with their permissions ([`Disk::of`]).
#[derive(Debug, Default)]
pub struct Disk {
    budget: Budget,
    listed: AtomicUsize,
    opened: AtomicUsize,
    follows: bool,
    /// User whose permissions are used instead of the controlling user's.
    reader: Option<User>,
    read_as: OnceLock<ReadAs>,
}

#[derive(Debug)]
struct ReadAs {
    user: User,
    /// The file or directory that gives them control.
    because: PathBuf,
    /// The file that was examined, by device and inode. It is read only while it is the same one.
    main: Option<(PathBuf, (u64, u64))>,
    /// For root's file in a directory of theirs: the group that root allows to read it.
    granted: Option<u32>,
}

/// Who controls the rest of a reading after somebody else than root wrote a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A program of that user reads the files; no more is read for it than it may read.
    Application,
    /// A server started by root reads them, and whatever root's own file includes.
    RootsServer,
}

impl Disk {
    /// The disk as those see it who control this file. A file of root alone is read as root. Any other controlling user
    /// could have it name a file of somebody else, to read it with root's permissions. Therefore it, and all that it
    /// includes, is read with that user's permissions, or with `reader`'s if the application is known to run as that.
    #[must_use]
    pub fn of(file: &Path, reads: Reads, reader: Option<&User>) -> Self {
        let mut disk =
            Disk { follows: reads == Reads::Application, reader: reader.cloned(), ..Disk::default() };
        // What could not be judged now is judged when it is read.
        disk.follows |= disk.look(file, true).is_err();
        disk
    }

    /// User with whose permissions it reads; `None`: this program's.
    #[must_use]
    pub fn user(&self) -> Option<&User> {
        self.read_as.get().map(|read_as| &read_as.user)
    }

    /// Looks whose file it is, where files are read as their owners may. What cannot be looked at cannot be opened
    /// either, and that error is reported.
    fn look_if_followed(&self, path: &Path) {
        if self.follows {
            let _ = self.look(path, false);
        }
    }

    /// Finds who controls a file, unless a controlling user is known already.
    fn look(&self, file: &Path, is_main: bool) -> io::Result<()> {
        if !geteuid().is_root() || self.read_as.get().is_some() {
            return Ok(());
        }
        let Some(decider) = decider(file)? else { return Ok(()) };
        let user = match (&self.reader, decider.who) {
            (Some(reader), _) => reader.clone(),
            (None, Who::User(uid)) => User::of(uid),
            (None, Who::Group(gid)) => User::of_group(gid),
            (None, Who::Everyone) => User::anyone(),
        };
        let (mut main, mut granted) = (None, None);
        if is_main {
            main = Some((file.to_owned(), decider.file));
            granted = decider.group_of_roots_file;
        }
        let _ = self.read_as.set(ReadAs { user, because: decider.path, main, granted });
        Ok(())
    }

    /// Reads a file, which has to be the one that was judged by its owners.
    fn open(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = open::regular(path)?;
        if let Some(ReadAs { main: Some((main, judged)), .. }) = self.read_as.get() {
            let opened = file.metadata()?;
            if main == path && *judged != (opened.dev(), opened.ino()) {
                return Err(io::Error::other("it was replaced while it was looked at; try again"));
            }
        }
        self.budget.read_opened(&file)
    }

    /// Does something with the permissions that apply. Root's own file in a directory of somebody else may be readable
    /// for a group alone: where the user is denied, it is tried once more as that group.
    fn seen<T: Send>(&self, path: &Path, work: impl Fn() -> io::Result<T> + Sync + Send) -> io::Result<T> {
        let Some(read_as) = self.read_as.get() else { return work() };
        let mut found = as_user(&read_as.user.account, &work)?;
        if matches!(&found, Err(error) if is_denied(error))
            && let Some(group) = read_as.granted
            && read_as.is_main(path)
        {
            found = as_user(&User::of_group(group).account, &work)?;
        }
        found.map_err(|error| if is_denied(&error) { read_as.denied() } else { error })
    }
}

impl ReadAs {
    fn is_main(&self, path: &Path) -> bool {
        matches!(&self.main, Some((main, _)) if main == path)
    }

    fn denied(&self) -> io::Error {
        let (user, because) = (&self.user, self.because.display());
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{user} may not read it; {because} is not root's alone, so nothing is read with root's permissions because of it. Give {user} the permission, or name the user that the application runs as: samehost switch --user NAME"
            ),
        )
    }
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn one_more(count: &AtomicUsize, most: usize, what: &str) -> io::Result<()> {
    if count.fetch_add(1, Ordering::Relaxed) < most {
        return Ok(());
    }
    let text = format!("more than {most} {what}, too many for a configuration");
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        one_more(&self.opened, MOST_FILES, "files")?;
        self.look_if_followed(path);
        let was_root = self.read_as.get().is_none();
        let found = self.seen(path, || self.open(path));
        if was_root {
            // Somebody may have put the file, or a link, there in between.
            self.look_if_followed(path);
            if self.read_as.get().is_some() {
                return self.seen(path, || self.open(path));
            }
        }
        found
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        self.seen(directory, || {
            let mut entries = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                one_more(&self.listed, MOST_NAMES, "names in directories")?;
                entries.push(entry?.path());
            }
            entries.sort();
            Ok(entries)
        })
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.seen(path, || std::fs::canonicalize(path)).unwrap_or_else(|_| path.to_owned())
    }

    fn exists(&self, path: &Path) -> bool {
        self.seen(path, || path.try_exists()).unwrap_or(false)
    }
}
