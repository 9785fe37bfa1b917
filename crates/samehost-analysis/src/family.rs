//! Multiple testing: at most 5 % of reports claim any difference that does not exist.

use samehost_model::{Comparison, MetricInfo, Report};
use samehost_stats::holm;

use crate::index::Index;
use crate::judge::{Terms, block_seconds, judge_again};

/// Share of the 5 % for the report's first metric; all other metrics together have the rest, 1 %.
/// The promise is that at most one report in twenty calls any difference that does not exist, so the
/// questions of a report share one level. The first metric is what the reader asked for, and gets most of
/// it. Without an adjustment some interval excludes 1 in 40 to 44 % of simulated reports of equal arms;
/// with it some adjusted p-value is below 5 % in 3.9 to 5.1 % of them (docs/method.md §4).
pub(crate) const OF_THE_ANSWER: f64 = 0.8;

/// P-values of one question: of "no difference", and of "inside the margin".
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ps {
    pub(crate) same: Option<f64>,
    pub(crate) inside: Option<f64>,
}

/// Holm's adjustment of the p-values that exist.
fn holm_of(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let known: Vec<f64> = p_values.iter().copied().flatten().collect();
    let mut adjusted = holm::adjust(&known).into_iter();
    p_values.iter().map(|p| p.and_then(|_| adjusted.next())).collect()
}

/// Adjusts all questions as one family.
pub(crate) fn together(questions: &[Ps]) -> Vec<Ps> {
    let same = holm_of(&questions.iter().map(|q| q.same).collect::<Vec<_>>());
    let inside = holm_of(&questions.iter().map(|q| q.inside).collect::<Vec<_>>());
    same.into_iter().zip(inside).map(|(same, inside)| Ps { same, inside }).collect()
}

/// Adjusts the first metric's questions as a family at 4 %, and all others as one at 1 %. If all of the first
/// metric's questions are decided, their 4 % pass to the others (gatekeeping: Bretz et al. 2009). Without
/// others the first metric has all 5 %. `can_be_answered` is false for questions that an issue invalidates.
/// P-values are scaled so that 5 % is the threshold for all.
pub(crate) fn gate(questions: &[(bool, Ps)], alpha: f64, can_be_answered: &[bool]) -> Vec<Ps> {
    let pick = |of_the_answer: bool| -> (Vec<usize>, Vec<Ps>) {
        let these = questions.iter().enumerate().filter(|(_, (is_answer, _))| *is_answer == of_the_answer);
        these.map(|(i, (_, ps))| (i, *ps)).unzip()
    };
    let (first, first_ps) = pick(true);
    let (others, others_ps) = pick(false);
    let weight = if others.is_empty() { 1.0 } else { OF_THE_ANSWER };
    let first_ps = weighted(together(&first_ps), weight);
    let decided = |pick: fn(&Ps) -> Option<f64>| {
        let mut all = first.iter().zip(&first_ps);
        !first.is_empty() && all.all(|(&i, ps)| can_be_answered[i] && pick(ps).is_some_and(|p| p < alpha))
    };
    let rest = |is_decided: bool| if is_decided { 1.0 } else { 1.0 - OF_THE_ANSWER };
    let others_ps: Vec<Ps> = together(&others_ps)
        .into_iter()
        .map(|ps| Ps {
            same: scaled(ps.same, rest(decided(|ps| ps.same))),
            inside: scaled(ps.inside, rest(decided(|ps| ps.inside))),
        })
        .collect();
    let mut adjusted = vec![Ps::default(); questions.len()];
    for (&i, ps) in first.iter().chain(&others).zip(first_ps.into_iter().chain(others_ps)) {
        adjusted[i] = ps;
    }
    adjusted
}

fn weighted(family: Vec<Ps>, weight: f64) -> Vec<Ps> {
    family
        .into_iter()
        .map(|ps| Ps { same: scaled(ps.same, weight), inside: scaled(ps.inside, weight) })
        .collect()
}

fn scaled(p: Option<f64>, weight: f64) -> Option<f64> {
    p.map(|p| (p / weight).min(1.0))
}

/// Maximum factor by which the adjustment of a report multiplies a p-value of this metric.
pub(crate) fn multiplicity(report: &Report, index: &Index<'_>, metric: &MetricInfo) -> f64 {
    let rows: usize = index.groups.iter().map(|group| group.candidates.len()).sum();
    let metrics = &report.head.workload.metrics;
    match metrics.first() {
        Some(first) if first.name != metric.name => {
            (rows * (metrics.len() - 1)) as f64 / (1.0 - OF_THE_ANSWER)
        }
        _ if metrics.len() > 1 => rows as f64 / OF_THE_ANSWER,
        _ => rows as f64,
    }
}

