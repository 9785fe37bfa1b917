//! `samehost compare OLD NEW`, and `samehost compare FOLDER` of many hosts.

use std::io::Write;
use std::path::PathBuf;

use samehost_analysis::{HostReport, Hosts};
use samehost_model::Verdict;
use samehost_report::Terminal;

use crate::cli::CompareOptions;
use crate::commands::host_reports::{Gathered, gather, has_hosts, no_report};
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

impl Gathered for Hosts {
    fn add(&mut self, host: &str, report: &HostReport) {
        Hosts::add(self, host, report);
    }

    fn merge(&mut self, other: Self) {
        Hosts::merge(self, other);
    }
}

/// Which of many hosts differ, by the reports of a folder or of standard input.
fn compare_hosts(options: &CompareOptions) -> anyhow::Result<Ending> {
    if !has_hosts(&options.old) {
        let text =
            "name two results to compare, or one folder with reports of many hosts, or - for standard input";
        return Err(WrongUse(text.into()).into());
    }
    let is_stdout_taken =
        output::is_stdout_taken([&options.json, &options.html].into_iter().flatten().map(PathBuf::as_path))?;
    // A wrong path is said before 10,000 reports are read.
    let page = options.html.as_deref().map(output::open).transpose()?;
    let found = gather::<Hosts>(&options.old)?.compare();
    if found.reports == 0 {
        return Err(no_report(&options.old));
    }
    #[cfg(feature = "html")]
    if let Some(page) = page {
        let mut bytes = Vec::new();
        samehost_report::hosts_as_html(&found, &mut bytes)?;
        output::write(page, &bytes)?;
    }
    #[cfg(not(feature = "html"))]
    drop(page);
    if let Some(path) = &options.json {
        output::write_to(path, &output::as_json(&found)?)?;
    }
    if !is_stdout_taken {
        output::show(|terminal: &Terminal, out: &mut dyn Write| terminal.render_hosts(&found, out))?;
    }
    let slower = found.differ.iter().any(|host| host.is_slower == Some(true));
    Ok(if options.fail_on_slower && slower { Ending::Finding } else { Ending::Done })
}
