//! What every report must have, whatever it measured; and reports of hosts that differ by chance, made from a real one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

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

/// Noise that is the same in each run: about normal, with a deviation of 1.
pub struct Noise(pub u64);

impl Noise {
    pub fn draw(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }
}

/// Makes the times of a report's comparisons longer by a factor, and its rates smaller, each with noise of the deviation
/// `within` of its logarithm. The ratios stay.
pub fn slow_down(comparisons: &mut Value, factor: f64, within: f64, noise: &mut Noise) {
    for comparison in comparisons.as_array_mut().expect("a list of comparisons") {
        let is_rate = ["throughput", "bandwidth"].iter().any(|rate| comparison["metric"] == *rate);
        for value in ["baseline_value", "candidate_value"] {
            let factor = factor * (within * noise.draw()).exp();
            let factor = if is_rate { 1.0 / factor } else { factor };
            comparison[value] = json!(comparison[value].as_f64().expect("a number") * factor);
        }
    }
}
