//! Computes comparisons, issues, verdicts, effects, ladders, predictions and claims from trials.
//!
//! Opens no file, reads no clock and prints nothing. The same trials always give the same verdict, so a stored
//! report can be analysed again. The mathematics is in `samehost-stats`; docs/method.md explains every rule.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod analyse;
mod claim;
mod compare;
mod comparison;
mod crossover;
mod effects;
mod family;
mod histogram;
mod index;
mod issues;
mod judge;
mod ladder;
mod prediction;
mod published;
mod stopping;

pub use analyse::{Analysed, analyse};
pub use claim::{Answer, Claim, ClaimError, UnknownName, check};
pub use compare::{Changes, CompareError, compare, compare_own_times, compare_page_times};
pub use comparison::compare_arms;
pub use crossover::{Along, Crossover, find_crossovers};
pub use family::{judge_alone, judge_rows};
pub use histogram::{HistogramError, Shift, decode, encode, merge, quantiles_for_shift, summarise};
pub use index::{ArmTrials, Group, Index, Pairs, distinct, group};
pub use issues::machine::OtherLoad;
pub use issues::time_for_percentile;
pub use judge::smallest_found;
pub use ladder::{Knee, Ladder, Step, StepState, TAKES_OFF, find_ladders};
pub use published::{Judged, judge_ratio, judge_value};
pub use stopping::{Row, decided};
