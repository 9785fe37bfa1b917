//! Wording of the checkup's rows: the difference with its interval, and the gain of large transfers.

use samehost_model::{Comparison, Grade, Report, Verdict};

/// Difference by grade, always with the interval: `31 % less (29–33 %)`, `less, by 1–18 %: open`,
/// `probably less (-12…+1 %)`, `no telling (-12…+9 %)`.
pub(crate) fn difference(comparison: &Comparison) -> String {
    let (ratio, both) = (comparison.ratio, comparison.ci_low.zip(comparison.ci_high));
    let direction = if ratio < 1.0 { "less" } else { "more" };
    let signed = both.map_or_else(String::new, |(low, high)| format!(" ({})", signed_interval(low, high)));
    match comparison.grade() {
        Grade::Decided if comparison.verdict == Verdict::Equivalent => format!("no difference{signed}"),
        Grade::Decided => {
            let interval =
                both.map_or_else(String::new, |(low, high)| format!(" ({})", interval_in_words(low, high)));
            format!("{}{interval}", amount(ratio))
        }
        Grade::SizeOpen => both.map_or_else(
            || direction.to_owned(),
            |(low, high)| format!("{direction}, by {}: open", interval_in_words(low, high)),
        ),
        Grade::Probable => format!("probably {direction}{signed}"),
        Grade::Leaning => format!("leans to {direction}{signed}"),
        Grade::Open => format!("no telling{signed}"),
        Grade::Barred => format!("no verdict{signed}"),
    }
}

/// Range of the blocks of a pair placed by the scheduler: `varies, 0.6–1.7 ×`. Not a confidence interval.
pub(crate) fn varies(report: &Report, comparison: &Comparison) -> String {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.name == comparison.metric);
    let Some(metric) = metric else { return "varies".to_owned() };
    let (baseline, candidate) = (&comparison.baseline, &comparison.candidate);
    let blocks = samehost_analysis::Index::of_report(report).pairs(metric, baseline, candidate).log_ratios();
    let (least, most) = blocks.iter().fold((f64::MAX, f64::MIN), |(l, m), one| (l.min(*one), m.max(*one)));
    if blocks.len() < 2 {
        return "varies".to_owned();
    }
    format!("varies, {:.1}–{:.1} ×", least.exp(), most.exp())
}

/// Formats as `31 % less` or `1.9 times`.
pub(crate) fn amount(ratio: f64) -> String {
    if ratio >= 1.995 {
        return format!("{ratio:.1} times");
    }
    let percent = 100.0 * (ratio - 1.0);
    format!("{:.0} % {}", percent.abs(), if percent < 0.0 { "less" } else { "more" })
}

/// Interval of a difference with signs: `-12…+9 %`, or as factors `0.4…2.6 ×` when the upper end is about 2 or more.
fn signed_interval(low: f64, high: f64) -> String {
    if high >= 1.995 {
        return format!("{low:.1}…{high:.1} ×");
    }
    format!("{:+.0}…{:+.0} %", 100.0 * (low - 1.0), 100.0 * (high - 1.0))
}

/// Interval of a difference: `29–33 %`, or as factors from about 2 on.
fn interval_in_words(low: f64, high: f64) -> String {
    if low >= 1.995 {
        return format!("{low:.1}–{high:.1}");
    }
    let (a, b) = (100.0 * (low - 1.0).abs(), 100.0 * (high - 1.0).abs());
    format!("{:.0}–{:.0} %", a.min(b), a.max(b))
}

/// Gain of large transfers over TCP with the given congestion control.
pub(crate) fn bulk(comparison: &Comparison, congestion: &str) -> String {
    let than = if congestion.is_empty() { String::new() } else { format!(" with {congestion}") };
    let paced = congestion.contains("bbr");
    match comparison.verdict {
        Verdict::Faster if paced => format!(
            "Large transfers: a Unix socket moves {} bytes a second as TCP{than}, which paces them. With cubic, which most machines have, TCP may move more than the socket (samehost bench raw --pattern bulk --congestion cubic).",
            more(comparison)
        ),
        Verdict::Faster => {
            format!("Large transfers gain as well: {} bytes a second as over TCP{than}.", more(comparison))
        }
        Verdict::Slower => format!(
            "Large transfers are faster over TCP{than} here; a Unix socket moves {} bytes a second: do not switch a connection that mostly moves bulk data.",
            amount(comparison.ratio)
        ),
        Verdict::Equivalent => format!("For large transfers over TCP{than} it makes no difference."),
        Verdict::Inconclusive => format!("Large transfers, TCP{than}: {}.", difference(comparison)),
    }
}

/// Formats as `1.4 times (1.2–1.6) as many`.
fn more(comparison: &Comparison) -> String {
    let interval = match (comparison.ci_low, comparison.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.1}–{high:.1})"),
        _ => String::new(),
    };
    format!("{:.1} times{interval} as many", comparison.ratio)
}
