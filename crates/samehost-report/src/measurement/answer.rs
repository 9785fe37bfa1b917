//! The answer: a sentence or two for each candidate, worded from verdict, metric and direction. Nothing is judged here; which
//! finding comes first is decided here: the first metric, then what contradicts it, then the most relevant of the rest.

use samehost_analysis::{Along, Crossover, find_crossovers};
use samehost_model::human::{
    TOO_WIDE, capitalised, count, format_percent, format_ratio_aligned, format_size, format_value,
};
use samehost_model::{Better, Code, Comparison, MetricInfo, Reason, Verdict, metric};

use crate::layout::{Paragraph, Span, Tone};
use crate::measurement::view::{self, Parameter, View};
use crate::measurement::{ladder, predictions, words};

pub(crate) fn answer(view: &View<'_>) -> Vec<Paragraph> {
    let names = view.candidates();
    if names.is_empty() {
        return alone(view).into_iter().collect();
    }
    if view.report.analysis.comparisons.is_empty() {
        let text = "No answer: no block has a good trial of both arms.";
        return vec![vec![Span::new(Tone::Doubt, text)]];
    }
    let mut answer = Vec::new();
    for name in &names {
        let paragraph = if view.is_sweep() { over_points(view, name) } else { at_point(view, name) };
        if !paragraph.is_empty() {
            answer.push(paragraph);
        }
    }
    answer.extend(predictions::sentences(view));
    answer
}

fn alone(view: &View<'_>) -> Option<Paragraph> {
    let group = view.single()?;
    let metric = view.metrics().first()?;
    let values = view::values(view.report, &group.baseline.id, |trial| metric.value(trial));
    let median = samehost_stats::median(&values)?;
    let text = format!(
        "{} alone: {} {} (median of {}). Nothing to compare it with.",
        view.name(&group.baseline.id),
        words::title(&metric.name),
        format_value(median, &metric.unit),
        crate::layout::count(values.len(), "trial")
    );
    Some(vec![Span::plain(text)])
}

/// Answer for one point: the first metric, then the most relevant other finding.
fn at_point(view: &View<'_>, name: &str) -> Paragraph {
    let mut all: Vec<(&MetricInfo, &Comparison)> = Vec::new();
    for metric in view.metrics() {
        all.extend(view.comparisons(&metric.name, name).next().map(|comparison| (metric, comparison)));
    }
    let Some((metric, first)) = all.first().copied() else { return Vec::new() };
    let mut text = sentence(view, metric, first);
    let lost = losses(view, name);
    if !lost.is_empty() {
        text.extend(lost);
        text.extend(spared(view, name));
        return text;
    }
    let mut rest = all[1..].iter().copied().filter(|(_, c)| words::is_difference(c));
    if !words::is_difference(first) {
        // A metric that only shows queueing in the client does not count as an answer.
        let clear = rest.find(|(_, c)| c.warnings.iter().all(|warning| warning.code != Code::ClientBound));
        if let Some((metric, comparison)) = clear {
            text.extend(sentence(view, metric, comparison));
        }
    } else if let Some((metric, other)) = rest.clone().find(|(_, c)| c.verdict != first.verdict) {
        // A contradicting metric is reported before agreeing ones.
        text.push(Span::plain("But"));
        text.extend(decided(view, metric, other, ""));
    } else if let Some((metric, cpu)) = rest.find(|(m, _)| m.is(&metric::TOTAL_CPU_PER_OP)) {
        text.push(Span::plain(format!("{}.", capitalised(&words::statement(metric, cpu.ratio, false).0))));
    }
    text.extend(spared(view, name));
    text
}

/// Values for which no ratio exists because one of them is 0, such as refused connections. They stand right behind the first metric:
/// without a ratio there is no comparison of them, and no other sentence would have them.
fn losses(view: &View<'_>, name: &str) -> Paragraph {
    let mut lost = without_ratio(view, name, Tone::Bad, |metric, base, candidate| match metric.better {
        Better::Lower => base == 0.0 && candidate > 0.0,
        Better::Higher => candidate == 0.0 && base > 0.0,
    });
    if !lost.is_empty() {
        lost.insert(0, Span::new(Tone::Bold, "But"));
    }
    lost
}

/// Shares that the baseline loses and the candidate does not at all.
fn spared(view: &View<'_>, name: &str) -> Paragraph {
    without_ratio(view, name, Tone::Good, |metric, base, candidate| {
        metric.is_share() && metric.better == Better::Lower && candidate == 0.0 && base > 0.0
    })
}

