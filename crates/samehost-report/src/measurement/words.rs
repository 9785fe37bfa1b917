//! Wording of metrics, verdicts and codes. Verdicts come from the comparisons and are never changed here.

use samehost_model::human::{
    capitalised, format_percent, format_ratio_aligned, format_together, is_too_wide, percent_number,
};
use samehost_model::printable::clean;
use samehost_model::{Arm, Better, Code, Comparison, Family, Grade, Metric, MetricInfo, Reason, Verdict};

use crate::layout::Tone;

pub(crate) fn title(name: &str) -> String {
    clean(&samehost_model::metric_title(name))
}

/// Subject and verb before a change: `a round trip takes`; empty for rates, whose sentences start with the number.
fn subject(metric: &MetricInfo, open_loop: bool) -> String {
    let known = match Metric::named(&metric.name) {
        Some(known) => Some(known.subject),
        None if metric.name == "exchange_time_us" => Some("an exchange takes"),
        None => None,
    };
    match (known, metric.family()) {
        // There a request is due, whether or not the one before it has its reply.
        (Some(subject), _) if open_loop => subject.replace("round trip", "request"),
        (Some(subject), _) => subject.to_owned(),
        (None, Family::Rate | Family::Bandwidth) => format!("{}:", title(&metric.name)),
        (None, Family::Time) => format!("{} takes", title(&metric.name)),
        (None, Family::Cpu) => format!("{} needs", title(&metric.name)),
        (None, Family::Other) => format!("{} is", title(&metric.name)),
    }
}

/// What stands behind a number, in this order: where it is more, where it is less, and after a factor such as `3.4 times`.
fn nouns(metric: &MetricInfo) -> (&'static str, &'static str, &'static str) {
    match metric.family() {
        Family::Rate => {
            ("more operations per second", "fewer operations per second", "as many operations per second")
        }
        Family::Bandwidth => ("more bytes per second", "fewer bytes per second", "as many bytes per second"),
        Family::Time => ("more time", "less time", "as long"),
        Family::Cpu if metric.name.ends_with("_per_op") => {
            ("more CPU per operation", "less CPU per operation", "as much CPU per operation")
        }
        Family::Cpu => ("more CPU time", "less CPU time", "as much CPU time"),
        Family::Other => ("higher", "lower", "as high"),
    }
}

/// A change, and the conjunction that introduces the baseline: `31 % less time`, `than`.
pub(crate) fn change(metric: &MetricInfo, ratio: f64) -> (String, &'static str) {
    let (more, less, times) = nouns(metric);
    if is_factor(ratio) {
        return (format!("{} times {times}", samehost_model::human::format_ratio(ratio)), "as");
    }
    let word = if ratio < 1.0 { less } else { more };
    (format!("{} % {word}", percent_number((ratio - 1.0).abs())), "than")
}

/// A change with its subject: `a round trip takes 31 % less time`.
pub(crate) fn statement(metric: &MetricInfo, ratio: f64, open_loop: bool) -> (String, &'static str) {
    let (change, than) = change(metric, ratio);
    (format!("{} {change}", subject(metric, open_loop)).trim().to_owned(), than)
}

/// The verdict in words; none where the interval is too wide for a figure, though its p-value may know the direction.
pub(crate) fn told(comparison: &Comparison) -> Verdict {
    if comparison.is_too_wide() { Verdict::Inconclusive } else { comparison.verdict }
}

pub(crate) fn is_difference(comparison: &Comparison) -> bool {
    matches!(told(comparison), Verdict::Faster | Verdict::Slower)
}

/// Whether a ratio is worded as a factor, and not in per cent: from twice as much on.
fn is_factor(ratio: f64) -> bool {
    ratio >= 2.0
}

/// Two ratios on the same side of 1, without a word: `29–33 %`, `3.1–3.8`.
pub(crate) fn range(low: f64, high: f64) -> String {
    let (ends, unit) = if is_factor((low * high).sqrt()) {
        ([low, high].map(samehost_model::human::format_ratio), "")
    } else if low >= 1.0 {
        ([low - 1.0, high - 1.0].map(percent_number), " %")
    } else {
        ([1.0 - high, 1.0 - low].map(percent_number), " %")
    };
    let [small, large] = ends;
    if small == large { format!("{small}{unit}") } else { format!("{small}–{large}{unit}") }
}

