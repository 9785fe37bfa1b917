//! The interface of the editor of one format. It reads a configuration as the format's program does, and says which
//! bytes to change. It writes nothing, starts nothing, and refuses what it does not understand.

use std::path::{Path, PathBuf};

use samehost_model::Endpoint;

use crate::budget::Metered;
use crate::files::Edit;
use crate::refusal::{Reason, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// The editor of one format. What reads a configuration gets files that count, and is called by the methods of `dyn Editor`
/// alone: [`Editor::read_metered`] by `read`, and so on. So no format can be asked outside of the budget.
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
    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading>;

    /// The bytes to change so that a setting of [`Editor::read_metered`] reaches the goal; none if it is there already. Pure:
    /// the same input gives the same edits.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal), when that cannot be said in this file, with the edit to make by hand.
    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>>;

    /// Whether another line, or an included file, may say otherwise than an edit. Where one does, only the user can resolve it,
    /// so each edit is held against what the file says with it.
    fn may_contradict_itself(&self) -> bool {
        false
    }

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
    /// One process may serve several sites, so that it has a socket open says nothing about whose it is: only the
    /// configuration says which socket belongs to a port, and nobody guesses (docs/decisions/0129).
    ///
    /// # Errors
    /// As [`Editor::read_metered`].
    fn same_site_metered(
        &self,
        _file: &Path,
        _files: &Metered<'_>,
        _setting: &Setting,
    ) -> Result<Vec<Endpoint>> {
        Ok(Vec::new())
    }

    /// For a server that listens at one place only: edits that start a copy of it at the goal for a while. `None` if
    /// that is impossible.
    ///
    /// # Errors
    /// As [`Editor::edit_metered`].
    fn transition_metered(
        &self,
        _file: &Path,
        _files: &Metered<'_>,
        _setting: &Setting,
        _goal: &Goal,
    ) -> Result<Option<Vec<Edit>>> {
        Ok(None)
    }

    /// The command that checks whether the file on disk is well formed; `None` if there is none, or if it would run or
    /// import what the file names. A configuration that is a program (ERB, Python) was checked by the editor, which
    /// read it before and after.
    fn check_metered(&self, _file: &Path, _files: &Metered<'_>) -> Option<Check> {
        None
    }

    /// What to write by hand for a setting whose server runs in another container of the same file, where no login from
    /// here reaches it; `None` for every other one.
    fn in_container_metered(&self, _file: &Path, _files: &Metered<'_>, _setting: &Setting) -> Option<String> {
        None
    }

    /// Whether a variable of the program's environment goes before what this text says: the text itself asks for it, or
    /// the program's framework does, without a word in the file.
    fn is_beaten_by(&self, text: &str, variable: &str) -> bool {
        asks_for(text, variable)
    }

    /// How the program that reads this file takes a change.
    fn uptake(&self, file: &Path) -> Uptake;
}

/// Whether the code of a text, and not a comment, has a name as a whole word.
pub(crate) fn asks_for(text: &str, name: &str) -> bool {
    for line in text.lines().map(str::trim_start) {
        if ["#", "//", "*", ";", "--"].iter().any(|sign| line.starts_with(sign)) {
            continue;
        }
        let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        if words.any(|word| word == name) {
            return true;
        }
    }
    false
}

// A program's own check of a configuration: what to run, and what it would read. Nothing is run here.

/// A program that can check its own configuration.
/// Its names, how it says that it could not look, and what its check needs of the running service are values beside the
/// editor of its format. Before they were six matches over an enum in `samehost-switch`, far from what they are about.
/// Whether a usual file is there is asked by the caller, since an editor looks at no disk.
#[derive(Debug)]
pub struct Program {
    /// Its name where none of its names is installed: `nginx`.
    pub usual: &'static str,
    /// Whether an installed program of this name is it, where it has several.
    pub is_called: fn(&str) -> bool,
    /// Whether what a failed check wrote only reports that it could not open something, or lacks what it needs.
    pub could_not_look: fn(&str) -> bool,
    /// What it needs of the running service; `None` if the file alone is enough.
    pub service: Option<OfService>,
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.usual == other.usual
    }
}

impl Eq for Program {}

impl Program {
    pub(crate) fn has_one_name(_name: &str) -> bool {
        false
    }
}

/// How a check gets the arguments of the service that runs by the configuration.
#[derive(Debug)]
pub struct OfService {
    /// The check in a note: `haproxy -c`.
    pub shown: &'static str,
    /// The option before each file: `-f`.
    pub file_option: &'static str,
    /// Whether relative names in the files begin in the folder, so that what is in it is read.
    pub reads_folder: bool,
    /// What of a command line, given without the program's name, the check needs as well; or why it would not see what the service sees.
    pub arguments: fn(&[String]) -> Result<Arguments, Reason>,
}

/// Arguments of a running service that its check needs as well.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub options: Vec<String>,
    pub files: Vec<PathBuf>,
    /// Where it names none: the first of these that there is.
    pub usual: Vec<PathBuf>,
    /// Where relative names begin, if the command line says so.
    pub folder: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub program: &'static Program,
    /// Name of the installed program that is preferred: `php-fpm8.2`, where the configuration's path has that version.
    pub preferred: Option<String>,
    pub arguments: Vec<String>,
    /// Everything that the program would read or load because of it; the file in question first.
    pub reads: Vec<PathBuf>,
    /// Why that list is incomplete, if it is.
    pub unknown: Option<String>,
    /// What of the configuration the program executes while it checks: `Lua`.
    pub executes: Option<&'static str>,
}

static PHP: Program = Program {
    usual: "php",
    is_called: Program::has_one_name,
    could_not_look: |output| {
        written_lines(output).all(|line| line.starts_with("Could not open input file: "))
    },
    service: None,
};

impl Check {
    /// A check that executes nothing and reads all that it reads.
    pub(crate) fn new(program: &'static Program, arguments: Vec<String>, reads: Vec<PathBuf>) -> Self {
        Check { program, preferred: None, arguments, reads, unknown: None, executes: None }
    }

    /// PHP's own syntax check, which executes nothing.
    pub(crate) fn php(file: &Path) -> Option<Self> {
        let arguments = vec!["-l".into(), file.to_str()?.to_owned()];
        Some(Check::new(&PHP, arguments, vec![file.to_owned()]))
    }
}

pub(crate) fn written_lines(output: &str) -> impl DoubleEndedIterator<Item = &str> {
    output.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Whether there are errors, and each is of this kind.
pub(crate) fn is_all<'a>(errors: impl Iterator<Item = &'a str>, is_denied: impl Fn(&str) -> bool) -> bool {
    let mut errors = errors.peekable();
    errors.peek().is_some() && errors.all(is_denied)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A service's command line has these options, files and folder for its check.
    #[track_caller]
    pub(crate) fn assert_reads(
        read: fn(&[String]) -> Result<Arguments, Reason>,
        line: &str,
        options: &str,
        files: &str,
        folder: &str,
    ) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = read(&words).unwrap();
        let found_files: Vec<String> = found.files.iter().map(|file| file.display().to_string()).collect();
        let found_folder = found.folder.map_or_else(String::new, |folder| folder.display().to_string());
        assert_eq!(
            (found.options.join(" ").as_str(), found_files.join(" ").as_str(), found_folder.as_str()),
            (options, files, folder)
        );
    }

    #[test]
    fn only_missing_permissions_are_no_verdict() {
        assert!(!(PHP.could_not_look)("PHP Parse error: x\nErrors parsing /x\n"));
        assert!((PHP.could_not_look)("Could not open input file: /x\n"));
    }
}
