//! Versions of files: prepared beside the file, readable by their owner only, then renamed into its place. Preparing
//! needs space and permissions; renaming needs neither, so that a full disk does not stop a rollback.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, fstat, statat};
use rustix::io::Errno;

use crate::error::{TransactionError, at, changed_before, hint, refused};
use crate::intent::Step;
use crate::journal::{JournalHeader, SavedMetadata};
use crate::lock::LockedDirectories;
use crate::metadata::{GiveError, Permissions, give_owner};
use crate::paths::Directory;
use crate::replace;
use crate::store::Store;
use crate::system;
use crate::version::{Digest, Found, Regular, prepared_prefix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

/// Writes the files of a switch whose directories are locked.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a Store,
    pub(crate) begun: &'a JournalHeader,
    locked: &'a LockedDirectories,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(store: &'a Store, begun: &'a JournalHeader, locked: &'a LockedDirectories) -> Self {
        Writer { store, begun, locked }
    }

    /// What is at a file's path; [`Found::Absent`] too if its directory is gone.
    pub(crate) fn look(&self, path: &Path) -> Result<Found, TransactionError> {
        match (self.locked.of(path), path.file_name()) {
            (Some(directory), Some(name)) => {
                Found::at(directory.descriptor(), name).map_err(at(path, "read it"))
            }
            _ => Ok(Found::Absent),
        }
    }

    /// Writes a version beside its file, applies all its metadata once, and then closes it for other
    /// users until the rename. Every version that a switch may need, forward and back, is prepared before
    /// the first file is touched, so that a missing permission, an attribute that cannot be kept and a
    /// full disk show then, and a roll-back needs no space. Checking permissions and free space
    /// beforehand was rejected: a check is not a try, and may be wrong.
    pub(crate) fn prepare(
        &self,
        step: &Step,
        direction: Direction,
        content: &[u8],
    ) -> Result<(), TransactionError> {
        let (directory, kept) = self.place_of(step)?;
        let permissions = self.permissions(step, direction, &self.look(&step.path)?)?;
        let name = self.prepared(step, direction)?;
        let failed = at(&step.path, "prepare its new version beside it");
        if is_there(directory, &name) {
            system::remove(directory.descriptor(), &name).map_err(&failed)?;
        }
        let file = system::create(directory.descriptor(), &name).map_err(&failed)?;
        let made = fstat(&file).map_err(|error| failed(error.into()))?;
        permissions.give(&file).map_err(|error| not_kept(&step.path, &error))?;
        if let (Direction::Back, Some(times)) = (direction, kept.times) {
            times.give(&file).map_err(&failed)?;
        }
        give_owner(&file, (made.st_uid, made.st_gid)).map_err(&failed)?;
        system::change_mode(&file, 0o600).map_err(&failed)?;
        system::write(&file, content).map_err(&failed)?;
        system::sync(&file).map_err(&failed)
    }

    /// Performs a step: if the file is as the other side of the step says, and only then, the prepared
    /// version takes its place. Somebody may save the file between the plan and the rename, so it is
    /// opened and read once more here, and must be the same inode with the same times after that. A
    /// writer can still lose within microseconds. `RENAME_EXCHANGE` would close that gap, and was
    /// rejected: not every file system has it, and it would leave the original readable under another
    /// name.
    pub(crate) fn install(&self, step: &Step, direction: Direction) -> Result<(), TransactionError> {
        let (expected, wanted) = match direction {
            Direction::Forward => (&step.before, &step.after),
            Direction::Back => (&step.after, &step.before),
        };
        let (directory, kept) = self.place_of(step)?;
        let name = step.path.file_name().unwrap_or_default();
        let prepared = self.prepared(step, direction)?;
        let failed = at(&step.path, "put the new version into its place");
        let found = self.look(&step.path)?;
        if let Some(wanted) = wanted {
            self.ready(step, direction, wanted, &self.permissions(step, direction, &found)?)?;
        }
        let mut ours = found.is(expected.as_ref());
        if let (Direction::Forward, Found::Regular(regular)) = (direction, &found) {
            let now = Permissions::of(&regular.file).map_err(&failed)?;
            ours &= kept.permissions.lost_in(&now).is_none();
        }
        if !ours || !found.still(directory.descriptor(), name).map_err(&failed)? {
            return Err(self.changed(&step.path));
        }
        self.is_free(&step.path, directory, &found)?;
        match (expected, wanted) {
            (_, None) => system::remove(directory.descriptor(), name),
            (None, Some(_)) => system::place(directory.descriptor(), &prepared, name),
            (Some(_), Some(_)) => system::replace(directory.descriptor(), &prepared, name),
        }
        .and_then(|()| system::sync(directory.descriptor()))
        .map_err(&failed)
    }

    /// The metadata that a version gets. On the way forward they are those of the journal. On the way back they are today's of the
    /// file that it replaces: text comes back, and what somebody closed, gave away or labelled since the switch stays as they left
    /// it. Putting the journal's back was done before, and opened files that had been closed because of what was in them.
    fn permissions(
        &self,
        step: &Step,
        direction: Direction,
        found: &Found,
    ) -> Result<Permissions, TransactionError> {
        let (_, kept) = self.place_of(step)?;
        match (direction, found) {
            (Direction::Back, Found::Regular(today)) => {
                Permissions::of(&today.file).map_err(at(&step.path, "look at its metadata"))
            }
            _ => Ok(kept.permissions.clone()),
        }
    }

    /// Fails where the kernel would refuse to put another file into this one's place, with what to do about it: it says no more than
    /// "not permitted".
    fn is_free(&self, path: &Path, directory: &Directory, found: &Found) -> Result<(), TransactionError> {
        let mut held = replace::held_directory(path.parent().unwrap_or(path), directory.descriptor());
        if let (None, Found::Regular(regular)) = (&held, found) {
            held = replace::held(path, regular);
        }
        let Some(replace::Held { reason, hint }) = held else { return Ok(()) };
        let why = std::io::Error::new(std::io::ErrorKind::PermissionDenied, format!("{reason}; {hint}"));
        Err(at(path, "put the new version into its place")(why))
    }

    /// Removes every prepared version that is not in place.
    pub(crate) fn discard(&self) -> Result<(), TransactionError> {
        for step in &self.begun.steps {
            for direction in [Direction::Forward, Direction::Back] {
                self.discard_one(step, direction)?;
            }
        }
        Ok(())
    }

    pub(crate) fn discard_forward(&self) -> Result<(), TransactionError> {
        for step in &self.begun.steps {
            self.discard_one(step, Direction::Forward)?;
        }
        Ok(())
    }

    /// Removes empty directories that the switch created.
    pub(crate) fn remove_directories(&self) -> Result<(), TransactionError> {
        for path in self.begun.directories.iter().rev() {
            if let (Some(parent), Some(name)) = (self.locked.of(path), path.file_name())
                && is_there(parent, name)
            {
                system::remove_directory(parent.descriptor(), name).map_err(at(path, "remove it"))?;
            }
        }
        Ok(())
    }

    pub(crate) fn changed(&self, path: &Path) -> TransactionError {
        changed(self.store, self.begun, path)
    }

    fn discard_one(&self, step: &Step, direction: Direction) -> Result<(), TransactionError> {
        let Some(directory) = self.locked.of(&step.path) else { return Ok(()) };
        let name = self.prepared(step, direction)?;
        if is_there(directory, &name) {
            system::remove(directory.descriptor(), &name)
                .map_err(at(&step.path, "remove what was prepared beside it"))?;
        }
        Ok(())
    }

    /// Makes a prepared version ready to take the file's place: applies all metadata, the times too where the whole switch
    /// is back with this step. A version for the way back that is missing, or that somebody else touched, is prepared again
    /// from the backup; one for the way forward is an error.
    fn ready(
        &self,
        step: &Step,
        direction: Direction,
        wanted: &Digest,
        permissions: &Permissions,
    ) -> Result<(), TransactionError> {
        let (directory, kept) = self.place_of(step)?;
        let name = self.prepared(step, direction)?;
        let failed = at(&step.path, "prepare its new version beside it");
        let mut found = Found::at(directory.descriptor(), &name).map_err(&failed)?;
        let own = matches!(&found, Found::Regular(regular) if is_own(regular, wanted));
        if direction == Direction::Back && !own {
            self.prepare(step, direction, &self.store.kept(&self.begun.id, wanted)?)?;
            found = Found::at(directory.descriptor(), &name).map_err(&failed)?;
        }
        let regular = match found {
            Found::Regular(regular) if is_own(&regular, wanted) => regular,
            _ => {
                let path = step.path.with_file_name(name);
                return Err(changed_before(&path, "it was prepared by this switch"));
            }
        };
        permissions.give(&regular.file).map_err(|error| not_kept(&step.path, &error))?;
        if let (Direction::Back, true, Some(times)) = (direction, self.begun.is_first(step), kept.times) {
            times.give(&regular.file).map_err(&failed)?;
        }
        system::sync(regular.file.as_fd()).map_err(&failed)
    }

    fn place_of(&self, step: &Step) -> Result<(&'a Directory, &'a SavedMetadata), TransactionError> {
        let kept = self.begun.files.get(&step.path);
        match (self.locked.of(&step.path), kept) {
            (Some(directory), Some(kept)) => Ok((directory, kept)),
            _ => Err(at(&step.path, "open its directory")(std::io::ErrorKind::NotFound.into())),
        }
    }

    fn prepared(&self, step: &Step, direction: Direction) -> Result<OsString, TransactionError> {
        let Some(name) = step.path.file_name().and_then(OsStr::to_str) else {
            return Err(TransactionError::Plan(format!("{} is not a name", step.path.display())));
        };
        let letter = if direction == Direction::Forward { 'n' } else { 'o' };
        let end = format!("{}-{}-{}{letter}", self.begun.id, self.begun.token, step.number);
        Ok(format!("{}{end}", prepared_prefix(name)).into())
    }
}

