//! The steps of an intent, checked for consistency: each step must find what the previous step of the same file left.
//! Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{TransactionError, refused};
use crate::intent::Intent;
use crate::version::Digest;

/// One change of one file, by hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Its number in the transaction, from 0.
    pub(crate) number: usize,
    /// The stage that it belongs to.
    pub(crate) stage: usize,
    pub(crate) path: PathBuf,
    pub(crate) before: Option<Digest>,
    pub(crate) after: Option<Digest>,
}

/// The steps of an intent, in order.
pub(crate) fn steps(intent: &Intent) -> Result<Vec<Step>, TransactionError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut last: BTreeMap<&Path, (usize, Option<Digest>)> = BTreeMap::new();
    for (stage, changes) in intent.stages.iter().enumerate() {
        for change in &changes.changes {
            let path = change.path.as_path();
            sound(path)?;
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

fn sound(path: &Path) -> Result<(), TransactionError> {
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