/// Two ratios on the same side of 1 as one change: `29–33 % less`, `3.1–3.8 times`.
pub(crate) fn span(metric: &MetricInfo, low: f64, high: f64) -> String {
    if is_factor((low * high).sqrt()) {
        return format!("{} times", range(low, high));
    }
    let fewer = matches!(metric.family(), Family::Rate | Family::Bandwidth);
    let word = match (low >= 1.0, metric.family()) {
        (true, Family::Other) => "higher",
        (true, _) => "more",
        (false, Family::Other) => "lower",
        (false, _) if fewer => "fewer",
        (false, _) => "less",
    };
    format!("{} {word}", range(low, high))
}

/// The verdict as an adjective that suits the metric: a latency is faster, a CPU time less. Which direction is better is a property
/// of the metric; without one the words are `higher` and `lower`.
pub(crate) fn verdict(metric: Option<&MetricInfo>, verdict: Verdict) -> &'static str {
    let more = match (verdict, metric.map(|metric| metric.better)) {
        (Verdict::Equivalent, _) => return "equivalent",
        (Verdict::Inconclusive, _) => return "none",
        (Verdict::Faster, better) => better == Some(Better::Higher),
        (Verdict::Slower, better) => better == Some(Better::Lower),
    };
    match metric.map_or(Family::Other, MetricInfo::family) {
        Family::Rate | Family::Bandwidth if more => "more",
        Family::Rate | Family::Bandwidth => "less",
        Family::Time if more => "slower",
        Family::Time => "faster",
        Family::Cpu if more => "more CPU",
        Family::Cpu => "less CPU",
        Family::Other if more => "higher",
        Family::Other => "lower",
    }
}

pub(crate) fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Faster => Tone::Good,
        Verdict::Slower => Tone::Bad,
        Verdict::Equivalent => Tone::Plain,
        Verdict::Inconclusive => Tone::Doubt,
    }
}

/// Wordings of a code, in this order: the name of its group of warnings, the reason in a cell without a verdict, and the
/// reason in a sentence when the warning's message is shown elsewhere. The message itself is the rule's, since stored reports have
/// it and are shown by later versions (docs/decisions/0090); these words depend on where they stand.
fn words(code: Code) -> (&'static str, &'static str, Option<&'static str>) {
    match code {
        Code::Errors => ("errors", "errors", Some("too many operations failed")),
        Code::ClientBound => ("client bound", "client", Some("the client was the limit")),
        Code::SharedCpu => ("one CPU", "one CPU", Some("client and server had one CPU between them")),
        Code::ClientStarved => ("CPU wait", "CPU wait", None),
        Code::MachineFull => ("full machine", "full machine", None),
        Code::Steal => ("steal", "steal", None),
        Code::Throttled => ("throttled", "throttled", None),
        Code::ForeignLoad => ("other load", "other load", None),
        Code::Softirq => ("softirq", "softirq", Some("the kernel books TCP's receive path to no process")),
        Code::Remeasured => ("repeats", "repeats", None),
        Code::ClockChange => ("clock change", "clock", None),
        Code::Drift => ("drift", "drift", None),
        Code::GeneratorLate => ("generator", "void", Some("too many trials are void")),
        Code::Overload => ("overload", "overload", None),
        Code::Imprecise => ("imprecise", "undecided", None),
        Code::FewBlocks => ("few blocks", "few blocks", None),
        Code::FewConnections => ("few connections", "few connections", Some("too few connections came")),
        Code::NoiseFloor => ("noise floor", "noise", None),
        Code::SelfCheck => ("self-check", "self-check", Some("the baseline differs from itself")),
        Code::OneProcess => ("one process", "one process", None),
        Code::Interrupted => ("interrupted", "interrupted", None),
        Code::TransportMismatch => {
            ("transport", "transport", Some("another transport was in use than asked for"))
        }
        Code::TlsDiffers => ("encryption", "encryption", None),
        Code::OwnNetwork => ("own network", "own network", None),
        Code::Congestion => ("congestion control", "congestion", None),
        Code::NotMeasured => ("not measured", "not measured", None),
        Code::NotStored => ("not stored", "not stored", None),
        Code::HostDiffers => ("not alike", "not alike", None),
        Code::Note => ("note", "note", None),
    }
}

pub(crate) fn code(code: Code) -> &'static str {
    words(code).0
}

/// Direction of a comparison in words that suit the metric, whatever its verdict: `faster`, `less CPU`.
pub(crate) fn direction(metric: Option<&MetricInfo>, ratio: f64) -> &'static str {
    let more = metric.map(|metric| metric.better) == Some(Better::Higher);
    verdict(metric, if (ratio > 1.0) == more { Verdict::Faster } else { Verdict::Slower })
}

