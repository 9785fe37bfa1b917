//! What the users of this crate ask of an editor: the questions of its format, within the budget of what reading may cost, and an
//! edit only where the file then says what was asked.

use std::path::Path;

use samehost_model::Endpoint;

use crate::budget;
use crate::editor::{Check, Editor};
use crate::files::{Edit, Files};
use crate::proposal::verify_edits;
use crate::refusal::Result;
use crate::setting::{Goal, Reading, Setting};

impl dyn Editor + '_ {
    /// # Errors
    /// As [`Editor::read_metered`], and when it takes more than the file's length allows.
    pub fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        budget::within(file, files, |files| self.read_metered(file, files))
    }

    /// # Errors
    /// As [`Editor::edit_metered`], and when it takes more than the file's length allows.
    pub fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        budget::within(file, files, |metered| {
            let edits = self.edit_metered(file, metered, setting, goal)?;
            if self.may_contradict_itself() {
                verify_edits(self, file, files, setting, goal, edits)
            } else {
                Ok(edits)
            }
        })
    }

    /// # Errors
    /// As [`Editor::same_site_metered`], and when it takes more than the file's length allows.
    pub fn same_site(&self, file: &Path, files: &dyn Files, setting: &Setting) -> Result<Vec<Endpoint>> {
        budget::within(file, files, |files| self.same_site_metered(file, files, setting))
    }

    /// # Errors
    /// As [`Editor::transition_metered`], and when it takes more than the file's length allows.
    pub fn transition(
        &self,
        file: &Path,
        files: &dyn Files,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Option<Vec<Edit>>> {
        budget::within(file, files, |files| self.transition_metered(file, files, setting, goal))
    }

    /// As [`Editor::check_metered`]; `None` also when it takes more than the file's length allows.
    #[must_use]
    pub fn check(&self, file: &Path, files: &dyn Files) -> Option<Check> {
        budget::within(file, files, |files| Ok(self.check_metered(file, files))).unwrap_or(None)
    }

    /// As [`Editor::in_container_metered`]; `None` also when it takes more than the file's length allows.
    #[must_use]
    pub fn in_container(&self, file: &Path, files: &dyn Files, setting: &Setting) -> Option<String> {
        budget::within(file, files, |files| Ok(self.in_container_metered(file, files, setting)))
            .unwrap_or(None)
    }
}
