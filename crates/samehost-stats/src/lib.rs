//! Statistics for `samehost`: estimates with intervals, tests, and stopping rules, all as functions of numbers.
//!
//! Has no notion of reports, metrics or texts. Opens no file, reads no clock and prints nothing.
//! docs/method.md explains every rule.

mod estimate;
pub mod holm;
mod interval;
pub mod normal;
pub mod peers;
mod sequential;
pub mod serial;
pub mod signed_rank;
pub mod starts;
mod stopping;
pub mod student;
pub mod trend;
pub mod two_sample;

pub use estimate::{Asked, Estimate, Method, estimate, estimate_pairs, estimate_shift, side_of};
pub use interval::{Interval, median};
pub use sequential::{
    FIRST_LOOK, blocks_for_clear, estimate_sequential, look_after, look_that_decides, repeated_interval,
    sequential_p,
};
pub use signed_rank::SIGNED_RANK_FROM;
pub use stopping::{is_confirmed, is_precise, least_blocks_for, looks, min_blocks_for};
