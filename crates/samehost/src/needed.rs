//! How long what is open would take: the checkup and `reproduce` give the time that is left to what needs the least.

use samehost_analysis::seconds_to_decide;
use samehost_model::{Comparison, Report};

/// Connecting, warming up, borders and starts of servers, on top of what is counted.
pub const AROUND: f64 = 1.5;
/// What an estimate of the time that is still needed is multiplied by: it takes the estimate for the truth.
const UNSURE: f64 = 1.5;

/// Seconds that would decide the open one of these comparisons that needs the least; none where nothing is open, or nothing
/// reasonable would.
pub fn least_s<'a>(report: &Report, rows: impl Iterator<Item = &'a Comparison>) -> Option<f64> {
    let open = rows.filter(|row| row.is_open());
    let seconds = open.filter_map(|row| seconds_to_decide(report, row));
    seconds.map(|seconds| UNSURE * AROUND * seconds).min_by(f64::total_cmp)
}
