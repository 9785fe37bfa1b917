//! `samehost report FILE…`, and what else is done with stored results: list, compare, prune.

mod compare;
mod list;
mod prune;

use crate::cli::{ReportOptions, ReportVerb};
use crate::exit::{self, Ending};
use crate::storage;
use crate::wrong_use::WrongUse;

pub fn report(options: &ReportOptions) -> anyhow::Result<Ending> {
    match &options.verb {
        Some(ReportVerb::List(options)) => list::list(options),
        Some(ReportVerb::Compare(options)) => compare::compare(options),
        Some(ReportVerb::Prune(options)) => prune::prune(options),
        None => render(options),
    }
}

fn render(options: &ReportOptions) -> anyhow::Result<Ending> {
    let files = if options.files.is_empty() {
        vec![storage::all().pop().ok_or_else(|| WrongUse("nothing is stored yet; name a file".into()))?]
    } else {
        options.files.clone()
    };
    if files.len() > 1 && options.output.has_files() {
        let text = "--json, --csv, --markdown, --html and --prometheus take one stored result at a time";
        return Err(WrongUse(text.into()).into());
    }
    let mut last = Ending::Done;
    for file in &files {
        let report = storage::read(file)?;
        exit::check_claims(&options.assert, &report.head.arms, &report.head.workload.metrics)?;
        options.output.open()?.write(&report)?;
        match exit::of_report(&report, &options.assert) {
            Ending::Finding => last = Ending::Finding,
            Ending::Undecided if last == Ending::Done => last = Ending::Undecided,
            _ => {}
        }
    }
    Ok(last)
}