fn without_ratio(
    view: &View<'_>,
    name: &str,
    tone: Tone,
    is_one: impl Fn(&MetricInfo, f64, f64) -> bool,
) -> Paragraph {
    let mut found = Paragraph::new();
    for metric in view.metrics() {
        let mut most: Option<(f64, f64)> = None;
        for group in &view.groups {
            let Some(base) = view::typical(view.report, &group.baseline.id, metric) else { continue };
            for arm in group.candidates.iter().filter(|arm| view.name(&arm.id) == name) {
                let Some(candidate) = view::typical(view.report, &arm.id, metric) else { continue };
                let is_more = most.is_none_or(|(base_of_most, most)| base + candidate >= base_of_most + most);
                if is_one(metric, base, candidate) && is_more {
                    most = Some((base, candidate));
                }
            }
        }
        let Some((base, candidate)) = most else { continue };
        let worst = if view.is_sweep() { ", where it is most" } else { "" };
        let values = [format_value(candidate, &metric.unit), format_value(base, &metric.unit)];
        let text = format!("{}: {} against {}{worst}.", words::title(&metric.name), values[0], values[1]);
        found.push(Span::new(tone, text));
    }
    found
}

fn sentence(view: &View<'_>, metric: &MetricInfo, comparison: &Comparison) -> Paragraph {
    let (base, name) = (view.name(&comparison.baseline), view.name(&comparison.candidate));
    let title = words::title(&metric.name);
    match comparison.verdict {
        _ if comparison.is_too_wide() => {
            vec![Span::new(Tone::Doubt, format!("{name} ÷ {base}, {title}: {TOO_WIDE}."))]
        }
        Verdict::Faster | Verdict::Slower => decided(view, metric, comparison, &format!("{name}: ")),
        Verdict::Equivalent => {
            let text = format!(
                "in {title}: {name} ÷ {base} = {}, inside ±{}.",
                ratio(comparison),
                format_percent(view.report.head.plan.margin)
            );
            vec![Span::new(Tone::Bold, "No difference that matters"), Span::plain(text)]
        }
        Verdict::Inconclusive => undecided(metric, comparison, &name, &base),
    }
}

/// A ratio with its interval: `0.692 (0.675–0.709)`.
fn ratio(comparison: &Comparison) -> String {
    words::with_interval(format_ratio_aligned(comparison.ratio), comparison.ends(), format_ratio_aligned)
}

fn undecided(metric: &MetricInfo, comparison: &Comparison, name: &str, base: &str) -> Paragraph {
    let direction = words::direction(Some(metric), comparison.ratio);
    let lead = words::graded_at_length(comparison, direction);
    let reason = match &comparison.reason {
        None => String::new(),
        Some(reason) => match words::cause(reason.code()) {
            Some(cause) => format!(": {cause}"),
            None => format!(": {}", reason.in_full()),
        },
    };
    let text = format!("in {}: {name} ÷ {base} = {}{reason}.", words::title(&metric.name), ratio(comparison));
    vec![Span::new(Tone::Doubt, lead), Span::plain(text)]
}

fn decided(view: &View<'_>, metric: &MetricInfo, comparison: &Comparison, lead: &str) -> Paragraph {
    let base = view.name(&comparison.baseline);
    let open = comparison.point.rate_per_s.is_some();
    let (words, than) = words::statement(metric, comparison.ratio, open);
    let (candidate, baseline) = (comparison.candidate_value, comparison.baseline_value);
    let values = words::with_one_unit([candidate, baseline], " against ", &metric.unit);
    let sure = match (comparison.ci_low, comparison.ci_high) {
        (Some(low), Some(high)) if (low > 1.0) == (high > 1.0) => {
            format!(
                "; {} with {} confidence",
                words::span(metric, low, high),
                format_percent(comparison.confidence)
            )
        }
        _ => String::new(),
    };
    let via = words::via(view.report.arm(&comparison.baseline), &base);
    vec![
        Span::new(words::tone(comparison.verdict), format!("{lead}{words}")),
        Span::plain(format!("{than} {via} ({values}{sure}).")),
    ]
}

/// Answer for several points: counts of verdicts for the first metric, then what was lost, or a metric that has verdicts where the
/// first has none, or one that is worse somewhere.
fn over_points(view: &View<'_>, name: &str) -> Paragraph {
    let mut compared: Vec<(&MetricInfo, Vec<&Comparison>)> = Vec::new();
    for metric in view.metrics() {
        let all: Vec<&Comparison> = view.comparisons(&metric.name, name).collect();
        if !all.is_empty() {
            compared.push((metric, all));
        }
    }
    let Some(((metric, first), others)) = compared.split_first() else { return Vec::new() };
    let mut text = counted(view, metric, first, name);
    let lost = losses(view, name);
    if !lost.is_empty() {
        text.extend(lost);
    } else if first.iter().all(|c| words::told(c) == Verdict::Inconclusive) {
        let mut others = others.iter();
        let clear = others.find(|(_, all)| all.iter().any(|c| words::told(c) != Verdict::Inconclusive));
        if let Some((metric, all)) = clear {
            text.extend(counted(view, metric, all, name));
        }
    } else if !has_slower(first)
        && let Some((metric, all)) = others.iter().find(|(_, all)| has_slower(all))
    {
        let worse = part(view, metric, all, Verdict::Slower).unwrap_or_default();
        text.push(Span::plain("But"));
        text.push(Span::new(Tone::Bad, format!("{}: {worse}.", words::title(&metric.name))));
    }
    text.extend(spared(view, name));
    text
}