/// Verdict or grade of a comparison as a cell, or the reason why there is no verdict. A grade is a word beside the interval and says how
/// much an inconclusive comparison still tells (docs/method.md §6); "cannot tell" is for those that tell nothing, whose reason is only
/// that the data do not decide.
pub(crate) fn cell(metric: Option<&MetricInfo>, comparison: &Comparison) -> String {
    let reason = comparison.reason.as_ref().map(Reason::code);
    match (comparison.grade(), reason) {
        _ if comparison.is_too_wide() => NOT_MEASURED.to_owned(),
        (Grade::Decided, _) => verdict(metric, comparison.verdict).to_owned(),
        (Grade::Open | Grade::Barred, Some(code)) if code != Code::Imprecise => {
            format!("no verdict: {}", words(code).1)
        }
        _ => graded(comparison, direction(metric, comparison.ratio)),
    }
}

pub(crate) const CANNOT_TELL: &str = "cannot tell";
pub(crate) const NOT_MEASURED: &str = "not measured";

/// How sure a direction is, of a comparison without a verdict. The interval decides, as it stands beside the word: one that includes no
/// difference is never "less", and one that excludes it never "cannot tell". "Maybe less (20 % less to 2 % more)" and "not decided
/// (21–36 %)" were printed, and nobody could read them.
pub(crate) fn graded(comparison: &Comparison, direction: &str) -> String {
    match comparison.grade() {
        _ if comparison.is_too_wide() => NOT_MEASURED.to_owned(),
        Grade::Barred => "no verdict".to_owned(),
        Grade::Decided => direction.to_owned(),
        _ if comparison.spans_none() || comparison.ends().is_none() => CANNOT_TELL.to_owned(),
        Grade::SizeOpen => format!("{direction}, size open"),
        Grade::Probable | Grade::Leaning | Grade::Open => format!("probably {direction}"),
    }
}

/// The same at the beginning of a sentence: `Probably less (20 to 1, …)`.
pub(crate) fn graded_at_length(comparison: &Comparison, direction: &str) -> String {
    match graded(comparison, direction) {
        words if words.ends_with("size open") => format!("Different ({direction}), by how much is uncertain"),
        words if words.starts_with("probably") => {
            format!("{} (20 to 1, of this comparison alone)", capitalised(&words))
        }
        words => capitalised(&words),
    }
}

/// What the words in these cells mean, for below their table; `None` where they hold none that needs it.
pub(crate) fn legend(cells: &[&str], margin: f64) -> Option<String> {
    let margin = format_percent(margin);
    let meanings = [
        ("size open", format!("they differ; by how much is uncertain, maybe by less than {margin}")),
        ("probably", "wrong in at most 1 of 20 such rows".to_owned()),
        (CANNOT_TELL, "nothing shows which is better".to_owned()),
        (NOT_MEASURED, "its interval is wider than a factor of three".to_owned()),
    ];
    let mut explained = Vec::new();
    for (word, meaning) in meanings {
        if cells.iter().any(|cell| cell.contains(word)) {
            explained.push(format!("{word}: {meaning}"));
        }
    }
    if explained.is_empty() {
        return None;
    }
    Some(format!("{}.", explained.join("; ")))
}

/// Reason for a missing verdict, in a sentence; `None` if only the warning's message explains it.
pub(crate) fn cause(code: Code) -> Option<&'static str> {
    words(code).2
}

pub(crate) fn is_headline(code: Code) -> bool {
    matches!(code, Code::Errors | Code::TransportMismatch)
}

/// An arm in a sentence: `over tcp`, but `A` for a command with that name.
pub(crate) fn via(arm: Option<&Arm>, name: &str) -> String {
    match arm {
        Some(arm) if arm.name == arm.transport.name() => format!("over {name}"),
        _ => name.to_owned(),
    }
}

/// A ratio and its interval, for two cells; no figure where the interval says nothing.
pub(crate) fn ratio_cells(ratio: f64, ends: Option<(f64, f64)>) -> [String; 2] {
    let interval = match ends {
        None => "–".to_owned(),
        Some((low, high)) if is_too_wide(low, high) => return ["–".to_owned(), NOT_MEASURED.to_owned()],
        Some((low, high)) => format!("{}–{}", format_ratio_aligned(low), format_ratio_aligned(high)),
    };
    [format_ratio_aligned(ratio), interval]
}

