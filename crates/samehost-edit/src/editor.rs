//! The interface of the editor of one format. It reads a configuration as the format's program does, and says which
//! bytes to change. It writes nothing, starts nothing, and refuses what it does not understand.

use std::path::{Path, PathBuf};

use samehost_model::Endpoint;

use crate::check::Check;
use crate::edit::Edit;
use crate::files::Files;
use crate::refusal::Result;
use crate::setting::{Goal, Reading, Setting, Uptake};

/// An editor of one format.
pub trait Editor: Sync {
    /// Name in JSON, in the corpus and on the command line: `wp-config`.
    fn name(&self) -> &'static str;

    /// What it edits, in a few words.
    fn about(&self) -> &'static str;

    /// Names of such files in the directory of an application (`wp-config.php`, `config/database.yml`), the most usual
    /// first; empty for servers.
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a file has this format, by its path and its text.
    fn recognises(&self, path: &Path, text: &[u8]) -> bool;

    /// The connections in the file, following includes as the program does.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal), when the file as a whole is not understood or cannot be read.
    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading>;

    /// The bytes to change so that a setting of [`Editor::read`] reaches the goal; none if it is there already. Pure:
    /// the same input gives the same edits.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal), when that cannot be said in this file, with the edit to make by hand.
    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>>;

    /// Whether a server of this format can listen at two endpoints at once.
    fn listens_on_both(&self) -> bool {
        false
    }

    /// Whether a client of this format can name the old and the new endpoint of this setting at once and uses the one
    /// that answers. An edit with `Goal::stays` then adds the new one.
    fn connects_to_both(&self, _setting: &Setting) -> bool {
        false
    }

    /// Where else the site or pool of this listener listens, in a configuration that has several of them. Another site's
    /// address is none of these, though the same process has it open.
    ///
    /// # Errors
    /// As [`Editor::read`].
    fn same_site(&self, _file: &Path, _files: &dyn Files, _setting: &Setting) -> Result<Vec<Endpoint>> {
        Ok(Vec::new())
    }

    /// Socket of a setting's server, from a path for all of them, if the servers number their sockets.
    fn socket(&self, _setting: &Setting, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// For a server that listens at one place only: edits that start a copy of it at the goal for a while. `None` if
    /// that is impossible.
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

    /// The command that checks whether the file on disk is well formed; `None` if there is none, or if it would run or
    /// import what the file names. A configuration that is a program (ERB, Python) was checked by the editor, which
    /// read it before and after.
    fn check(&self, _file: &Path, _files: &dyn Files) -> Option<Check> {
        None
    }

    /// What to write by hand for a setting whose server runs in another container of the same file, where no login from
    /// here reaches it; `None` for every other one.
    fn in_container(&self, _file: &Path, _files: &dyn Files, _setting: &Setting) -> Option<String> {
        None
    }

    /// Whether the program that reads this file sees of this machine what the file mounts for it, so that the view of one that
    /// runs now says nothing about the next one.
    fn mounts(&self) -> bool {
        false
    }

    /// How the program that reads this file takes a change.
    fn uptake(&self, file: &Path) -> Uptake;
}
