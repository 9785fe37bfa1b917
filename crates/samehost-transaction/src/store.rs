//! The store of switches: `STATE/switches/ID/journal` and `…/backup/HASH`, readable by their owner only; and what it lists
//! of each. Beside a journal stand the notes of the caller, which go with the switch.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use samehost_system::{NotPrivate, clock, private};

use crate::error::{TransactionError, at, refused};
use crate::journal::{History, Journal, JournalHeader, Record};
use crate::paths::Directory;
use crate::state::State;
use crate::version::Digest;
use crate::{journal, limit, system};

const JOURNAL: &str = "journal";
const BACKUP: &str = "backup";
/// Notes beside a journal: the state of the watcher, what is left to do later, how long requests took before, and what a person was
/// told once.
const NOTES: &[&str] = &["watch", "finish", "times", "told"];

#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    way_back: Option<WayBack>,
}

/// What its caller knows of the way back of a switch, and files do not say. Each answer is a reason for people, with what to do.
///
/// It is asked with the switch locked, so that an undo, the watcher's taking back, a recovery and their previews get one answer. A
/// question by each of them was rejected: three of the four forgot it, and a stranger had the application.
#[derive(Clone, Copy, Debug)]
pub struct WayBack {
    /// Why nothing of it may be put back now.
    pub barred: fn(&Store, &str) -> Option<String>,
    /// Why this file, which somebody changed meanwhile, needs what the switch made.
    pub needed_by: fn(&Store, &str, &Path) -> Option<String>,
}

/// A switch as the store lists it. One whose journal cannot be read is listed too, with what can be found out about it:
/// the state [`State::Damaged`] or [`State::Newer`], the time from its id, and the files that its journal may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    pub state: State,
    pub process: u32,
    /// The user's words, without secrets.
    pub command: String,
    pub summary: String,
    /// The files, in the order in which they change.
    pub files: Vec<PathBuf>,
    /// Files that were not put back because somebody else had changed them. Their backups have to be compared by hand.
    pub left: Vec<PathBuf>,
    /// Of one in force, the files that somebody put back by hand.
    pub back: Vec<PathBuf>,
    /// Deadline of the confirmation, RFC 3339, UTC.
    pub awaits: Option<String>,
    /// Why it was put back without a request, what confirmed it, or what is wrong with its journal.
    pub reason: Option<String>,
}

impl Entry {
    pub(crate) fn of(begun: JournalHeader, state: State, history: &History) -> Self {
        let mut files: Vec<PathBuf> = Vec::new();
        for step in begun.steps {
            if !files.contains(&step.path) {
                files.push(step.path);
            }
        }
        let JournalHeader { id, started_at, process, command, summary, .. } = begun;
        let awaits = history.awaits().map(str::to_owned);
        let reason = history.reason().map(str::to_owned);
        let left = history.left().to_vec();
        let back = Vec::new();
        Entry { id, started_at, state, process, command, summary, files, left, back, awaits, reason }
    }

    /// An entry for a journal that cannot be read: the reason, and the files that it may be about.
    pub(crate) fn unreadable(id: String, state: State, reason: String, files: Vec<PathBuf>) -> Self {
        let started_at = begun_at(&id).unwrap_or_default();
        let (command, summary, reason) = (String::new(), String::new(), Some(reason));
        let (left, back) = (Vec::new(), Vec::new());
        Entry { id, started_at, state, process: 0, command, summary, files, left, back, awaits: None, reason }
    }

    /// Whether its journal cannot be read, so that it is unknown what remains to be done.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self.state, State::Damaged | State::Newer)
    }

    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self.state, State::Committed | State::Awaiting)
    }

    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let until = self.awaits.as_deref().map(str::parse::<jiff::Timestamp>);
        match until {
            Some(Ok(until)) => until <= jiff::Timestamp::now(),
            // A deadline that cannot be read counts as passed: the switch is put back rather than left unconfirmed.
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// How long until the deadline of its confirmation, in seconds, negative after it; `None` where it awaits none.
    #[must_use]
    pub fn deadline_in_s(&self) -> Option<f64> {
        let until: jiff::Timestamp = self.awaits.as_deref()?.parse().ok()?;
        Some(until.duration_since(jiff::Timestamp::now()).as_secs_f64())
    }
}

