//! A server's configuration that is being edited.

use std::path::Path;

use crate::edit::Edit;
use crate::files::Files;
use crate::goal::Goal;
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;

/// An edit in progress; `C` is the configuration as its editor reads it.
pub(crate) struct Editing<'a, C> {
    pub(crate) file: &'a Path,
    pub(crate) files: &'a dyn Files,
    pub(crate) text: Vec<u8>,
    pub(crate) configuration: &'a C,
    pub(crate) setting: &'a Setting,
    pub(crate) goal: &'a Goal,
    pub(crate) edits: Vec<Edit>,
}

impl<'a, C> Editing<'a, C> {
    pub(crate) fn new(
        file: &'a Path,
        files: &'a dyn Files,
        configuration: &'a C,
        setting: &'a Setting,
        goal: &'a Goal,
    ) -> Result<Self> {
        let text = lines::read(file, files)?;
        Ok(Editing { file, files, text, configuration, setting, goal, edits: Vec::new() })
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.setting.file, self.setting.line, reason, by_hand)
    }
}
