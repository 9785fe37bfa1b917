//! A program's own check of a configuration: what to run, and what it would read. Nothing is run here.

use std::path::{Path, PathBuf};

/// A program that can check its own configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// nginx and its relatives.
    Nginx,
    /// PHP-FPM.
    PhpFpm {
        /// Name of the program that the configuration belongs to, if its path has a version: `php-fpm8.2`.
        preferred: Option<String>,
    },
    /// PHP itself.
    Php,
    /// Docker Compose.
    Compose,
}

/// The check of an editor's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The program that makes it.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Everything that the program would read or load because of it; the file in question first.
    pub reads: Vec<PathBuf>,
    /// Why that list is incomplete, if it is.
    pub unknown: Option<String>,
}

impl Check {
    /// PHP's own syntax check, which executes nothing.
    pub(crate) fn php(file: &Path) -> Option<Self> {
        let arguments = vec!["-l".into(), file.to_str()?.to_owned()];
        Some(Check { program: Program::Php, arguments, reads: vec![file.to_owned()], unknown: None })
    }
}
