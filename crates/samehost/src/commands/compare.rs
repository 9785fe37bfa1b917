//! `samehost compare OLD NEW`.

use std::io::Write;

use anyhow::Context;
use samehost_model::Verdict;

use crate::cli::CompareOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

pub fn compare(options: &CompareOptions) -> anyhow::Result<Ending> {
    let old = storage::read(&options.old)?;
    let new = storage::read(&options.new)?;
    let changes = samehost_analysis::compare(&old, &new).map_err(|error| WrongUse(error.to_string()))?;
    let mut bytes = Vec::new();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(&mut bytes, &changes)?;
        bytes.push(b'\n');
        output::write_to(path, &bytes)?;
    }
    if options.json.as_deref() != Some(std::path::Path::new("-")) {
        bytes.clear();
        output::terminal().render_changes(&changes, &old, &new, &mut bytes)?;
        std::io::stdout().write_all(&bytes).context("standard output")?;
    }
    let slower = changes.arms.iter().filter(|change| change.verdict == Verdict::Slower).count();
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!("{slower} of {} comparisons became slower", changes.arms.len()));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}
