//! `samehost report FILE…`.

use crate::cli::ReportOptions;
use crate::exit::{self, Ending};
use crate::storage;
use crate::wrong_use::WrongUse;

pub fn report(options: &ReportOptions) -> anyhow::Result<Ending> {
    let files = if options.files.is_empty() {
        vec![storage::all().pop().ok_or_else(|| WrongUse("nothing is stored yet; name a file".into()))?]
    } else {
        options.files.clone()
    };
    if files.len() > 1 && options.output.is_sent() {
        let text =
            "--json, --csv, --markdown, --html, --prometheus and --otlp take one stored result at a time";
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
