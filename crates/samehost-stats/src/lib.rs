//! Statistics for `samehost`: estimates with intervals, tests, and rules for stopping. Numbers in, numbers out.
//!
//! It knows no report, no metric and no sentence, opens no file, reads no clock and prints nothing. docs/method.md
//! explains every rule to a reader.

mod estimate;
pub mod holm;
mod interval;
pub mod normal;
mod sequential;
pub mod serial;
pub mod signed_rank;
pub mod starts;
mod stopping;
pub mod student;
pub mod trend;
pub mod two_sample;

pub use estimate::{
    Asked, Estimate, Method, SIGNED_RANK_FROM, estimate, estimate_pairs, estimate_shift, side_of,
};
pub use interval::{Interval, median};
pub use sequential::{FIRST_LOOK, blocks_for_clear, estimate_sequential, log_evidence, repeated_interval};
pub use stopping::{is_confirmed, is_precise, least_blocks_for, looks, min_blocks_for};
