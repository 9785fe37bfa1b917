//! What an editor of one format does. It reads a configuration as the program does that the format is of, and says which
//! bytes to change. It writes nothing, starts nothing, and refuses what it does not understand.

use std::path::{Path, PathBuf};

use crate::check::Check;
use crate::edit::Edit;
use crate::files::Files;
use crate::goal::Goal;
use crate::refusal::Result;
use crate::setting::{Reading, Setting, Uptake};

/// An editor of one format.
pub trait Editor: Sync {
    /// Its name in JSON, in the corpus and on the command line: `wp-config`.
    fn name(&self) -> &'static str;

    /// What it edits, in a few words.
    fn about(&self) -> &'static str;

    /// Where such a file lies in the directory of an application (`wp-config.php`, `config/database.yml`), the most usual
    /// first; empty for servers.
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a file is of this format, by its path and its text.
    fn recognises(&self, path: &Path, text: &[u8]) -> bool;

    /// The connections that the file names, includes followed where the program follows them.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal), when the file as a whole is not understood or cannot be read.
    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading>;

    /// The bytes to change so that a setting of [`Editor::read`] becomes what the goal says. No edit where it says so
    /// already. Pure: the same input gives the same edits.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal), when that cannot be said in this file, with the edit to make by hand.
    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>>;

    /// Whether a server of this format can listen at two endpoints at once.
    fn listens_on_both(&self) -> bool {
        false
    }

    /// Whether a client of this format can name the old and the new endpoint of this setting at once, and uses the one
    /// that answers: an edit with `Goal::stays` then does that.
    fn connects_to_both(&self, _setting: &Setting) -> bool {
        false
    }

    /// The socket of a setting's server, of a path for them all: where servers number their sockets, one for each.
    fn socket(&self, _setting: &Setting, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// For a server that listens at one place only: edits after which a copy of it listens at the goal beside it, for a
    /// moment. None where that cannot be.
    ///
    /// # Errors
    /// As [`Editor::edit`].
    fn transition(
        &self,
        _file: &Path,
        _files: &dyn Files,
        _setting: &Setting,
        _goal: &Goal,
    ) -> Result<Option<Vec<Edit>>> {
        Ok(None)
    }

    /// The command that says whether the file on disk is well formed; none where there is none, and none
    /// that would run or import what the file names: a configuration that is a program (ERB, Python) has been read by
    /// the editor, before and after, and that is its check.
    fn check(&self, _file: &Path, _files: &dyn Files) -> Option<Check> {
        None
    }

    /// How the program takes a change.
    fn uptake(&self) -> Uptake;
}
