//! Predicts what an undo or a recovery would do, to show it before the prompt. Reads only, takes no lock, changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{TransactionError, at};
use crate::intent::{FileChange, Stage, Step};
use crate::journal::{History, JournalHeader, Record};
use crate::metadata::Permissions;
use crate::paths::Directory;
use crate::put_back::NotPutBack;
use crate::store::{Opened, Store};
use crate::version::{Digest, Found, Regular};
use crate::{replace, undo, writer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prospect {
    /// It was cut off, and is put back.
    #[default]
    PutBack,
    /// It was interrupted after it was verified, and is completed.
    Finish,
    /// It is undone, or its undo is completed.
    Undo,
    /// It touched nothing, and is forgotten.
    Forget,
}

/// What would happen to a switch, its last stage first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    pub id: String,
    pub summary: String,
    pub prospect: Prospect,
    /// The changes in order, with the reloads that follow.
    pub stages: Vec<Stage>,
    /// Files of an undo that somebody put back by hand.
    pub back: Vec<PathBuf>,
    /// Whether these are all that it changed: what is made for the way back alone is taken away again.
    pub is_back: bool,
    /// Files that stay as they are because they are not a version of the switch.
    pub left: Vec<NotPutBack>,
    /// Files whose text would come back and whose metadata somebody changed since the switch, with those that stay, in words.
    pub kept: Vec<(PathBuf, Vec<String>)>,
    /// Whether it would end: a file that somebody changed may need what the stages before it made, which stay then.
    pub ends: bool,
}

/// What [`undo`](crate::undo()) would do.
///
/// # Errors
/// Those of the undo itself: there is no such switch, it is not in force, or one of its files was changed since.
pub fn foresee_undo(store: &Store, id: &str) -> Result<Foreseen, TransactionError> {
    let (begun, history) = match store.see(id)? {
        Opened::Running => return Err(undo::running(id)),
        Opened::Nothing => return Err(undo::nothing(id)),
        Opened::There(there) => *there,
    };
    undo::is_in_force(id, history.last())?;
    undo::check(store, &begun, look)?;
    store.may_go_back(id)?;
    let last = begun.reloads.len().saturating_sub(1);
    let foreseen = simulate(store, &begun, &history, Some(last), Prospect::Undo)?;
    let mut back: BTreeSet<PathBuf> = begun.steps.iter().map(|step| step.path.clone()).collect();
    back.retain(|path| begun.original(path) != begun.last(path));
    let changed = back.len();
    back.retain(|path| look(path).is_ok_and(|found| found.is(begun.original(path))));
    let is_back = back.len() == changed;
    Ok(Foreseen { back: back.into_iter().collect(), is_back, ..foreseen })
}

#[derive(Debug)]
pub enum Outlook {
    Known(Foreseen),
    Running,
    /// It cannot be ended, or only by another user.
    Failed(TransactionError),
}

/// What [`recover`](crate::recover()) would do, switch by switch, the newest first.
///
/// # Errors
/// When the store cannot be read; what is wrong with a single switch stands in its place.
pub fn foresee_recovery(store: &Store) -> Result<Vec<(String, Outlook)>, TransactionError> {
    let mut all = Vec::new();
    for id in store.ids()?.into_iter().rev() {
        match outlook(store, &id) {
            Ok(Some(outlook)) => all.push((id, outlook)),
            Ok(None) => {}
            Err(error) => all.push((id, Outlook::Failed(error))),
        }
    }
    Ok(all)
}

/// For one switch; `None` if it had ended.
fn outlook(store: &Store, id: &str) -> Result<Option<Outlook>, TransactionError> {
    let (begun, history) = match store.see(id)? {
        Opened::Running => return Ok(Some(Outlook::Running)),
        Opened::Nothing => {
            let (id, prospect) = (id.to_owned(), Prospect::Forget);
            let nothing = Foreseen { id, prospect, ends: true, ..Foreseen::default() };
            return Ok(Some(Outlook::Known(nothing)));
        }
        Opened::There(there) => *there,
    };
    if history.last().is_some_and(Record::has_ended) {
        return Ok(None);
    }
    let last = begun.reloads.len().saturating_sub(1);
    let (prospect, furthest) = if history.is_verified() {
        (Prospect::Finish, None)
    } else if history.is_undoing() {
        (Prospect::Undo, Some(last))
    } else {
        (Prospect::PutBack, history.furthest())
    };
    if prospect != Prospect::Finish {
        store.may_go_back(id)?;
    }
    let foreseen = simulate(store, &begun, &history, furthest, prospect)?;
    Ok(Some(Outlook::Known(foreseen)))
}

/// What is at a path at some point of the rollback.
enum Now {
    Absent,
    Version(Digest),
    /// Not a regular file.
    Other,
}

impl Now {
    fn of(version: Option<&Digest>) -> Self {
        match version {
            Some(digest) => Now::Version(digest.clone()),
            None => Now::Absent,
        }
    }

    fn is(&self, version: Option<&Digest>) -> bool {
        match (self, version) {
            (Now::Absent, None) => true,
            (Now::Version(now), Some(version)) => now == version,
            _ => false,
        }
    }
}

/// What is at each path of a switch now, the contents that were read there, by their hashes, and what differs of their metadata.
#[derive(Default)]
struct FilesNow<'a> {
    files: BTreeMap<&'a Path, Now>,
    on_disk: BTreeMap<Digest, Vec<u8>>,
    differences: BTreeMap<&'a Path, Vec<String>>,
}

