//! Wrong use or bad input; and use of what a build can be without, by its cargo features: `switch`, HTML pages. That verb
//! stays on the command line, hidden, so that whoever types it reads what was left out, and not that it is unknown.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use samehost_system::Refusal;

/// Invalid usage or input: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(pub String);

/// What was asked for is sound, and what is found here bars it: nothing was touched. Exit status 1.
#[cfg(feature = "switch")]
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The error of a file that was named on the command line and cannot be read: wrong use, unless the system call by which it is
/// read is refused here, whatever file is named.
pub fn of_named_file(path: &Path, error: io::Error) -> anyhow::Error {
    match Refusal::within(&error) {
        Some(_) => anyhow::Error::new(error).context(path.display().to_string()),
        None => WrongUse(format!("{}: {error}", path.display())).into(),
    }
}

/// An error for what this build does not have, with what can be done instead.
pub fn left_out(what: &str, feature: &str, instead: &str) -> WrongUse {
    WrongUse(format!(
        "{what} was left out of this build.\nThe cargo feature `{feature}` has it, which is on by default.\n{instead}"
    ))
}

/// Reads the path of a page; refuses it before anything is measured if this build makes no pages.
pub fn page_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if cfg!(feature = "html") {
            return Ok(path);
        }
        let instead = "Keep the result with --json FILE; elsewhere, `samehost report FILE --html PAGE`\nmakes the page of it.";
        // clap names the option and the path before it, on a line of their own.
        let error = left_out("HTML", "html", instead);
        Err(WrongUse(format!("\n{error}")))
    })
}

/// Whatever follows a verb that was left out.
#[cfg(not(feature = "switch"))]
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct AnyWords {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}
