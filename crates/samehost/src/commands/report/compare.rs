//! `samehost report compare OLD NEW`: what changed from one stored result to another.

use std::io::Write;

use samehost_model::Verdict;
use samehost_report::Terminal;

use crate::cli::CompareOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

pub fn compare(options: &CompareOptions) -> anyhow::Result<Ending> {
    let Some(new) = &options.new else {
        // `compare FOLDER` compared many hosts.
        let text = "name two results: samehost report compare OLD NEW; many hosts are compared where their metrics are \
                    gathered: samehost bench … --prometheus FILE";
        return Err(WrongUse(text.into()).into());
    };
    let old = storage::read(&options.old)?;
    let new = storage::read(new)?;
    let changes = samehost_analysis::compare(&old, &new).map_err(|error| WrongUse(error.to_string()))?;
    let render =
        |terminal: &Terminal, out: &mut dyn Write| terminal.render_changes(&changes, &old, &new, out);
    output::json_or_show(options.json.as_deref(), || &changes, render)?;
    let slower = changes.arms.iter().filter(|change| change.verdict == Verdict::Slower).count();
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!("{slower} of {} comparisons became slower", changes.arms.len()));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}
