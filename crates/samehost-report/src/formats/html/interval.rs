//! A ratio with its interval as a small drawing in a row of a table, on an axis that all rows share.

use std::fmt::Write as _;

use samehost_model::{Comparison, Verdict};

const WIDTH: f64 = 176.0;
const HEIGHT: f64 = 20.0;
/// Units at both ends of a drawing in which nothing is placed, so that a dot at an end is whole.
const PAD: f64 = 6.0;

/// Logarithmic axis of ratios.
pub(super) struct RatioAxis {
    low: f64,
    high: f64,
}

impl RatioAxis {
    /// An axis for these, from half to a quarter more at least. An interval without a verdict may reach beyond it: a row that
    /// nothing is known of must not press all others together.
    pub(super) fn of<'a>(comparisons: impl Iterator<Item = &'a Comparison>) -> Self {
        let (mut low, mut high) = (0.5_f64, 1.25_f64);
        for comparison in comparisons {
            let mut ends = vec![comparison.ratio];
            if comparison.verdict.is_decided() {
                ends.extend([comparison.ci_low, comparison.ci_high].into_iter().flatten());
            }
            for end in ends.into_iter().filter(|end| end.is_finite() && *end > 0.0) {
                (low, high) = (low.min(end), high.max(end));
            }
        }
        RatioAxis { low: low.max(0.1), high: high.min(10.0) }
    }

    fn place(&self, ratio: f64) -> f64 {
        let part = (ratio.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        PAD + part * (WIDTH - 2.0 * PAD)
    }

    /// The axis itself: both ends in words. The line in each row is no difference.
    pub(super) fn head(&self) -> String {
        let more = match 100.0 * (self.high - 1.0) {
            // `900 % more` is longer than the drawing has room for.
            percent if percent > 300.0 => format!("{:.1} times", self.high),
            percent => format!("{percent:.0} % more"),
        };
        format!(
            "<svg class=\"interval\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">\
             <text x=\"{:.0}\" y=\"14\" text-anchor=\"start\">{:.0} % less</text>\
             <text x=\"{:.0}\" y=\"14\" text-anchor=\"end\">{more}</text></svg>",
            self.place(self.low),
            100.0 * (1.0 - self.low),
            self.place(self.high),
        )
    }

    /// The drawing of a row; a thick bar as far as the baseline may differ from itself, where that is known.
    pub(super) fn row(&self, comparison: &Comparison, look: &str, floor: Option<f64>) -> String {
        let middle = HEIGHT / 2.0;
        let none = self.place(1.0);
        let mut svg =
            format!("<svg class=\"interval {look}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">");
        // Writing to a String cannot fail.
        if let Some(floor) = floor {
            let (from, to) = (self.place(1.0 / (1.0 + floor)), self.place(1.0 + floor));
            let _ = write!(
                svg,
                "<line class=\"floor\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
            );
        }
        let _ =
            write!(svg, "<line class=\"none\" x1=\"{none:.1}\" x2=\"{none:.1}\" y1=\"0\" y2=\"{HEIGHT}\"/>");
        if let (Some(low), Some(high)) = (comparison.ci_low, comparison.ci_high) {
            let (from, to) = (self.place(low), self.place(high));
            let _ = write!(svg, "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>");
        }
        let _ =
            write!(svg, "<circle cx=\"{:.1}\" cy=\"{middle}\" r=\"4\"/></svg>", self.place(comparison.ratio));
        svg
    }
}

/// How a verdict is drawn.
pub(super) fn look(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "better",
        Verdict::Slower => "worse",
        Verdict::Equivalent => "same",
        Verdict::Inconclusive => "open",
    }
}
