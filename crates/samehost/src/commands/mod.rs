//! One file for each verb; converts options into library calls, and results into output.

mod bench;
mod checkup;
mod compare;
mod history;
mod how;
mod log_in_as;
mod report;
mod reproduce;
mod scan;
mod sends_at_once;
mod serve;
mod shell;
mod supervise;
mod switch;
mod top;
mod verify;

pub use bench::bench;
pub use checkup::checkup;
pub use compare::compare;
pub use history::history;
pub use how::how;
pub use log_in_as::log_in_as;
pub use report::report;
pub use reproduce::reproduce;
pub use scan::scan;
pub use sends_at_once::sends_at_once;
pub use serve::serve;
pub use shell::{completions, man};
pub use supervise::{become_server, supervise, try_own_network};
pub use switch::{switch, watch_switch};
pub use top::top;
pub use verify::verify;
