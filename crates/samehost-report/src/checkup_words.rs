//! Wording of the checkup's rows: the difference with its interval, and the gain of large transfers.

use samehost_model::{Comparison, Grade, Report, Verdict};

use crate::words;

/// Difference by grade, always with the interval: `31 % less (29–33 %)`, `probably less (2–21 %)`,
/// `cannot tell (12 % less to 9 % more)`.
pub(crate) fn difference(comparison: &Comparison) -> String {
    let direction = direction(comparison.ratio);
    let words = match (comparison.verdict, comparison.grade()) {
        (Verdict::Equivalent, Grade::Decided) => "no difference".to_owned(),
        (_, Grade::Decided) => amount(comparison.ratio),
        (_, grade) => words::graded(grade, direction),
    };
    let Some((low, high)) = comparison.ci_low.zip(comparison.ci_high) else { return words };
    if words.contains(direction) && !(low < 1.0 && high > 1.0) {
        return format!("{words} ({})", percents(low, high));
    }
    format!("{words} ({})", span(low, high))
}

/// Range of the blocks of a pair placed by the scheduler: `varies: 40 % less to 70 % more`. Not a confidence interval.
pub(crate) fn varies(report: &Report, comparison: &Comparison) -> String {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.name == comparison.metric);
    let Some(metric) = metric else { return "varies".to_owned() };
    let (baseline, candidate) = (&comparison.baseline, &comparison.candidate);
    let blocks = samehost_analysis::Index::of_report(report).pairs(metric, baseline, candidate).log_ratios();
    let (least, most) = blocks.iter().fold((f64::MAX, f64::MIN), |(l, m), one| (l.min(*one), m.max(*one)));
    if blocks.len() < 2 {
        return "varies".to_owned();
    }
    let (least, most) = (least.exp(), most.exp());
    if amount(least) == amount(most) {
        return format!("{} in every block", amount(least));
    }
    format!("varies: {}", span(least, most))
}

fn direction(ratio: f64) -> &'static str {
    if ratio < 1.0 { "less" } else { "more" }
}

/// Formats as `31 % less` or `98 % more`: one convention for all rows, so that they can be held against each other.
pub(crate) fn amount(ratio: f64) -> String {
    format!("{:.0} % {}", 100.0 * (ratio - 1.0).abs(), direction(ratio))
}

/// Range of a difference: `29–33 % less`, or `12 % less to 9 % more` where it spans no difference.
fn span(low: f64, high: f64) -> String {
    if low < 1.0 && high > 1.0 {
        return format!("{} to {}", amount(low), amount(high));
    }
    format!("{} {}", percents(low, high), direction(low.min(high)))
}

/// Range of a difference on one side of no difference: `29–33 %`.
fn percents(low: f64, high: f64) -> String {
    let (a, b) = (100.0 * (low - 1.0).abs(), 100.0 * (high - 1.0).abs());
    format!("{:.0}–{:.0} %", a.min(b), a.max(b))
}

/// Gain of large transfers over TCP with the given congestion control.
pub(crate) fn bulk(comparison: &Comparison, congestion: &str) -> String {
    let than = if congestion.is_empty() { String::new() } else { format!(" with {congestion}") };
    let paced = congestion.contains("bbr");
    match comparison.verdict {
        Verdict::Faster if paced => format!(
            "Large transfers: a Unix socket moves {} bytes a second than TCP{than}, which paces them. With cubic, which most machines have, TCP may move more than the socket (samehost bench raw --pattern bulk --congestion cubic).",
            difference(comparison)
        ),
        Verdict::Faster => {
            format!(
                "Large transfers gain as well: {} bytes a second than over TCP{than}.",
                difference(comparison)
            )
        }
        Verdict::Slower => format!(
            "Large transfers are faster over TCP{than} here; a Unix socket moves {} bytes a second: do not switch a connection that mostly moves bulk data.",
            amount(comparison.ratio)
        ),
        Verdict::Equivalent => format!("For large transfers over TCP{than} it makes no difference."),
        Verdict::Inconclusive => format!("Large transfers, TCP{than}: {}.", difference(comparison)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_neither_signs_nor_factors() {
        let worded = |grade, verdict, ratio, low, high| {
            let (ci_low, ci_high) = (Some(low), Some(high));
            difference(&Comparison {
                ratio,
                ci_low,
                ci_high,
                verdict,
                grade: Some(grade),
                ..Comparison::default()
            })
        };
        let open = Verdict::Inconclusive;
        for (found, expected) in [
            (worded(Grade::Decided, Verdict::Faster, 0.65, 0.63, 0.68), "35 % less (32–37 %)"),
            (worded(Grade::Decided, Verdict::Faster, 2.2, 1.97, 2.43), "120 % more (97–143 %)"),
            (
                worded(Grade::Decided, Verdict::Equivalent, 1.0, 0.99, 1.01),
                "no difference (1 % less to 1 % more)",
            ),
            (worded(Grade::SizeOpen, open, 0.9, 0.82, 0.99), "less, size open (1–18 %)"),
            (worded(Grade::Probable, open, 0.72, 0.64, 0.79), "probably less (21–36 %)"),
            (worded(Grade::Leaning, open, 0.9, 0.8, 1.02), "maybe less (20 % less to 2 % more)"),
            (worded(Grade::Open, open, 1.0, 0.6, 3.6), "cannot tell (40 % less to 260 % more)"),
            (worded(Grade::Barred, open, 1.1, 1.09, 1.59), "no verdict (9–59 % more)"),
        ] {
            assert_eq!(found, expected);
        }
    }
}