/// Adjusts rows of several reports as one family, such as the rows of the checkup.
/// Holm's adjustment is over what the reader is shown as one answer, whatever report a row comes from,
/// and not over each report's other comparisons. A row is the index of a report and of its comparison.
/// `ahead` further rows are not measured yet and count as undecided, so that a row that is shown as
/// decided stays decided: what follows can only make the family smaller (docs/method.md §4).
pub fn judge_rows(reports: &mut [&mut Report], rows: &[(usize, usize)], ahead: u32) {
    let mut questions: Vec<Ps> = rows
        .iter()
        .map(|&(report, row)| {
            let comparison = &reports[report].analysis.comparisons[row];
            Ps { same: comparison.p, inside: comparison.p_margin }
        })
        .collect();
    questions.extend(std::iter::repeat_n(Ps { same: Some(1.0), inside: Some(1.0) }, ahead as usize));
    for (&(report, row), ps) in rows.iter().zip(together(&questions)) {
        let report = &mut *reports[report];
        let terms =
            Terms::of(&report.head.plan, block_seconds(report, &report.analysis.comparisons[row].point));
        let metrics = &report.head.workload.metrics;
        let comparison = &mut report.analysis.comparisons[row];
        let Some(metric) = metrics.iter().find(|metric| metric.name == comparison.metric) else { continue };
        (comparison.p_adjusted, comparison.p_margin_adjusted) = (ps.same, ps.inside);
        judge_again(comparison, metric, &terms);
    }
}

/// The comparison judged by unadjusted p-values, for a claim that several comparisons must all show.
/// That all of them agree by chance is no more likely than that one does, so each is tested at the full
/// level (an intersection–union test, Berger 1982). A contradiction is another question: a single one is
/// looked for among all points, and needs the adjusted value (docs/method.md §4).
#[must_use]
pub fn judge_alone(report: &Report, comparison: &Comparison) -> Comparison {
    let mut alone = comparison.clone();
    let metrics = &report.head.workload.metrics;
    if let (Some(metric), true) =
        (metrics.iter().find(|metric| metric.name == comparison.metric), comparison.p_margin.is_some())
    {
        (alone.p_adjusted, alone.p_margin_adjusted) = (comparison.p, comparison.p_margin);
        let terms = Terms::of(&report.head.plan, block_seconds(report, &comparison.point));
        judge_again(&mut alone, metric, &terms);
    }
    alone
}

/// Holm's adjustment within each group of equal names.
pub(crate) fn adjust_by_metric(names: &[String], p_values: &mut [Option<f64>]) {
    let mut done: Vec<&str> = Vec::new();
    for name in names {
        if done.contains(&name.as_str()) {
            continue;
        }
        done.push(name);
        let family: Vec<usize> =
            (0..names.len()).filter(|&i| names[i] == *name && p_values[i].is_some()).collect();
        let raw: Vec<f64> = family.iter().filter_map(|&i| p_values[i]).collect();
        for (&i, adjusted) in family.iter().zip(holm::adjust(&raw)) {
            p_values[i] = Some(adjusted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ps(p: f64) -> Ps {
        Ps { same: Some(p), inside: Some(p) }
    }

    fn gated(questions: &[(bool, f64)], can_be_answered: &[bool]) -> Vec<f64> {
        let questions: Vec<(bool, Ps)> = questions.iter().map(|(first, p)| (*first, ps(*p))).collect();
        gate(&questions, 0.05, can_be_answered).into_iter().map(|ps| ps.inside.unwrap()).collect()
    }

    fn close(found: &[f64], wanted: &[f64]) {
        assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-12), "{found:?} {wanted:?}");
    }

    #[test]
    fn the_answer_has_four_fifths_and_passes_them_on() {
        // Only one metric: plain Holm.
        close(&gated(&[(true, 0.01), (true, 0.04)], &[true; 2]), &[0.02, 0.04]);
        // Undecided first metric: 4 % for it, 1 % for the two others.
        close(&gated(&[(true, 0.2), (false, 0.001), (false, 0.5)], &[true; 3]), &[0.25, 0.01, 1.0]);
        // Decided first metric: the others have all 5 %.
        close(&gated(&[(true, 0.02), (false, 0.001), (false, 0.5)], &[true; 3]), &[0.025, 0.002, 0.5]);
        // An invalidated question is undecided, however small its p-value.
        close(
            &gated(&[(true, 0.02), (false, 0.001), (false, 0.5)], &[false, true, true]),
            &[0.025, 0.01, 1.0],
        );
    }

    #[test]
    fn a_question_without_a_p_is_none() {
        let family = together(&[ps(0.01), Ps::default(), ps(0.02)]);
        assert_eq!(family, [ps(0.02), Ps::default(), ps(0.02)]);
    }
}
