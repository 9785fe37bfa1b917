//! What every report must have, whatever it measured.

use std::collections::BTreeMap;

use serde_json::Value;

/// The arms that did nothing in any of their trials, and those of which an operation failed. A single trial of a few
/// milliseconds may be over before its first operation where others have the CPUs, and so may both of `noop`, which has no
/// server to fail.
#[must_use]
pub fn idle_or_failing(report: &Value) -> Vec<String> {
    let mut arms: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for trial in report["trials"].as_array().into_iter().flatten() {
        let arm = arms.entry(trial["arm"].as_str().unwrap_or_default()).or_default();
        arm.0 += trial["operations"].as_u64().unwrap_or(0);
        arm.1 |= trial["errors"].as_object().is_some_and(|errors| !errors.is_empty());
    }
    if arms.is_empty() {
        return vec!["no arm was measured".into()];
    }
    let odd = arms
        .into_iter()
        .filter(|(name, (operations, has_failed))| *has_failed || *operations == 0 && *name != "noop");
    odd.map(|(arm, (operations, _))| format!("{arm}: {operations} operations")).collect()
}

/// A figure of a trial that the meters gave. It may be missing only where the trial says that they were read late.
///
/// # Panics
/// If it is missing without that warning.
#[must_use]
pub fn metered(trial: &Value, figure: &str) -> Option<f64> {
    let value = trial[figure].as_f64();
    let warnings = trial["warnings"].as_array().into_iter().flatten();
    let is_late = warnings
        .filter(|warning| warning["code"] == "not_measured")
        .any(|warning| warning["message"].as_str().is_some_and(|text| text.contains("the meters were read")));
    assert!(value.is_some() || is_late, "{figure}: {trial}");
    value
}
