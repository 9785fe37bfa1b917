//! Wrong use or bad input; and use of what a build can be without, by its cargo features: `switch`, `top`, HTML pages. Those verbs
//! stay on the command line, hidden, so that whoever types one reads what was left out, and not that it is unknown.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

/// Invalid usage or input: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(pub String);

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
#[cfg(not(all(feature = "switch", feature = "tui")))]
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct AnyWords {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}