/// The error for a file that is not a version of the switch. It names the backup, if the file existed before.
pub(crate) fn changed(store: &Store, begun: &JournalHeader, path: &Path) -> TransactionError {
    let backup = store.version_before(begun, path);
    let hint = if backup.is_some() {
        "compare the two, and put back by hand what is wanted"
    } else {
        "the switch made this file: remove it by hand if it is not wanted"
    };
    TransactionError::Changed { path: path.to_owned(), backup, hint: hint.into() }
}

/// Whether a name exists; on a read-only file system even removing a missing file fails.
fn is_there(directory: &Directory, name: &OsStr) -> bool {
    !matches!(statat(directory.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Whether this is what we prepared: it is ours, has no other name through which somebody could write to it, and has the
/// content that is wanted.
fn is_own(prepared: &Regular, wanted: &Digest) -> bool {
    let ours = prepared.stat.st_uid == rustix::process::geteuid().as_raw();
    ours && prepared.stat.st_nlink == 1 && prepared.digest == *wanted
}

/// What of a file's metadata cannot be kept; where the disk fails, that is no property of the file.
fn not_kept(path: &Path, error: &GiveError) -> TransactionError {
    if let GiveError::System(_, source) = error
        && let Some(errno @ (Errno::IO | Errno::NOSPC | Errno::ROFS)) = Errno::from_io_error(source)
    {
        return at(path, "keep its metadata")(errno.into());
    }
    let (what, why, more) = match error {
        GiveError::System(what, source) => (*what, format!(" ({source})"), hint(path, source)),
        GiveError::Differs(what) => (*what, String::new(), String::new()),
    };
    let more = more.trim_start_matches("; ");
    let more = if more.is_empty() { "try as root (sudo), or edit it by hand" } else { more };
    refused(path, &format!("its {what} cannot be kept{why}"), more)
}
