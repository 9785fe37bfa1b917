//! One file for each verb; converts options into library calls, and results into output.

mod bench;
mod checkup;
mod compare;
mod explain;
mod hidden;
mod history;
mod host_reports;
mod how;
mod prune;
mod report;
mod reproduce;
mod run;
mod scan;
mod scan_changes;
mod scan_metrics;
mod sends_at_once;
mod serve;
mod shell;
mod supervise;
#[cfg(feature = "switch")]
mod switch;
#[cfg(feature = "tui")]
mod top;
mod trial;
mod verify;

pub use bench::bench;
pub use checkup::checkup;
pub use compare::compare;
pub use explain::explain;
pub use hidden::{hand_over, log_in_as};
pub use history::history;
pub use how::how;
pub use prune::prune;
pub use report::report;
pub use reproduce::reproduce;
pub use run::run;
pub use scan::scan;
pub use sends_at_once::sends_at_once;
pub use serve::serve;
pub use shell::{completions, man};
pub use supervise::{become_server, supervise, try_own_network};
#[cfg(feature = "switch")]
pub use switch::{switch, watch_switch};
#[cfg(feature = "tui")]
pub use top::top;
pub use verify::verify;

#[cfg(not(feature = "switch"))]
pub fn switch(_: &crate::left_out::AnyWords) -> anyhow::Result<crate::exit::Ending> {
    Err(crate::left_out::switch().into())
}

#[cfg(not(feature = "tui"))]
pub fn top(_: &crate::left_out::AnyWords) -> anyhow::Result<crate::exit::Ending> {
    Err(crate::left_out::top().into())
}
