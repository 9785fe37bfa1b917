//! What an undo or a recovery would do to a stored switch, as plain data for people and JSON.

use samehost_edit::Overlay;
use samehost_edit::recognise;
use samehost_model::switch::{StoredSwitch, SwitchStep};
use samehost_model::{Redactor, Secret};

use crate::configuration::config_file::ConfigFile;
use crate::findings::shown;
use crate::plan::stages::stage::Replacement;
use crate::report::diff;
use samehost_transaction::{FileChange, Foreseen, Prospect};

/// What would be done to a stored switch, for people: the changed lines, without passwords of its files.
#[must_use]
pub fn preview(foreseen: &Foreseen) -> StoredSwitch {
    let would = match foreseen.prospect {
        Prospect::PutBack => "it was interrupted, and would be rolled back",
        Prospect::Finish => "it was interrupted after it had been verified, and would be finished",
        Prospect::Undo => "it would be undone",
        Prospect::Forget => "it touched nothing, and would be forgotten",
    };
    let secrets: Vec<Secret> =
        foreseen.stages.iter().flat_map(|stage| &stage.changes).flat_map(secrets).collect();
    let redactor = Redactor::new(&secrets);
    let count = foreseen.stages.len();
    let steps = foreseen.stages.iter().enumerate().map(|(index, stage)| SwitchStep {
        title: if index + 1 == count { "as it was before" } else { "one stage back" }.to_owned(),
        files: stage.changes.iter().map(|change| diff(&replacement(change), &redactor)).collect(),
        checks: Vec::new(),
        reloads: stage.reloads.iter().map(|reload| redactor.command(&reload.what)).collect(),
    });
    let mut left = Vec::new();
    for skipped in &foreseen.left {
        left.push(format!("{} is left as it is: {}", shown(&skipped.path), skipped.reason));
    }
    StoredSwitch {
        id: foreseen.id.clone(),
        summary: redactor.message(&foreseen.summary),
        would: would.to_owned(),
        steps: steps.collect(),
        left,
    }
}

fn replacement(change: &FileChange) -> Replacement {
    let FileChange { path, before, after, like } = change.clone();
    Replacement { path, before, after, like }
}

/// Passwords in either version of a file.
fn secrets(change: &FileChange) -> Vec<Secret> {
    let versions = [&change.before, &change.after].into_iter().flatten();
    let named = versions.filter_map(|text| {
        let editor = recognise(&change.path, text)?;
        let disk = ConfigFile { file: change.path.clone(), editor, reader: None }.files();
        let files = Overlay::new(&disk, [(change.path.clone(), text.clone())].into());
        let reading = editor.read(&change.path, &files).ok()?;
        Some(reading.settings.into_iter().filter_map(|setting| setting.password).collect::<Vec<_>>())
    });
    named.flatten().collect()
}