fn has_slower(all: &[&Comparison]) -> bool {
    all.iter().any(|comparison| words::told(comparison) == Verdict::Slower)
}

fn counted(view: &View<'_>, metric: &MetricInfo, all: &[&Comparison], name: &str) -> Paragraph {
    let Some(first) = all.first() else { return Vec::new() };
    let base = view.name(&first.baseline);
    let mut text =
        vec![Span::new(Tone::Bold, format!("{name} against {base}, {}:", words::title(&metric.name)))];
    let mut parts: Vec<(Verdict, String)> = Vec::new();
    for verdict in [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Inconclusive] {
        parts.extend(part(view, metric, all, verdict).map(|words| (verdict, words)));
    }
    for (i, (verdict, words)) in parts.iter().enumerate() {
        let end = if i + 1 == parts.len() { "." } else { ";" };
        text.push(Span::new(words::tone(*verdict), format!("{words}{end}")));
    }
    text
}

/// Points with one verdict: `12–38 % more at 4 of 6 points`.
fn part(view: &View<'_>, metric: &MetricInfo, all: &[&Comparison], verdict: Verdict) -> Option<String> {
    let these: Vec<&Comparison> = all.iter().copied().filter(|c| words::told(c) == verdict).collect();
    let ratios: Vec<f64> = these.iter().map(|c| c.ratio).collect();
    let (low, high) = view::ends(&ratios)?;
    let what = match verdict {
        Verdict::Faster | Verdict::Slower => words::span(metric, low, high),
        Verdict::Equivalent => "no difference that matters".to_owned(),
        Verdict::Inconclusive => "no verdict".to_owned(),
    };
    let points = match (these.len(), all.len()) {
        (2, 2) => "at both points".to_owned(),
        (n, total) if n == total => format!("at all {total} points"),
        (n @ 1..=2, total) => {
            let named: Vec<String> = these.iter().map(|c| view.point(&c.point)).collect();
            format!("at {n} of {total} ({})", named.join("; "))
        }
        (n, total) => format!("at {n} of {total} points"),
    };
    match common_cause(&these) {
        Some(cause) => Some(format!("{what} {points}, {cause}")),
        None => Some(format!("{what} {points}")),
    }
}

/// The reason why there is no verdict, if it is the same for all comparisons.
fn common_cause(these: &[&Comparison]) -> Option<&'static str> {
    let first = these.first()?.reason.as_ref()?.code();
    if these.iter().any(|c| c.reason.as_ref().map(Reason::code) != Some(first)) {
        return None;
    }
    words::cause(first)
}

pub(crate) fn turns(view: &View<'_>) -> Vec<Paragraph> {
    let mut turns = ladder::answers(view);
    turns.extend(crossovers(view));
    turns
}

fn crossovers(view: &View<'_>) -> Vec<Paragraph> {
    let Some(metric) = view.metrics().first() else { return Vec::new() };
    let many = view.varying.len() > 1 || view.candidates().len() > 1;
    let mut turns = Vec::new();
    for found in find_crossovers(view.report, &metric.name) {
        let grows = match &found.along {
            Along::Size => Parameter::Size,
            Along::Parameter(name) => Parameter::Own(name.clone()),
        };
        let point = view.point_but(&grows, &found.point);
        let lead = match (many, point.is_empty()) {
            (false, _) => String::new(),
            (true, true) => format!("{}: ", found.candidate),
            (true, false) => format!("{}, {point}: ", found.candidate),
        };
        let [from, to] = [found.from, found.to].map(|value| match &grows {
            Parameter::Own(_) => format!("{} {}", grows.title(), count(value)),
            _ => format_size(value),
        });
        let before = outcome(metric, &found, found.before);
        let after = outcome(metric, &found, found.after);
        turns.push(vec![Span::plain(format!("{lead}Up to {from}, {before}; from {to} on, {after}."))]);
    }
    turns
}

fn outcome(metric: &MetricInfo, found: &Crossover, verdict: Verdict) -> String {
    match verdict {
        Verdict::Equivalent => "no difference that matters".to_owned(),
        Verdict::Inconclusive => "no verdict".to_owned(),
        _ => match words::verdict(Some(metric), verdict) {
            word @ ("more" | "less") => {
                format!("{} has {word} {}", found.candidate, words::title(&metric.name))
            }
            word @ ("higher" | "lower") => {
                format!("{} is {word} with {}", words::title(&metric.name), found.candidate)
            }
            word @ ("more CPU" | "less CPU") => format!("{} needs {word}", found.candidate),
            word => format!("{} is {word}", found.candidate),
        },
    }
}
