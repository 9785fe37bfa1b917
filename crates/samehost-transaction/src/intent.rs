//! What a transaction is to do, as given by its caller.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{TransactionError, refused};
use crate::version::Digest;

/// One file in one stage. The caller keeps stages that are deferred, so the names of the fields are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute path without symbolic links, as returned by [`resolve`](crate::resolve()).
    pub path: PathBuf,
    /// Content before; `None` if the switch creates the file.
    pub before: Option<Vec<u8>>,
    /// Content afterwards; `None` if the switch removes the file.
    pub after: Option<Vec<u8>>,
    /// If the switch creates the file: the file whose text it contains. The new file is never readable by more users
    /// than that one.
    pub like: Option<PathBuf>,
}

/// How running programs load the files of a stage. It is data here, and stands in the journal: the caller runs it, today
/// or when it puts the switch back next year (docs/decisions/0088).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// What is reloaded, for people.
    pub what: String,
    pub command: Vec<String>,
}

/// Why a reload failed, in one sentence for people. It may quote the output of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(pub String);

/// Carries a reload out when a switch is put back. A failure is reported, and does not stop the way back.
pub type Reloader<'a> = dyn FnMut(&Reload) -> Result<(), ReloadError> + 'a;

/// Files that change together, after which everything serves again. Each file is in it at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    pub changes: Vec<FileChange>,
    /// Reloads after the files changed; repeated in reverse order when the stage is put back.
    pub reloads: Vec<Reload>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The user's words, without secrets.
    pub command: String,
    /// Summary in one line, without secrets.
    pub summary: String,
    /// In order; a later stage may change a file again.
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// In the transaction, from 0.
    pub(crate) number: usize,
    pub(crate) stage: usize,
    pub(crate) path: PathBuf,
    pub(crate) before: Option<Digest>,
    pub(crate) after: Option<Digest>,
}

/// Numbers the changes of an intent, and checks that they fit each other: a file changes at most once in a stage, each
/// change changes something, and finds what the change before it of the same file left. Reads no file.
pub(crate) fn steps(intent: &Intent) -> Result<Vec<Step>, TransactionError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut last: BTreeMap<&Path, (usize, Option<Digest>)> = BTreeMap::new();
    for (stage, changes) in intent.stages.iter().enumerate() {
        for change in &changes.changes {
            let path = change.path.as_path();
            check_path(path)?;
            let [before, after] =
                [&change.before, &change.after].map(|content| content.as_deref().map(Digest::of));
            if before == after {
                return Err(plan(path, "would not change"));
            }
            match last.insert(path, (stage, after.clone())) {
                Some((earlier, _)) if earlier == stage => {
                    return Err(plan(path, "changes twice in one stage"));
                }
                Some((_, left)) if left != before => {
                    return Err(plan(path, "is not found as the stage before leaves it"));
                }
                _ => {}
            }
            steps.push(Step { number: steps.len(), stage, path: path.to_owned(), before, after });
        }
    }
    if steps.is_empty() {
        return Err(TransactionError::Plan("it changes no file".into()));
    }
    Ok(steps)
}

fn check_path(path: &Path) -> Result<(), TransactionError> {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || path.file_name().is_none() || !is_plain {
        return Err(plan(path, "is not a resolved path"));
    }
    if path.to_str().is_none() {
        return Err(refused(path, "the name is not UTF-8", "rename it, or edit it by hand"));
    }
    Ok(())
}

fn plan(path: &Path, what: &str) -> TransactionError {
    TransactionError::Plan(format!("{} {what}", path.display()))
}
