//! One file for each verb, with `explain` beside `scan`, and one for the hidden ones; converts options into library calls, and results into
//! output.

mod bench;
mod checkup;
mod how;
mod internal;
mod report;
mod reproduce;
mod run;
mod scan;
mod serve;
mod shell;
#[cfg(feature = "switch")]
mod switch;
mod top;
mod trial;
mod verify;

pub use bench::bench;
pub use checkup::checkup;
pub use how::how;
pub use internal::{
    become_server, hand_over, log_in_as, sends_at_once, stand_in, supervise, try_own_network,
};
pub use report::report;
pub use reproduce::reproduce;
pub use run::run;
pub use scan::{explain, scan};
pub use serve::serve;
pub use shell::{completions, man};
#[cfg(feature = "switch")]
pub use switch::{switch, watch_switch};
pub use top::top;
pub use verify::verify;

#[cfg(not(feature = "switch"))]
pub fn switch(_: &crate::wrong_use::AnyWords) -> anyhow::Result<crate::exit::Ending> {
    let instead = "By hand: `samehost how SERVICE` has what to write into which configuration.";
    Err(crate::wrong_use::left_out("`samehost switch`", "switch", instead).into())
}
