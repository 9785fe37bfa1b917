//! Pure mathematics for `samehost`: intervals, tests, stopping, verdicts and histogram summaries.
//!
//! Nothing here opens a file, reads a clock or prints. The same trials give the same verdict today and in a
//! year, which is why a stored report can be judged again. docs/method.md explains every rule to a reader.

mod analyse;
mod claim;
mod compare;
mod crossover;
mod doubts;
mod effects;
mod estimate;
mod family;
pub mod holm;
mod interval;
mod judge;
mod ladder;
mod limits;
mod machine;
pub mod normal;
pub mod pairing;
mod prediction;
mod processor;
mod profiles;
mod published;
mod self_check;
mod sequential;
pub mod serial;
pub mod signed_rank;
mod starts;
mod stopping;
pub mod student;
pub mod summary;
pub mod trend;
pub mod two_sample;
mod wording;

pub use analyse::{Analysed, analyse, compare_arms, compare_controls};
pub use claim::{Claim, ClaimError, Refuted, check};
pub use compare::{Changes, CompareError, compare};
pub use crossover::{Along, Crossover, find_crossovers};
pub use doubts::{Bar, Doubt, find_doubts};
pub use estimate::{Asked, Estimate, Method, SIGNED_RANK_FROM, estimate, estimate_pairs, estimate_shift};
pub use family::{judge_alone, judge_rows, seconds_to_decide};
pub use interval::{Interval, median};
pub use judge::{Terms, blocks_to_decide, judge, judge_again};
pub use ladder::{
    Knee, LEAST_RATES, Ladder, Step, StepState, TAKES_OFF, falls_short, find_knee, find_ladders,
};
pub use machine::LEAST_SPAN_MS;
pub use profiles::us_per_sample;
pub use published::{Judged, judge_ratio, judge_value};
pub use sequential::{
    FIRST_LOOK, Row, blocks_for_clear, decided, estimate_sequential, log_evidence, repeated_interval,
};
pub use stopping::{is_confirmed, is_precise, is_settled, least_blocks_for, looks, min_blocks_for};
pub use summary::{HistogramError, Shift, decode, encode, merge, quantiles_for_shift, summarise};
