//! Completions and manual pages, generated from the command line's own definition.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Ending;
use crate::{manual, output};

pub fn completions(shell: Shell) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "samehost", &mut script);
    output::Stdout.write_all(&script).context("standard output")?;
    Ok(Ending::Done)
}

pub fn man(directory: &Path) -> anyhow::Result<Ending> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for page in manual::pages()? {
        let path = directory.join(&page.file);
        std::fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    }
    Ok(Ending::Done)
}
