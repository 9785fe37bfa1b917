//! A report's question and its answer in one line, as the heading of its page.

use samehost_model::human::format_value;
use samehost_model::printable::clean;
use samehost_model::{Comparison, Grade, MetricInfo, Transport, Verdict};

use crate::measurement::view::{self, View};
use crate::measurement::{head, words};

/// More candidates than this are a question without its answer.
const MOST_ANSWERS: usize = 2;

/// Formats as `Unix socket or TCP for redis GET: 49 % less CPU time (48–50 %)`.
pub(crate) fn question(view: &View<'_>) -> String {
    let subject = head::subject(&view.report.head.workload);
    let names: Vec<String> = view.arm_names().iter().rev().map(|name| arm_name(view, name)).collect();
    let candidates = view.candidates();
    if candidates.is_empty() {
        return alone(view, &subject).unwrap_or(subject);
    }
    let question = format!("{} for {subject}", names.join(" or "));
    if candidates.len() > MOST_ANSWERS {
        return format!("{question}?");
    }
    let mut answers = Vec::new();
    for name in &candidates {
        let Some(found) = answer(view, name) else { continue };
        let lead = if candidates.len() > 1 { format!("{} ", arm_name(view, name)) } else { String::new() };
        answers.push(format!("{lead}{found}"));
    }
    if answers.is_empty() { format!("{question}?") } else { format!("{question}: {}", answers.join("; ")) }
}

/// A transport's name for readers; commands and others have their own.
fn arm_name(view: &View<'_>, name: &str) -> String {
    let mut arms = view.report.head.arms.iter();
    let arm = arms.find(|arm| view.name(&arm.id) == name && arm.name == arm.transport.name());
    let Some(arm) = arm else { return clean(name) };
    match arm.transport {
        Transport::Tcp if name == "tcp" => "TCP".to_owned(),
        Transport::Unix if name == "unix" => "Unix socket".to_owned(),
        Transport::TcpTls if name == "tcp+tls" => "TCP with TLS".to_owned(),
        _ => clean(name),
    }
}

/// The first metric that is decided, or the first; over several points, its range.
fn answer(view: &View<'_>, name: &str) -> Option<String> {
    let mut first = None;
    for metric in view.metrics() {
        let all: Vec<&Comparison> = view.comparisons(&metric.name, name).collect();
        if all.is_empty() {
            continue;
        }
        let answer = over(metric, &all);
        if all.iter().any(|found| found.verdict.is_decided()) {
            return Some(answer);
        }
        first.get_or_insert(answer);
    }
    first
}

fn over(metric: &MetricInfo, all: &[&Comparison]) -> String {
    if let [only] = all {
        return one(metric, only);
    }
    let differ = all.iter().filter(|found| words::is_difference(found));
    let decided: Vec<f64> = differ.map(|found| found.ratio).collect();
    let title = words::title(&metric.name);
    let Some((low, high)) = view::ends(&decided) else { return format!("no difference is shown in {title}") };
    match decided.len() {
        number if low < 1.0 && high > 1.0 => {
            let (less, more) = (words::change(metric, low).0, words::change(metric, high).0);
            format!("{less} to {more} at {number} of {} points", all.len())
        }
        number if number == all.len() => format!("{} {title}", words::span(metric, low, high)),
        number => format!("{} {title} at {number} of {} points", words::span(metric, low, high), all.len()),
    }
}

fn one(metric: &MetricInfo, found: &Comparison) -> String {
    let title = words::title(&metric.name);
    match (found.verdict, found.grade()) {
        (Verdict::Equivalent, _) => format!("no difference that matters in {title}"),
        (_, Grade::Barred) => format!("{}, by {title}", words::CANNOT_TELL),
        (verdict, _) if verdict == Verdict::Inconclusive || found.is_too_wide() => {
            format!("{} in {title}", words::graded(found, words::direction(Some(metric), found.ratio)))
        }
        _ => {
            let (change, _) = words::change(metric, found.ratio);
            match (found.ci_low, found.ci_high) {
                (Some(low), Some(high)) if (low > 1.0) == (high > 1.0) => {
                    format!("{change} ({})", words::range(low, high))
                }
                _ => change,
            }
        }
    }
}

fn alone(view: &View<'_>, subject: &str) -> Option<String> {
    let group = view.single()?;
    let metric = view.metrics().first()?;
    let values = view::values(view.report, &group.baseline.id, |trial| metric.value(trial));
    let median = samehost_stats::median(&values)?;
    let name = arm_name(view, &view.name(&group.baseline.id));
    Some(format!(
        "{subject} over {name}: {} {}",
        words::title(&metric.name),
        format_value(median, &metric.unit)
    ))
}

#[cfg(test)]
mod tests {
    use samehost_model::metric;

    use super::*;

    fn worded(verdict: Verdict, grade: Grade, ratio: f64, low: f64, high: f64) -> String {
        let found = Comparison {
            verdict,
            grade: Some(grade),
            ratio,
            ci_low: Some(low),
            ci_high: Some(high),
            ..Comparison::default()
        };
        one(&metric::TOTAL_CPU_PER_OP.info(), &found)
    }

    #[test]
    fn an_answer_has_its_size_or_says_how_sure_it_is() {
        let decided = worded(Verdict::Faster, Grade::Decided, 0.51, 0.5, 0.52);
        assert_eq!(decided, "49 % less CPU per operation (48–50 %)");
        let same = worded(Verdict::Equivalent, Grade::Decided, 1.0, 0.99, 1.01);
        assert_eq!(same, "no difference that matters in total CPU/op");
        let maybe = worded(Verdict::Inconclusive, Grade::Leaning, 0.9, 0.8, 1.1);
        assert_eq!(maybe, "cannot tell in total CPU/op");
        assert_eq!(
            worded(Verdict::Inconclusive, Grade::Open, 0.9, 0.8, 0.98),
            "probably less CPU in total CPU/op"
        );
        assert_eq!(worded(Verdict::Faster, Grade::Decided, 0.1, 0.01, 0.9), "not measured in total CPU/op");
    }

    #[test]
    fn several_points_are_one_range() {
        fn comparison(ratio: f64, verdict: Verdict) -> Comparison {
            Comparison { ratio, verdict, ..Comparison::default() }
        }
        let metric = metric::THROUGHPUT.info();
        let (low, high) = (comparison(1.12, Verdict::Faster), comparison(1.38, Verdict::Faster));
        let open = comparison(1.0, Verdict::Inconclusive);
        assert_eq!(over(&metric, &[&low, &high]), "12–38 % more throughput");
        assert_eq!(over(&metric, &[&low, &high, &open]), "12–38 % more throughput at 2 of 3 points");
        assert_eq!(over(&metric, &[&open, &open]), "no difference is shown in throughput");
    }
}