fn files_now(begun: &JournalHeader) -> Result<FilesNow<'_>, TransactionError> {
    let mut all = FilesNow::default();
    for step in &begun.steps {
        if all.files.contains_key(step.path.as_path()) {
            continue;
        }
        let now = match look(&step.path)? {
            Found::Absent => Now::Absent,
            Found::Other(_) => Now::Other,
            Found::Regular(regular) => {
                all.differences.insert(&step.path, differences(begun, &step.path, &regular)?);
                all.on_disk.insert(regular.digest.clone(), regular.content);
                Now::Version(regular.digest)
            }
        };
        all.files.insert(&step.path, now);
    }
    Ok(all)
}

/// What somebody changed of a file's metadata since the switch, in words; and whether it has other names, which keep what the switch
/// wrote.
pub(crate) fn differences(
    begun: &JournalHeader,
    path: &Path,
    found: &Regular,
) -> Result<Vec<String>, TransactionError> {
    let Some(kept) = begun.files.get(path) else { return Ok(Vec::new()) };
    let now = Permissions::of(&found.file).map_err(at(path, "look at its metadata"))?;
    let mut all = kept.permissions.differences(&now);
    let links = replace::links(found);
    if links > 1 {
        all.push(format!("it has {links} names (hard links), and the others keep the text of today"));
    }
    Ok(all)
}

/// Simulates the rollback from a stage (`None`: no stage) as `put_back` performs it: the same files are skipped and
/// left. The two walks have to agree; `tests/transaction/journals.rs` compares them for journals that were cut off at
/// every point.
fn simulate(
    store: &Store,
    begun: &JournalHeader,
    history: &History,
    furthest: Option<usize>,
    prospect: Prospect,
) -> Result<Foreseen, TransactionError> {
    let FilesNow { mut files, on_disk, mut differences } = files_now(begun)?;
    let mut stages = Vec::new();
    let mut left: Vec<(PathBuf, Option<String>)> = Vec::new();
    let count = match furthest {
        Some(furthest) => furthest + 1,
        None => 0,
    };
    for stage in (0..count).rev() {
        let mut changes = Vec::new();
        for step in begun.steps.iter().filter(|step| step.stage == stage).rev() {
            let Some(now) = files.get(step.path.as_path()) else { continue };
            if left.iter().any(|(path, _)| *path == step.path)
                || begun.is_back(step, |version| now.is(version))
            {
                continue;
            }
            if !now.is(step.after.as_ref()) {
                let need = need(store, begun, &files, step);
                left.push((step.path.clone(), need));
                continue;
            }
            changes.push(FileChange {
                path: step.path.clone(),
                before: content(store, &begun.id, &on_disk, step.after.as_ref())?,
                after: content(store, &begun.id, &on_disk, step.before.as_ref())?,
                like: None,
            });
            files.insert(&step.path, Now::of(step.before.as_ref()));
        }
        let ends = left.iter().all(|(_, need)| need.is_none());
        let mut reloads = Vec::new();
        if ends
            && let Some(begun) = begun.reloads.get(stage)
            && history.reloaded().contains(&stage)
        {
            reloads.extend(begun.iter().rev().cloned());
        }
        if !changes.is_empty() || !reloads.is_empty() {
            stages.push(Stage { changes, reloads });
        }
        if !ends {
            break;
        }
    }
    let ends = left.iter().all(|(_, need)| need.is_none());
    let skipped = skipped(store, begun, left);
    let (id, summary) = (begun.id.clone(), begun.summary.clone());
    let changed: Vec<&PathBuf> =
        stages.iter().flat_map(|stage| &stage.changes).map(|one| &one.path).collect();
    differences.retain(|path, words| !words.is_empty() && changed.iter().any(|one| one.as_path() == *path));
    let kept = differences.into_iter().map(|(path, words)| (path.to_owned(), words)).collect();
    Ok(Foreseen { id, summary, prospect, stages, left: skipped, kept, ends, ..Foreseen::default() })
}

/// Why a file that is left needs what the stages before its step made; `None` where those are back.
fn need(store: &Store, begun: &JournalHeader, files: &BTreeMap<&Path, Now>, step: &Step) -> Option<String> {
    let is_back = |other: &Step| {
        files.get(other.path.as_path()).is_some_and(|now| begun.is_back(other, |version| now.is(version)))
    };
    if begun.before(step).all(is_back) { None } else { store.needed_by(&begun.id, &step.path) }
}

fn skipped(store: &Store, begun: &JournalHeader, left: Vec<(PathBuf, Option<String>)>) -> Vec<NotPutBack> {
    let mut skipped = Vec::new();
    for (path, need) in left {
        let backup = store.version_before(begun, &path);
        let mut reason = writer::changed(store, begun, &path).to_string();
        if let Some(why) = need {
            reason = format!("{reason}; {why}");
        }
        skipped.push(NotPutBack { path, backup, reason });
    }
    skipped
}

/// The content of a version, which is in the backup or on the disk now; `None` means "missing".
fn content(
    store: &Store,
    id: &str,
    on_disk: &BTreeMap<Digest, Vec<u8>>,
    version: Option<&Digest>,
) -> Result<Option<Vec<u8>>, TransactionError> {
    let Some(digest) = version else { return Ok(None) };
    match on_disk.get(digest) {
        Some(content) => Ok(Some(content.clone())),
        None => store.kept(id, digest).map(Some),
    }
}

/// What is at a path, without a lock; [`Found::Absent`] too if its directory is gone.
pub(crate) fn look(path: &Path) -> Result<Found, TransactionError> {
    let failed = at(path, "read it");
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Found::Absent) };
    let directory = match Directory::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        other => other.map_err(&failed)?,
    };
    Found::at(directory.descriptor(), name).map_err(&failed)
}
