//! Files as they would be after some connections moved; made by an editor, and held against what was asked by reading
//! the result anew: an edit that does not say exactly what was asked is no proposal.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::edit::{Edit, EditError, apply};
use crate::editor::Editor;
use crate::files::{Files, Overlay};
use crate::goal::Goal;
use crate::refusal::Refusal;
use crate::setting::{Reading, Role, Setting};

/// A connection that is to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which, as read.
    pub setting: Setting,
    /// What it should become.
    pub goal: Goal,
}

/// One file as it is and as it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The file.
    pub file: PathBuf,
    /// Its bytes; none where it is to be made.
    pub before: Option<Vec<u8>>,
    /// Its bytes afterwards.
    pub after: Vec<u8>,
}

/// Why there is no proposal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposalError {
    /// The editor refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file could not be read.
    #[error("{file}: {source}")]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The editor contradicts itself.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The edited text does not say what was asked; nothing is written.
    #[error(
        "{file}: the edit would not say what was asked ({found}); nothing was changed: edit it by hand, and please report this"
    )]
    Differs {
        /// Which.
        file: PathBuf,
        /// What it would say instead.
        found: String,
    },
}

/// The files as they would be after these moves, sorted by path.
///
/// # Errors
/// [`ProposalError`], when the editor refuses or the result would not say what was asked.
pub fn propose(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    moves: &[Move],
) -> Result<Vec<Proposal>, ProposalError> {
    let reading = editor.read(file, files)?;
    let mut edits: BTreeMap<PathBuf, Vec<Edit>> = BTreeMap::new();
    for one in moves {
        for edit in editor.edit(file, files, &one.setting, &one.goal)? {
            edits.entry(edit.file.clone()).or_default().push(edit);
        }
    }
    let mut proposals = Vec::new();
    for (path, edits) in edits {
        let before = match files.read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(ProposalError::Read { file: path, source }),
        };
        let after = apply(before.as_deref().unwrap_or_default(), &edits.iter().collect::<Vec<_>>())?;
        if before.as_ref() != Some(&after) {
            proposals.push(Proposal { file: path, before, after });
        }
    }
    let changed = proposals.iter().map(|proposal| (proposal.file.clone(), proposal.after.clone())).collect();
    let result = editor.read(file, &Overlay::new(files, changed))?;
    hold(editor, file, &reading, &result, moves)?;
    Ok(proposals)
}

/// Holds what the edited configuration says against what was asked: every connection that was to move has moved, and
/// all others are as they were.
fn hold(
    editor: &dyn Editor,
    file: &Path,
    before: &Reading,
    after: &Reading,
    moves: &[Move],
) -> Result<(), ProposalError> {
    let both = editor.listens_on_both();
    let mut expected: Vec<Said> = Vec::new();
    for setting in &before.settings {
        let moved =
            moves.iter().find(|one| one.setting.name == setting.name && one.setting.line == setting.line);
        let holds = if setting.role == Role::Listens { both } else { editor.connects_to_both(setting) };
        let stays = moved.is_none_or(|one| holds && one.goal.stays);
        if stays {
            expected.push(Said::of(setting));
        }
        if let Some(one) = moved {
            expected.push(Said { endpoint: one.goal.endpoint.to_string(), ..Said::of(setting) });
        }
    }
    let mut found: Vec<Said> = after.settings.iter().map(Said::of).collect();
    let (all, refused) = (found.clone(), before.refused.len() == after.refused.len());
    for list in [&mut expected, &mut found] {
        list.sort();
        list.dedup();
    }
    if expected == found && refused {
        return Ok(());
    }
    let found = all.iter().map(|said| said.endpoint.clone()).collect::<Vec<_>>().join(", ");
    Err(ProposalError::Differs { file: file.to_owned(), found })
}

/// What a setting says, without its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    endpoint: String,
    listens: bool,
    protocol: &'static str,
    user: Option<String>,
    database: Option<String>,
}

impl Said {
    fn of(setting: &Setting) -> Self {
        Said {
            endpoint: setting.endpoint.to_string(),
            listens: setting.role == Role::Listens,
            protocol: setting.protocol.name(),
            user: setting.user.clone(),
            database: setting.database.clone(),
        }
    }
}
