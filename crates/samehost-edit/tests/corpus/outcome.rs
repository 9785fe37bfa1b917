//! What an editor makes of a case, and whether that is what is written down.

use std::path::Path;

use samehost_edit::{Editor, Move, ProposalError, propose};

use crate::case::{Case, Outcome};
use crate::disk::Disk;

/// What the editor makes of an unpacked case, which is the result that the case has.
pub(crate) fn held(editor: &dyn Editor, case: &Case, root: &Path) -> Result<Outcome, String> {
    let file = case.file(root);
    let text = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    if !editor.recognises(&file, &text) {
        return Err("the editor does not recognise the file".into());
    }
    let outcome = outcome(editor, case, &file, root);
    case.hold(&outcome, root)?;
    Ok(outcome)
}

fn outcome(editor: &dyn Editor, case: &Case, file: &Path, root: &Path) -> Outcome {
    let reading = match editor.read(file, &Disk::default()) {
        Ok(reading) => reading,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let moves: Vec<Move> = reading
        .settings
        .iter()
        .filter_map(|setting| Some(Move { setting: setting.clone(), goal: case.goal(root, setting)? }))
        .collect();
    if moves.is_empty() {
        return match reading.refused.first() {
            Some(refusal) => Outcome::Refused(refusal.clone()),
            None => Outcome::Nothing(reading.settings),
        };
    }
    match propose(editor, file, &Disk::default(), &moves) {
        Ok(proposals) if proposals.is_empty() => Outcome::Nothing(reading.settings),
        Ok(proposals) => {
            Outcome::Edited(proposals.into_iter().map(|proposal| (proposal.file, proposal.after)).collect())
        }
        Err(ProposalError::Refused(refusal)) => Outcome::Refused(refusal),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
