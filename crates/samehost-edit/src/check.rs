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
    /// Apache httpd.
    Apache,
    /// HAProxy.
    Haproxy,
    /// Caddy.
    Caddy,
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
    /// What of the configuration the program executes while it checks: `Lua`.
    pub executes: Option<&'static str>,
}

impl Check {
    /// PHP's own syntax check, which executes nothing.
    pub(crate) fn php(file: &Path) -> Option<Self> {
        let arguments = vec!["-l".into(), file.to_str()?.to_owned()];
        let reads = vec![file.to_owned()];
        Some(Check { program: Program::Php, arguments, reads, unknown: None, executes: None })
    }

    /// The check of a program that takes the rest of its arguments and its environment from the running service.
    pub(crate) fn of_service(program: Program, argument: &str, reads: Vec<PathBuf>) -> Self {
        Check { program, arguments: vec![argument.to_owned()], reads, unknown: None, executes: None }
    }
}
