//! Statistics for `samehost`: estimates with intervals, tests, and stopping rules, all as functions of numbers.
//!
//! Has no notion of reports, metrics or texts. Opens no file, reads no clock and prints nothing.
//! docs/method.md explains every rule.

pub mod distributions;
mod estimate;
pub mod holm;
mod interval;
mod moments;
pub mod ranks;
mod sequential;
pub mod serial;
mod stopping;

pub use estimate::{
    Asked, Estimate, Method, count_starts, estimate, estimate_pairs, estimate_shift, side_of,
};
pub use interval::{Interval, median};
pub use moments::Moments;
pub use ranks::SIGNED_RANK_FROM;
pub use sequential::{
    FIRST_LOOK, blocks_for_clear, estimate_sequential, look_after, look_that_decides, repeated_interval,
    sequential_p,
};
pub use stopping::{is_confirmed, is_precise, least_blocks_for, looks, min_blocks_for};
