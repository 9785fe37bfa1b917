//! `samehost report FILE…`.

use crate::cli::ReportOptions;
use crate::commands::bench::ending;
use crate::exit::{Ending, WrongUse};
use crate::storage;

pub fn report(options: &ReportOptions) -> anyhow::Result<Ending> {
    let files = if options.files.is_empty() {
        vec![storage::newest().ok_or_else(|| WrongUse("nothing is stored yet; name a file".into()))?]
    } else {
        options.files.clone()
    };
    let to_files =
        options.output.json.is_some() || options.output.csv.is_some() || options.output.markdown.is_some();
    if files.len() > 1 && to_files {
        return Err(WrongUse("--json, --csv and --markdown take one stored result at a time".into()).into());
    }
    let mut last = Ending::Done;
    for file in &files {
        let report = storage::read(file)?;
        options.output.open()?.write(&report)?;
        match ending(&report, &options.assert) {
            Ending::Finding => last = Ending::Finding,
            Ending::Done | Ending::Interrupted | Ending::CutShort => {}
        }
    }
    Ok(last)
}
