//! Prompts on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::cli::SwitchOptions;
use crate::wrong_use::WrongUse;

/// Whether both standard input and output are a terminal.
pub(super) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Fails if a prompt is impossible.
pub(super) fn may_ask(options: &SwitchOptions) -> anyhow::Result<()> {
    if is_attended() && !options.json {
        return Ok(());
    }
    Err(WrongUse(
        "cannot prompt: standard input is not a terminal; look with --dry-run, then use --yes".into(),
    )
    .into())
}

/// Prompts, and returns whether the answer is yes.
pub(super) fn agrees() -> anyhow::Result<bool> {
    let mut stdout = io::stdout();
    write!(stdout, "\nDo this? [y/N] ")?;
    stdout.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
