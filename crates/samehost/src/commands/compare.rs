//! `samehost compare OLD NEW`, and `samehost compare FOLDER` of many hosts.

use std::io::Write;

use samehost_model::Verdict;
use samehost_report::Terminal;

use super::compare_hosts::compare_hosts;
use crate::cli::CompareOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

pub fn compare(options: &CompareOptions) -> anyhow::Result<Ending> {
    let Some(new) = &options.new else { return compare_hosts(options) };
    if options.html.is_some() {
        let text =
            "--html makes a page of many hosts: name a folder with their reports, or - for standard input";
        return Err(WrongUse(text.into()).into());
    }
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
