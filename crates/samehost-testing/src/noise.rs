//! Reports of hosts that differ by chance, made from a real one.

use serde_json::{Value, json};

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