/// What is there of a switch that is opened, to look at it or for work.
#[derive(Debug)]
pub(crate) enum Opened<T> {
    Running,
    /// It ended before anything was touched.
    Nothing,
    There(Box<T>),
}

impl Store {
    /// Opens the store in a state directory, and creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be made, belongs to someone else, or is root's and someone else could hide or replace it.
    pub fn open(state: &Path) -> Result<Self, TransactionError> {
        let failed = at(state, "make the directory of switches");
        let root = state.join("switches");
        // Before anything is made, the part of the path that exists; and after it, the whole.
        check_private(state, &root)?;
        let mut missing: Vec<&Path> = root.ancestors().collect();
        missing.retain(|path| !path.is_dir());
        for path in missing.into_iter().rev() {
            make_directory(path).map_err(&failed)?;
        }
        check_private(state, &root)?;
        let found = fs::metadata(&root).map_err(&failed)?;
        let root = root.canonicalize().map_err(&failed)?;
        let store = Store { root, way_back: None };
        if found.mode() & 0o077 != 0 {
            let directory = store.directory(&store.root)?;
            system::change_mode(directory.descriptor(), 0o700)
                .map_err(at(&store.root, "close it for others"))?;
        }
        Ok(store)
    }

    /// Opens the store in a state directory to look at it, and creates nothing; `None` if there is none.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn existing(state: &Path) -> Result<Option<Self>, TransactionError> {
        let root = state.join("switches");
        check_private(state, &root)?;
        match root.canonicalize() {
            Ok(root) => Ok(Some(Store { root, way_back: None })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&root, "look at the directory of switches")(error)),
        }
    }

    /// Opens the store of an earlier version in a state directory if there is one that only we could have written to:
    /// then it is ours wherever it is, and closed for other users.
    #[must_use]
    pub fn earlier(state: &Path) -> Option<Self> {
        let root = state.canonicalize().ok()?.join("switches");
        let found = fs::symlink_metadata(&root).ok()?;
        let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        if is_ours && found.mode() & 0o077 == 0 { Some(Store { root, way_back: None }) } else { None }
    }

    /// The same store, which asks before it puts anything back.
    #[must_use]
    pub fn asking(mut self, way_back: WayBack) -> Self {
        self.way_back = Some(way_back);
        self
    }

    /// Fails where nothing of a switch may be put back now.
    pub(crate) fn may_go_back(&self, id: &str) -> Result<(), TransactionError> {
        match self.way_back.and_then(|way_back| (way_back.barred)(self, id)) {
            Some(reason) => Err(TransactionError::Barred { id: id.to_owned(), reason }),
            None => Ok(()),
        }
    }

    pub(crate) fn needed_by(&self, id: &str, path: &Path) -> Option<String> {
        (self.way_back?.needed_by)(self, id, path)
    }

    /// All switches by their journals, the oldest first. Includes those whose journal cannot be read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, TransactionError> {
        let _guard = self.lock()?;
        let mut entries = Vec::new();
        for id in self.ids()? {
            match self.peek(&id) {
                Ok(None) => {}
                Ok(Some((begun, state, history))) => entries.push(Entry::of(begun, state, &history)),
                Err(error) => entries.push(self.unreadable(id, &error)),
            }
        }
        Ok(entries)
    }

    fn unreadable(&self, id: String, error: &TransactionError) -> Entry {
        let (state, reason) = match error {
            TransactionError::Newer { what, .. } => (State::Newer, what.clone()),
            TransactionError::Damaged { reason, .. } => (State::Damaged, reason.clone()),
            other => (State::Damaged, other.to_string()),
        };
        let bytes = fs::read(self.root.join(&id).join(JOURNAL)).unwrap_or_default();
        Entry::unreadable(id, state, reason, journal::salvage(&bytes))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn backups(&self, id: &str) -> PathBuf {
        self.root.join(id).join(BACKUP)
    }

    /// Where the version of a file before a switch is kept; `None` where the switch makes the file.
    pub(crate) fn version_before(&self, begun: &JournalHeader, path: &Path) -> Option<PathBuf> {
        begun.original(path).map(|digest| self.backup(&begun.id, digest))
    }

    fn backup(&self, id: &str, digest: &Digest) -> PathBuf {
        self.root.join(id).join(BACKUP).join(digest.as_str())
    }

    /// Stores a note beside a switch's journal, readable by its owner only. It replaces one of the same name, and goes
    /// when the switch is forgotten. Journals have a version and notes have none: whoever writes one reads what
    /// earlier versions wrote.
    ///
    /// # Errors
    /// When there is no such switch, or the system refuses.
    pub fn note(&self, id: &str, name: &str, content: &[u8]) -> Result<(), TransactionError> {
        debug_assert!(NOTES.contains(&name), "{name} would not be removed with the switch");
        let path = self.root.join(id);
        let failed = at(&path, "keep what belongs to the switch");
        let own = self.directory(&path)?;
        system::remove(own.descriptor(), name.as_ref()).or_else(gone).map_err(&failed)?;
        let file = system::create(own.descriptor(), name.as_ref()).map_err(&failed)?;
        system::write(&file, content).and_then(|()| system::sync(&file)).map_err(&failed)?;
        system::sync(own.descriptor()).map_err(&failed)
    }

    /// Contents of a note of [`Store::note`]; `None` if there is none, or it cannot be read.
    #[must_use]
    pub fn noted(&self, id: &str, name: &str) -> Option<Vec<u8>> {
        fs::read(self.root.join(id).join(name)).ok()
    }

    /// Locks a note of [`Store::note`] until the descriptor is closed; `None` if another process holds the lock.
    ///
    /// # Errors
    /// When it is not there.
    pub fn hold(&self, id: &str, name: &str) -> io::Result<Option<OwnedFd>> {
        let path = self.root.join(id).join(name);
        let file = openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Size of the longest version in a switch's backup: as long a file is written on the way back.
    fn longest_backup(&self, id: &str) -> u64 {
        let mut longest = 0;
        for entry in fs::read_dir(self.backups(id)).into_iter().flatten().flatten() {
            longest = longest.max(entry.metadata().map_or(0, |found| found.len()));
        }
        longest
    }

    pub(crate) fn run_by(&self, process: u32) -> Option<String> {
        for entry in self.list().ok()? {
            if entry.process == process && entry.state == State::Running {
                return Some(entry.id);
            }
        }
        None
    }

    /// Creates a switch: its id, and its journal, empty and locked.
    pub(crate) fn add(&self) -> Result<(String, Journal), TransactionError> {
        let _guard = self.lock()?;
        let mut id = name_of_now();
        while self.root.join(&id).exists() {
            id = name_of_now();
        }
        let path = self.root.join(&id);
        match self.make(&id, &path) {
            Ok(file) => Ok((id, Journal::new(path.join(JOURNAL), file))),
            Err(error) => {
                let _ = self.remove(&path);
                Err(error)
            }
        }
    }

    fn make(&self, id: &str, path: &Path) -> Result<OwnedFd, TransactionError> {
        let root = self.directory(&self.root)?;
        let failed = at(path, "make it");
        system::make_directory(root.descriptor(), id.as_ref()).map_err(&failed)?;
        let own = self.directory(path)?;
        system::make_directory(own.descriptor(), BACKUP.as_ref()).map_err(&failed)?;
        let file = system::create(own.descriptor(), JOURNAL.as_ref()).map_err(&failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
        system::sync(own.descriptor()).map_err(&failed)?;
        system::sync(root.descriptor()).map_err(&failed)?;
        Ok(file)
    }

    /// Stores these versions in the backup, each under its hash and once. They are on the disk when this returns.
    pub(crate) fn keep<'a>(
        &self,
        id: &str,
        versions: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), TransactionError> {
        let path = self.root.join(id).join(BACKUP);
        let directory = self.directory(&path)?;
        let failed = at(&path, "write a backup");
        for content in versions {
            let name = Digest::of(content);
            match system::create(directory.descriptor(), name.as_str().as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error)),
                Ok(file) => {
                    system::write(&file, content).and_then(|()| system::sync(&file)).map_err(&failed)?;
                }
            }
        }
        system::sync(directory.descriptor()).map_err(&failed)
    }

    pub(crate) fn kept(&self, id: &str, digest: &Digest) -> Result<Vec<u8>, TransactionError> {
        let path = self.backup(id, digest);
        let content = fs::read(&path).map_err(at(&path, "read the backup"))?;
        if Digest::of(&content) == *digest {
            Ok(content)
        } else {
            Err(TransactionError::Damaged { path, reason: "the backup was changed".into() })
        }
    }

    /// Opens a switch for work, unless another process works on it.
    pub(crate) fn take(&self, id: &str) -> Result<Opened<(Journal, JournalHeader)>, TransactionError> {
        let _guard = self.lock()?;
        let path = self.root.join(id).join(JOURNAL);
        self.known(id)?;
        let file = match openat(CWD, &path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        {
            Err(Errno::NOENT) => return Ok(Opened::Nothing),
            other => other.map_err(|error| at(&path, "open the journal")(error.into()))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Opened::Running),
            Err(error) => return Err(at(&path, "lock the journal")(error.into())),
        }
        let bytes = fs::read(&path).map_err(at(&path, "read the journal"))?;
        limit::files_may_be(bytes.len() as u64 + self.longest_backup(id))?;
        Ok(match journal::read(&path, id, &bytes)? {
            Some(read) => Opened::There(Box::new(Journal::resume(path, file, read)?)),
            None => Opened::Nothing,
        })
    }

    /// Forgets a switch that touched nothing.
    pub(crate) fn forget(&self, id: &str) -> Result<(), TransactionError> {
        let _guard = self.lock()?;
        self.remove(&self.root.join(id))
    }

    pub(crate) fn ids(&self) -> Result<Vec<String>, TransactionError> {
        let failed = at(&self.root, "list the switches");
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if is_directory && is_id(name) {
                ids.push(name.to_owned());
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Removes a switch's directory. The journal goes first: a switch without a journal does not exist.
    fn remove(&self, path: &Path) -> Result<(), TransactionError> {
        let failed = at(path, "remove it");
        let own = match Directory::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(&failed)?,
        };
        system::remove(own.descriptor(), JOURNAL.as_ref()).map_err(&failed)?;
        // After a power cut, a journal that reappeared would refer to backups that are gone.
        system::sync(own.descriptor()).map_err(&failed)?;
        for name in NOTES {
            let removed = system::remove(own.descriptor(), name.as_ref());
            removed.or_else(gone).map_err(&failed)?;
        }
        if let Ok(backup) = Directory::open(&path.join(BACKUP)) {
            for name in backup.names("").map_err(&failed)? {
                if name != "." && name != ".." {
                    system::remove(backup.descriptor(), &name).map_err(&failed)?;
                }
            }
            system::remove_directory(own.descriptor(), BACKUP.as_ref()).map_err(&failed)?;
        }
        let root = self.directory(&self.root)?;
        let name = path.file_name().unwrap_or_default();
        system::remove_directory(root.descriptor(), name).map_err(&failed)
    }

    pub(crate) fn see(&self, id: &str) -> Result<Opened<(JournalHeader, History)>, TransactionError> {
        let _guard = self.lock()?;
        self.known(id)?;
        Ok(match self.peek(id)? {
            None => Opened::Nothing,
            Some((_, State::Running, _)) => Opened::Running,
            Some((begun, _, history)) => Opened::There(Box::new((begun, history))),
        })
    }

    fn known(&self, id: &str) -> Result<(), TransactionError> {
        if self.ids()?.iter().any(|known| known == id) {
            return Ok(());
        }
        Err(TransactionError::Unknown { id: id.to_owned(), store: self.root.clone() })
    }

    /// Contents of a journal and the state of its switch. The store must be locked.
    fn peek(&self, id: &str) -> Result<Option<(JournalHeader, State, History)>, TransactionError> {
        let path = self.root.join(id).join(JOURNAL);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(at(&path, "read the journal"))?,
        };
        let Some(read) = journal::read(&path, id, &bytes)? else { return Ok(None) };
        let file = fs::File::open(&path).map_err(at(&path, "read the journal"))?;
        let running = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        let _ = flock(&file, FlockOperation::Unlock);
        let state = if running { State::Running } else { Record::state_after(read.history.last()) };
        Ok(Some((read.begun, state, read.history)))
    }

    /// One process at a time reads or adds, for moments only.
    fn lock(&self) -> Result<Directory, TransactionError> {
        let directory = self.directory(&self.root)?;
        flock(directory.descriptor(), FlockOperation::LockExclusive)
            .map_err(|error| at(&self.root, "lock the store")(error.into()))?;
        Ok(directory)
    }

    fn directory(&self, path: &Path) -> Result<Directory, TransactionError> {
        Directory::open(path).map_err(at(path, "open the directory"))
    }
}

