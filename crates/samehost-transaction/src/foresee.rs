//! Predicts what an undo or a recovery would do, to show it before the prompt, and checks whether files still are as a
//! switch left them. Reads only, takes no lock, changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::{TransactionError, at};
use crate::intent::{FileChange, Stage};
use crate::journal::{History, JournalHeader, Record};
use crate::paths::Directory;
use crate::put_back::Skipped;
use crate::state::State;
use crate::store::{Seen, Store};
use crate::version::{Digest, Found};
use crate::{undo, writer};

/// What would become of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It was cut off, and is put back.
    PutBack,
    /// It was interrupted after it was verified, and is completed.
    Finish,
    /// It is undone, or its undo is completed.
    Undo,
    /// It touched nothing, and is forgotten.
    Forget,
}

/// What would happen to a switch, its last stage first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Its name.
    pub id: String,
    /// One line of what it did.
    pub summary: String,
    /// What becomes of it.
    pub prospect: Prospect,
    /// The changes in order, with the reloads that follow.
    pub stages: Vec<Stage>,
    /// Files that stay as they are because they are not a version of the switch.
    pub left: Vec<Skipped>,
}

/// What [`undo`](crate::undo()) would do.
///
/// # Errors
/// Those of the undo itself: there is no such switch, it is not in force, or one of its files was changed since.
pub fn foresee_undo(store: &Store, id: &str) -> Result<Foreseen, TransactionError> {
    let (begun, history) = match store.see(id)? {
        Seen::Running => return Err(undo::running(id)),
        Seen::Nothing => return Err(undo::nothing(id)),
        Seen::There(there) => *there,
    };
    undo::is_in_force(id, history.last())?;
    for step in &begun.steps {
        if look(&step.path)?.now.as_ref().map(Option::as_ref) != Some(begun.last(&step.path)) {
            return Err(undo::changed(store, &begun, &step.path)?);
        }
    }
    let last = begun.reloads.len().saturating_sub(1);
    back(store, &begun, &history, Some(last), Prospect::Undo)
}

/// What would happen to an unfinished switch.
#[derive(Debug)]
pub enum Outlook {
    /// This.
    Known(Foreseen),
    /// It is at work, and left alone.
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
        match one(store, &id) {
            Ok(Some(outlook)) => all.push((id, outlook)),
            Ok(None) => {}
            Err(error) => all.push((id, Outlook::Failed(error))),
        }
    }
    Ok(all)
}

