//! Time needed to decide open comparisons, by which the checkup and `reproduce` distribute their remaining time.

use samehost_model::Comparison;

/// Factor for connecting, warm-up, and starts of servers, on top of the counted time.
pub const AROUND: f64 = 1.5;
/// Safety factor for the needed time, which is computed as if the current estimate were the true value.
const UNSURE: f64 = 1.5;

/// Seconds that would decide the comparison that needs the least; `None` if none is open, or none can be
/// decided in reasonable time.
pub fn least_s<'a>(rows: impl Iterator<Item = &'a Comparison>) -> Option<f64> {
    let seconds = rows.filter_map(Comparison::seconds_to_decide);
    seconds.map(|seconds| UNSURE * AROUND * seconds).min_by(f64::total_cmp)
}