/// Fails unless the directory of switches, there or to be made, is ours alone. Root trusts what stands in its journals, so
/// that nobody else may be able to hide or replace one (docs/decisions/0072).
fn check_private(state: &Path, root: &Path) -> Result<(), TransactionError> {
    match private(root) {
        Ok(()) => Ok(()),
        Err(NotPrivate::Owner(user)) => {
            let reason = format!("the directory of switches belongs to user {user}");
            Err(refused(root, &reason, "run as that user, or set XDG_STATE_HOME"))
        }
        Err(NotPrivate::Writer(foreign)) => Err(refused(
            root,
            &format!("the directory of switches would not be safe there: {foreign}"),
            "set XDG_STATE_HOME to a directory that only root can change",
        )),
        Err(NotPrivate::Io(error)) => Err(at(state, "look at the directory of switches")(error)),
    }
}

/// A missing file need not be removed.
fn gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Creates a directory for its owner only. It is on the disk when this returns.
fn make_directory(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = fs::File::open(parent)?;
    match system::make_directory(parent.as_fd(), name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| system::sync(&parent)),
    }
}

/// Start of a switch according to its id: RFC 3339, UTC.
fn begun_at(id: &str) -> Option<String> {
    let time = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", id.get(..15)?).ok()?;
    Some(clock::utc(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()))
}

/// Whether this is the id of a switch. Directories with other names are not ours.
pub(crate) fn is_id(name: &str) -> bool {
    let shape = "00000000-000000-0000";
    if name.len() != shape.len() {
        return false;
    }
    name.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
        b'-' => byte == b'-',
        _ => byte.is_ascii_digit() || byte.is_ascii_lowercase(),
    })
}

/// Id of a switch that begins now: the time, UTC, to 1/65536 of a second, so that ids sort by age.
pub(crate) fn name_of_now() -> String {
    let now = jiff::Timestamp::now();
    let fraction = i64::from(now.subsec_nanosecond()) * 65_536 / 1_000_000_000;
    format!("{}-{fraction:04x}", now.strftime("%Y%m%d-%H%M%S"))
}

/// So many random bytes, in hexadecimal.
pub(crate) fn random<const BYTES: usize>() -> Result<String, TransactionError> {
    let mut bytes = [0; BYTES];
    getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(|error| at(Path::new("getrandom"), "draw a name")(error.into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