/// For one switch; `None` if it had ended.
fn one(store: &Store, id: &str) -> Result<Option<Outlook>, TransactionError> {
    let (begun, history) = match store.see(id)? {
        Seen::Running => return Ok(Some(Outlook::Running)),
        Seen::Nothing => {
            let (id, summary, prospect) = (id.to_owned(), String::new(), Prospect::Forget);
            let nothing = Foreseen { id, summary, prospect, stages: Vec::new(), left: Vec::new() };
            return Ok(Some(Outlook::Known(nothing)));
        }
        Seen::There(there) => *there,
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
    back(store, &begun, &history, furthest, prospect).map(|foreseen| Some(Outlook::Known(foreseen)))
}

/// A file at some point of the rollback.
struct File {
    /// Its version now; `None` if it is not a regular file.
    now: Option<Option<Digest>>,
    /// Its bytes on the disk.
    text: Option<Vec<u8>>,
}

/// Simulates the rollback from a stage, as [`Rollback`](crate::put_back::Rollback) performs it.
fn back(
    store: &Store,
    begun: &JournalHeader,
    history: &History,
    furthest: Option<usize>,
    prospect: Prospect,
) -> Result<Foreseen, TransactionError> {
    let mut files: BTreeMap<&Path, File> = BTreeMap::new();
    for step in &begun.steps {
        if !files.contains_key(step.path.as_path()) {
            files.insert(&step.path, look(&step.path)?);
        }
    }
    let texts: BTreeMap<Digest, Vec<u8>> =
        files.values().filter_map(|file| Some((file.now.clone()??, file.text.clone()?))).collect();
    // A version is either in the backup or the current content.
    let text = |version: &Option<Digest>| -> Result<Option<Vec<u8>>, TransactionError> {
        let Some(digest) = version else { return Ok(None) };
        texts.get(digest).cloned().map_or_else(|| store.kept(&begun.id, digest), Ok).map(Some)
    };
    let mut stages = Vec::new();
    let mut left: Vec<PathBuf> = Vec::new();
    for stage in furthest.map_or(0..0, |furthest| 0..furthest + 1).rev() {
        let mut changes = Vec::new();
        for step in begun.steps.iter().filter(|step| step.stage == stage).rev() {
            let Some(file) = files.get_mut(step.path.as_path()) else { continue };
            let is = |version: Option<&Digest>| file.now.as_ref().is_some_and(|now| now.as_ref() == version);
            if left.contains(&step.path) || begun.is_back(step, is) {
                continue;
            }
            if !is(step.after.as_ref()) {
                left.push(step.path.clone());
                continue;
            }
            let (before, after) = (text(&step.after)?, text(&step.before)?);
            changes.push(FileChange { path: step.path.clone(), before, after, like: None });
            file.now = Some(step.before.clone());
        }
        let is_reloaded = history.reloaded().contains(&stage);
        let reloads = begun.reloads.get(stage).filter(|_| is_reloaded);
        let reloads: Vec<_> = reloads.into_iter().flatten().rev().cloned().collect();
        if !changes.is_empty() || !reloads.is_empty() {
            stages.push(Stage { changes, reloads });
        }
    }
    let left = left.into_iter().map(|path| {
        let backup = begun.original(&path).map(|digest| store.backup(&begun.id, digest));
        let reason = writer::changed(store, begun, &path).to_string();
        Skipped { path, backup, reason }
    });
    Ok(Foreseen {
        id: begun.id.clone(),
        summary: begun.summary.clone(),
        prospect,
        stages,
        left: left.collect(),
    })
}

/// What is at a path; nothing if its directory is gone.
fn look(path: &Path) -> Result<File, TransactionError> {
    let failed = at(path, "read it");
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(File { now: Some(None), text: None });
    };
    let directory = match Directory::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(File { now: Some(None), text: None });
        }
        other => other.map_err(&failed)?,
    };
    Ok(match Found::at(directory.descriptor(), name).map_err(&failed)? {
        Found::Absent => File { now: Some(None), text: None },
        Found::Other(_) => File { now: None, text: None },
        Found::Regular(regular) => File { now: Some(Some(regular.digest)), text: Some(regular.content) },
    })
}

/// A file that a switch changed, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// As the switch left it.
    AsLeft,
    /// With other bytes: these.
    Changed(Vec<u8>),
    /// Missing, present although the switch removed it, or not readable.
    Otherwise(String),
}

/// A switch that is in force, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub id: String,
    /// One line of what it did: `DB_HOST tcp:… → unix:…, …`.
    pub summary: String,
    /// The files that no later switch changed.
    pub files: Vec<(PathBuf, Stands)>,
}

/// Every switch in force, with its files as they are now.
///
/// # Errors
/// When the store cannot be read.
pub fn standing(store: &Store) -> Result<Vec<Standing>, TransactionError> {
    let mut entries = store.list()?;
    entries.retain(|entry| matches!(entry.state, State::Committed | State::Awaiting));
    let mut all = Vec::new();
    for entry in &entries {
        let Seen::There(there) = store.see(&entry.id)? else { continue };
        let mut files = Vec::new();
        for file in &entry.files {
            // A later switch has the last word on a file.
            let mut later = entries.iter().filter(|other| other.id > entry.id);
            if !later.any(|other| other.files.contains(file)) {
                files.push((file.clone(), stands(file, there.0.last(file))));
            }
        }
        all.push(Standing { id: entry.id.clone(), summary: entry.summary.clone(), files });
    }
    Ok(all)
}

fn stands(file: &PathBuf, last: Option<&Digest>) -> Stands {
    match (fs::symlink_metadata(file), last) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => Stands::AsLeft,
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound => {
            Stands::Otherwise("is not there any more".into())
        }
        (Err(error), _) => Stands::Otherwise(format!("cannot be looked at: {error}")),
        (Ok(_), None) => Stands::Otherwise("is there again".into()),
        (Ok(found), Some(_)) if !found.is_file() => Stands::Otherwise("is no longer a regular file".into()),
        (Ok(_), Some(digest)) => match samehost_system::open::read(file, samehost_system::open::LONGEST) {
            Ok(bytes) if Digest::of(&bytes) == *digest => Stands::AsLeft,
            Ok(bytes) => Stands::Changed(bytes),
            Err(error) => Stands::Otherwise(format!("cannot be read: {error}")),
        },
    }
}
