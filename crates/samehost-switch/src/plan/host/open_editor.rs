//! Editors that have a file open: saving there later would overwrite the switch.

use std::fs;
use std::path::{Path, PathBuf};

use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;

use super::note;
use crate::plan::shown;

/// A note if an editor's lock or swap file is beside a file.
pub(super) fn look(file: &Path) -> Option<SwitchObstacle> {
    let mark = marks(file)?.into_iter().find(|mark| fs::symlink_metadata(mark).is_ok())?;
    Some(note(
        ObstacleCode::OpenInEditor,
        format!(
            "{} seems to be open in an editor, or an editor was interrupted: {}",
            shown(file),
            shown(&mark)
        ),
        "Save and close it first: what it saves later would be written over the switch",
    ))
}

/// Vim's swap files (and nano's lock), Emacs' lock and autosave file, LibreOffice's lock.
fn marks(file: &Path) -> Option<Vec<PathBuf>> {
    let name = file.file_name()?.to_str()?;
    let marks = [
        format!(".{name}.swp"),
        format!(".{name}.swo"),
        format!(".#{name}"),
        format!("#{name}#"),
        format!(".~lock.{name}#"),
    ];
    Some(marks.iter().map(|mark| file.with_file_name(mark)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_editors_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.conf");
        fs::write(&file, "").unwrap();
        assert_eq!(look(&file), None);
        // Emacs' lock is a dangling link.
        std::os::unix::fs::symlink("me@host.1:2", directory.path().join(".#a.conf")).unwrap();
        assert!(look(&file).unwrap().found.contains(".#a.conf"));
        fs::write(directory.path().join(".a.conf.swp"), "").unwrap();
        let seen = look(&file).unwrap();
        assert!(seen.found.contains(".a.conf.swp") && !seen.bars, "{seen:?}");
    }
}
