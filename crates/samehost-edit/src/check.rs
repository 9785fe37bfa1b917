//! The program's own check of a configuration: what to run, and what it would read. Nothing is run here.

use std::path::{Path, PathBuf};

/// A program that can check a configuration of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// nginx and its relatives.
    Nginx,
    /// PHP-FPM.
    PhpFpm {
        /// The name of the one that the configuration belongs to, where its path has a version: `php-fpm8.2`.
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
    /// All that the program would read or load because of it; the file that it is about first.
    pub reads: Vec<PathBuf>,
    /// Why that list is incomplete, where it is.
    pub unknown: Option<String>,
}

impl Check {
    /// PHP's own check of a file's syntax, which runs nothing of it.
    pub(crate) fn php(file: &Path) -> Option<Self> {
        let arguments = vec!["-l".into(), file.to_str()?.to_owned()];
        Some(Check { program: Program::Php, arguments, reads: vec![file.to_owned()], unknown: None })
    }
}
