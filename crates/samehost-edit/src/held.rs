//! Edits held against the goal by reading the result, before anyone proposes them: where lines contradict each other, one
//! more line may not be what counts, and that is refused with words for the user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::edit::{Edit, apply};
use crate::editor::Editor;
use crate::files::{Files, Overlay};
use crate::goal::Goal;
use crate::lines::refuse;
use crate::refusal::Refusal;
use crate::setting::{Reading, Role, Setting};

/// What a setting says, without its place.
type Said = (String, Option<String>, Option<String>);

fn said(setting: &Setting) -> Said {
    (setting.endpoint.to_string(), setting.user.clone(), setting.database.clone())
}

/// The edits, where they do exactly what the goal says.
///
/// # Errors
/// A refusal where the edited files would say something else, or would not be understood.
pub(super) fn held(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    setting: &Setting,
    goal: &Goal,
    edits: Vec<Edit>,
) -> Result<Vec<Edit>, Refusal> {
    let before = editor.read(file, files)?;
    let stop = || {
        refuse(
            &setting.file,
            setting.line,
            "other lines or included files override what would be written, or would change with it",
            format!("make `{}` say {}, and remove the lines that contradict it", setting.name, goal.endpoint),
        )
    };
    let after = read(editor, file, files, &edits).ok_or_else(stop)?;
    let stays = goal.stays && setting.role == Role::Listens && editor.listens_on_both();
    let mut expected: BTreeSet<Said> = BTreeSet::new();
    for one in &before.settings {
        let moves = one.name == setting.name && one.line == setting.line;
        if !moves || stays {
            expected.insert(said(one));
        }
        if moves {
            let (_, user, database) = said(one);
            expected.insert((goal.endpoint.to_string(), user, database));
        }
    }
    let found: BTreeSet<Said> = after.settings.iter().map(said).collect();
    if found == expected && after.refused.len() == before.refused.len() { Ok(edits) } else { Err(stop()) }
}

/// What the edited files would say; none where they would not be understood.
fn read(editor: &dyn Editor, file: &Path, files: &dyn Files, edits: &[Edit]) -> Option<Reading> {
    let mut by_file: BTreeMap<PathBuf, Vec<&Edit>> = BTreeMap::new();
    for edit in edits {
        by_file.entry(edit.file.clone()).or_default().push(edit);
    }
    let mut changed = BTreeMap::new();
    for (path, edits) in by_file {
        let text = files.read(&path).unwrap_or_default();
        changed.insert(path, apply(&text, &edits).ok()?);
    }
    editor.read(file, &Overlay::new(files, changed)).ok()
}
