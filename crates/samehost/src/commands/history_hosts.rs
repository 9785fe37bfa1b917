//! `samehost history FOLDER`: the runs of many hosts, and whether the newest of each differs from its earlier ones.

use std::path::Path;

use samehost_analysis::{Histories, HostReport};

use super::history::measures;
use super::host_reports::{Gathered, gather, no_report};
use crate::cli::HistoryOptions;
use crate::exit::Ending;
use crate::output;

impl Gathered for Histories {
    fn add(&mut self, host: &str, report: &HostReport) {
        Histories::add(self, host, &measures(&report.command).join(" "), report);
    }

    fn merge(&mut self, other: Self) {
        Histories::merge(self, other);
    }
}

pub(super) fn history_hosts(place: &Path, options: &HistoryOptions) -> anyhow::Result<Ending> {
    let found = gather::<Histories>(place)?.in_order();
    if found.reports == 0 {
        return Err(no_report(place));
    }
    output::json_or_show(
        options.json.as_deref(),
        || &found,
        |terminal, out| terminal.render_hosts_history(&found, out),
    )?;
    let newest = found.histories.iter().filter_map(|history| history.newest.as_ref());
    let slower = newest.filter(|newest| newest.is_slower == Some(true)).count();
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!(
            "{slower} of the newest runs are slower than the earlier ones of their host"
        ));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}
