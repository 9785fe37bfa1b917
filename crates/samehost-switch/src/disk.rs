//! The disk as editors read it: bounded, and with the permissions of whoever decides what the files say.

use std::fs::File;
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

/// The most names in directories that one reading looks at.
const MOST_NAMES: usize = 100_000;
/// The most files that one reading opens: files can include each other without an end.
const MOST_FILES: usize = 20_000;

/// The disk, for one reading: each file is a regular one of bounded length, and so are all of them together. What somebody
/// else than root decides is read with their permissions ([`Disk::of`]).
#[derive(Debug, Default)]
pub struct Disk {
    budget: Budget,
    listed: AtomicUsize,
    opened: AtomicUsize,
    follows: bool,
    /// Whose permissions count in place of the decider's.
    reader: Option<User>,
    eyes: OnceLock<Eyes>,
}

/// Somebody with whose permissions files are read.
#[derive(Debug)]
struct Eyes {
    user: User,
    /// What gives them the say over what is read.
    because: PathBuf,
    /// The file that was looked at, by device and inode: it is read as long as it is that one.
    main: Option<(PathBuf, (u64, u64))>,
    /// Where it is root's, in a directory of theirs: the group that root lets read it.
    granted: Option<u32>,
}

/// What decides over the rest of a reading once somebody else than root wrote a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A program of that user's reads the files, and no more than it may read is read for it.
    Application,
    /// A server that root starts reads them, and whatever root's own file includes.
    RootsServer,
}

impl Disk {
    /// The disk as those see it who decide what this file says. Where that is root alone, it is read as root; where it is
    /// somebody else, that user could have it name a file of another's, and borrow root's eyes: so it, and all that it
    /// includes, is read with that user's permissions, or with `reader`'s, where the application is known to run as that.
    #[must_use]
    pub fn of(file: &Path, reads: Reads, reader: Option<&User>) -> Self {
        let mut disk =
            Disk { follows: reads == Reads::Application, reader: reader.cloned(), ..Disk::default() };
        // What could not be judged now is judged when it is read.
        disk.follows |= disk.look(file, true).is_err();
        disk
    }

    /// With whose permissions it reads; none: with those of this program.
    #[must_use]
    pub fn user(&self) -> Option<&User> {
        self.eyes.get().map(|eyes| &eyes.user)
    }

    /// Finds who decides over a file, unless it is known already who decides over all of them.
    fn look(&self, file: &Path, is_main: bool) -> io::Result<()> {
        if !geteuid().is_root() || self.eyes.get().is_some() {
            return Ok(());
        }
        let Some(decider) = decider(file)? else { return Ok(()) };
        let user = self.reader.clone().unwrap_or_else(|| match decider.who {
            Who::User(uid) => User::of(uid),
            Who::Group(gid) => User::of_group(gid),
            Who::Everyone => User::anyone(),
        });
        let main = is_main.then(|| (file.to_owned(), decider.file));
        let granted = decider.group_of_roots_file.filter(|_| is_main);
        let _ = self.eyes.set(Eyes { user, because: decider.path, main, granted });
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = open::regular(path)?;
        match self.eyes.get() {
            Some(eyes) if !eyes.is_same(path, &file)? => {
                Err(io::Error::other("it was replaced while it was looked at; try again"))
            }
            _ => self.budget.read_opened(&file),
        }
    }

    /// Does something with the permissions that count.
    fn seen<T: Send>(&self, path: &Path, work: impl Fn() -> io::Result<T> + Sync + Send) -> io::Result<T> {
        let Some(eyes) = self.eyes.get() else { return work() };
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let mut found = as_user(&eyes.user.account, &work)?;
        if found.as_ref().is_err_and(denied)
            && let Some(group) = eyes.granted.filter(|_| eyes.is_main(path))
        {
            found = as_user(&User::of_group(group).account, &work)?;
        }
        found.map_err(|error| if denied(&error) { eyes.denied() } else { error })
    }
}

impl Eyes {
    fn is_main(&self, path: &Path) -> bool {
        self.main.as_ref().is_some_and(|(main, _)| main == path)
    }

    /// Whether an opened file is still the one that was judged.
    fn is_same(&self, path: &Path, file: &File) -> io::Result<bool> {
        let opened = file.metadata()?;
        let is_other =
            |(main, judged): &(PathBuf, (u64, u64))| main == path && *judged != (opened.dev(), opened.ino());
        Ok(!self.main.as_ref().is_some_and(is_other))
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

/// One more of something that is bounded.
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
        let judge = || if self.follows { self.look(path, false) } else { Ok(()) };
        // What cannot be judged cannot be opened either; that error has its own words.
        let _ = judge();
        let was_root = self.eyes.get().is_none();
        let found = self.seen(path, || self.open(path));
        if was_root {
            // Somebody may have put it there, or a link in its place, in between.
            let _ = judge();
            if self.eyes.get().is_some() {
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
