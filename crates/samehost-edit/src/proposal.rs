//! Files as they will be after connections moved. An editor makes the edits; reading the result verifies them. An edit
//! that does not do exactly what was asked is rejected.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::budget::{self, Metered};
use crate::editor::Editor;
use crate::files::{Edit, EditError, Files, Overlay, apply};
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Role, Setting};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// As the editor read it.
    pub setting: Setting,
    pub goal: Goal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub file: PathBuf,
    /// Content before; `None` if the file is created.
    pub before: Option<Vec<u8>>,
    pub after: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposalError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{file}: {source}")]
    Read { file: PathBuf, source: io::Error },
    /// The editor contradicts itself.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The edited text does not do what was asked. Nothing is written.
    #[error(
        "{file}: the edit would not say what was asked ({found}); nothing was changed: edit it by hand, and please report this"
    )]
    Differs { file: PathBuf, found: String },
}

/// The files after these moves, sorted by path; nothing is written.
///
/// An editor is not trusted with what it says that its edits do. The configuration is read again with the new texts in
/// it, and must have each moved connection at its goal, each other one as it was, and no more refusals than
/// before. So a later line that wins, or an included file that says the same, ends in an error and not in a
/// configuration that nobody asked for.
///
/// # Errors
/// [`ProposalError`], when the editor refuses or the result would not say what was asked.
pub fn propose(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    moves: &[Move],
) -> Result<Vec<Proposal>, ProposalError> {
    let expected = Expected::of(editor, &editor.read(file, files)?, moves);
    // The configuration is parsed once for all of them, and read once more with all of them: thousands of sites may lead to one
    // server.
    let edits = budget::within(file, files, |metered| {
        let mut edits = Vec::new();
        for one in moves {
            edits.extend(editor.edit_metered(file, metered, &one.setting, &one.goal)?);
        }
        Ok(edits)
    })?;
    let proposed = verified(editor, file, files, expected, &edits);
    if proposed.is_err() && editor.may_contradict_itself() {
        // Which of them it is, in words for people.
        for one in moves {
            editor.edit(file, files, &one.setting, &one.goal)?;
        }
    }
    proposed
}

/// An editor's edits for one setting, if they have exactly the requested effect. Where lines contradict each other,
/// another line may win, and only the user can resolve that.
///
/// # Errors
/// [`Refusal`], when the edited files would say something else, or would not be understood.
pub(crate) fn verify_edits(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    setting: &Setting,
    goal: &Goal,
    edits: Vec<Edit>,
) -> Result<Vec<Edit>> {
    let moves = [Move { setting: setting.clone(), goal: goal.clone() }];
    let expected = Expected::of(editor, &editor.read(file, files)?, &moves);
    match verified(editor, file, files, expected, &edits) {
        Ok(_) => Ok(edits),
        Err(_) => Err(Refusal::new(
            &setting.file,
            setting.line,
            "other lines or included files override what would be written, or would change with it",
            format!("make `{}` say {}, and remove the lines that contradict it", setting.name, goal.endpoint),
        )),
    }
}

/// Connections that a message names.
const MOST_TOLD: usize = 20;

/// The files with these edits, if reading them again gives what was asked.
fn verified(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    expected: Expected,
    edits: &[Edit],
) -> Result<Vec<Proposal>, ProposalError> {
    let proposals = edited(files, edits)?;
    let changed = proposals.iter().map(|proposal| (proposal.file.clone(), proposal.after.clone())).collect();
    let after = editor.read(file, &Overlay::new(files, changed))?;
    expected.compare(file, &after)?;
    Ok(proposals)
}

fn edited(files: &dyn Files, edits: &[Edit]) -> Result<Vec<Proposal>, ProposalError> {
    let mut by_file: BTreeMap<&Path, Vec<&Edit>> = BTreeMap::new();
    for edit in edits {
        by_file.entry(&edit.file).or_default().push(edit);
    }
    let mut proposals = Vec::new();
    for (path, edits) in by_file {
        let before = match files.read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(ProposalError::Read { file: path.to_owned(), source }),
        };
        let after = apply(before.as_deref().unwrap_or_default(), &edits)?;
        if before.as_ref() != Some(&after) {
            proposals.push(Proposal { file: path.to_owned(), before, after });
        }
    }
    Ok(proposals)
}

/// What an edited configuration must say: every connection that was to move has moved, and all others are unchanged. The reading
/// that it is made of is not kept: a configuration may have a hundred thousand settings.
struct Expected {
    facts: Vec<Fact>,
    refused: usize,
}

impl Expected {
    fn of(editor: &dyn Editor, before: &Reading, moves: &[Move]) -> Self {
        let both = editor.listens_on_both();
        let mut facts: Vec<Fact> = Vec::new();
        let mut by_place: HashMap<(&str, u32), &Move> = HashMap::new();
        for one in moves {
            by_place.entry((one.setting.name.as_str(), one.setting.line)).or_insert(one);
        }
        for setting in &before.settings {
            let can_stay = match setting.role {
                Role::Listens => both,
                Role::Connects => editor.connects_to_both(setting),
            };
            let Some(moved) = by_place.get(&(setting.name.as_str(), setting.line)) else {
                facts.push(Fact::of(setting));
                continue;
            };
            if can_stay && moved.goal.stays {
                facts.push(Fact::of(setting));
            }
            facts.push(Fact { endpoint: moved.goal.endpoint.to_string(), ..Fact::of(setting) });
        }
        Expected { facts, refused: before.refused.len() }
    }

    fn compare(mut self, file: &Path, after: &Reading) -> Result<(), ProposalError> {
        let mut found: Vec<Fact> = after.settings.iter().map(Fact::of).collect();
        for list in [&mut self.facts, &mut found] {
            list.sort();
            list.dedup();
        }
        if self.facts == found && self.refused == after.refused.len() {
            return Ok(());
        }
        // In the order of the text, as many as a message may name.
        let first = after.settings.iter().take(MOST_TOLD);
        let places: Vec<String> = first.map(|setting| setting.endpoint.to_string()).collect();
        Err(ProposalError::Differs { file: file.to_owned(), found: places.join(", ") })
    }
}

/// The content of a setting, without its position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fact {
    endpoint: String,
    listens: bool,
    protocol: &'static str,
    user: Option<String>,
    database: Option<String>,
}

impl Fact {
    fn of(setting: &Setting) -> Self {
        Fact {
            endpoint: setting.endpoint.to_string(),
            listens: setting.role == Role::Listens,
            protocol: setting.protocol.name(),
            user: setting.user.clone(),
            database: setting.database.clone(),
        }
    }
}

/// An edit in progress; `C` is the configuration as its editor reads it.
pub(crate) struct Editing<'a, C> {
    pub(crate) file: &'a Path,
    pub(crate) files: &'a Metered<'a>,
    pub(crate) text: Rc<Vec<u8>>,
    pub(crate) configuration: &'a C,
    pub(crate) setting: &'a Setting,
    pub(crate) goal: &'a Goal,
    pub(crate) edits: Vec<Edit>,
}

impl<'a, C> Editing<'a, C> {
    pub(crate) fn new(
        file: &'a Path,
        files: &'a Metered<'a>,
        configuration: &'a C,
        setting: &'a Setting,
        goal: &'a Goal,
    ) -> Result<Self> {
        let text = files.once(file, || lines::read(file, files))?;
        Ok(Editing { file, files, text, configuration, setting, goal, edits: Vec::new() })
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.setting.file, self.setting.line, reason, by_hand)
    }
}