/// A value with its interval: `1.13 (1.10–1.16)`; no figure where the interval says nothing.
pub(crate) fn with_interval(value: String, ends: Option<(f64, f64)>, text: impl Fn(f64) -> String) -> String {
    match ends {
        Some((low, high)) if is_too_wide(low, high) => NOT_MEASURED.to_owned(),
        Some((low, high)) => format!("{value} ({}–{})", text(low), text(high)),
        None => value,
    }
}

/// Two values with one unit: `12.3–17.9 µs`.
pub(crate) fn with_one_unit(values: [f64; 2], between: &str, unit: &str) -> String {
    let texts = format_together(&values, unit);
    match (texts[0].rsplit_once(' '), texts[1].rsplit_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}{between}{}", texts[1]),
        _ => format!("{}{between}{}", texts[0], texts[1]),
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::metric;

    use super::*;

    #[test]
    fn words_follow_metric_and_direction() {
        fn words(metric: &Metric, ratio: f64) -> String {
            statement(&metric.info(), ratio, false).0
        }
        assert_eq!(words(&metric::LATENCY_MEAN, 0.69), "a round trip takes 31 % less time");
        assert_eq!(words(&metric::LATENCY_MEAN, 3.41), "a round trip takes 3.41 times as long");
        assert_eq!(words(&metric::THROUGHPUT, 1.45), "45 % more operations per second");
        assert_eq!(words(&metric::THROUGHPUT, 0.8), "20 % fewer operations per second");
        assert_eq!(
            words(&metric::TOTAL_CPU_PER_OP, 0.75),
            "client and server together need 25 % less CPU per operation"
        );
        let own = MetricInfo::own("refused_percent", "percent", Better::Lower);
        assert_eq!(statement(&own, 0.5, false).0, "refused is 50 % lower");
        assert_eq!(
            statement(&metric::LATENCY_P99.info(), 0.5, true).0,
            "a request at the 99th percentile takes 50 % less time"
        );
    }

    #[test]
    fn units_of_measurements_stand_in_their_names() {
        for (key, name, unit) in [
            ("refused_percent", "refused", "percent"),
            ("time_waits_left", "time waits left", ""),
            ("drain_ms", "drain", "ms"),
            ("moved_bytes_per_s", "moved", "bytes_per_s"),
            ("_s", " s", ""),
        ] {
            assert_eq!((title(key), samehost_model::split_unit(key).1), (name.to_owned(), unit), "{key}");
        }
    }

    #[test]
    fn words_that_need_it_are_explained_where_they_stand() {
        assert_eq!(legend(&["faster", "31 % less (29–33 %)"], 0.02), None);
        let found = legend(&["faster, size open", "probably less CPU", "equivalent"], 0.02);
        let expected = "size open: they differ; by how much is uncertain, maybe by less than 2 %; probably: wrong in at most 1 of 20 such rows.";
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn spans_of_change() {
        let metric = metric::LATENCY_MEAN.info();
        assert_eq!(span(&metric, 0.67, 0.71), "29–33 % less");
        assert_eq!(span(&metric, 1.02, 1.154), "2–15 % more");
        assert_eq!(span(&metric, 2.9, 3.5), "2.90–3.50 times");
        assert_eq!(span(&metric::THROUGHPUT.info(), 0.9, 0.95), "5–10 % fewer");
    }

    #[test]
    fn directions_suit_their_metric() {
        fn worded(metric: &Metric, ratio: f64) -> &'static str {
            direction(Some(&metric.info()), ratio)
        }
        assert_eq!(
            (worded(&metric::LATENCY_MEAN, 0.9), worded(&metric::LATENCY_MEAN, 1.1)),
            ("faster", "slower")
        );
        assert_eq!((worded(&metric::THROUGHPUT, 0.9), worded(&metric::THROUGHPUT, 1.1)), ("less", "more"));
        assert_eq!(
            (worded(&metric::TOTAL_CPU_PER_OP, 0.9), worded(&metric::TOTAL_CPU_PER_OP, 1.1)),
            ("less CPU", "more CPU")
        );
    }

    #[test]
    fn verdicts_suit_their_metric() {
        for (metric, faster, slower) in [
            (metric::THROUGHPUT, "more", "less"),
            (metric::LATENCY_P99, "faster", "slower"),
            (metric::CLIENT_CPU_PER_OP, "less CPU", "more CPU"),
            (metric::WALL_TIME, "faster", "slower"),
        ] {
            let metric = metric.info();
            assert_eq!(verdict(Some(&metric), Verdict::Faster), faster, "{}", metric.name);
            assert_eq!(verdict(Some(&metric), Verdict::Slower), slower, "{}", metric.name);
        }
    }
}
