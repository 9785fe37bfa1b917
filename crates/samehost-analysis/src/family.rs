//! Multiple testing: at most 5 % of reports claim any difference that does not exist.

use samehost_model::{Comparison, MetricInfo, Report};
use samehost_stats::{Estimate, holm};

use crate::index::{Index, distinct};
use crate::judge::{Terms, block_seconds, judge_again};

/// Share of the 5 % for the report's first metric; all other metrics together have the rest, 1 %.
/// The promise is that at most one report in twenty calls any difference that does not exist, so the
/// questions of a report share one level. The first metric is what the reader asked for, and gets most of
/// it. Without an adjustment some interval excludes 1 in 40 to 44 % of simulated reports of equal arms;
/// with it some adjusted p-value is below 5 % in 3.9 to 5.1 % of them (docs/method.md §4).
pub(crate) const OF_THE_ANSWER: f64 = 0.8;

/// P-values of one question: of "no difference", and of "inside the margin". `None` where a method gives none, as with one
/// block; such a question is not counted in its family.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ps {
    pub(crate) same: Option<f64>,
    pub(crate) inside: Option<f64>,
}

impl Ps {
    pub(crate) fn of(estimate: &Estimate) -> Self {
        Ps { same: estimate.p, inside: estimate.p_inside }
    }

    /// Both as parts of their levels: a p-value at 4 % of the 5 % is divided by 0.8.
    fn scaled(self, same: f64, inside: f64) -> Self {
        Ps {
            same: self.same.map(|p| (p / same).min(1.0)),
            inside: self.inside.map(|p| (p / inside).min(1.0)),
        }
    }
}

/// Holm's adjustment (Holm 1979) of the p-values that exist.
fn holm_of(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let known: Vec<f64> = p_values.iter().copied().flatten().collect();
    let mut adjusted = holm::adjust(&known).into_iter();
    let mut all = Vec::with_capacity(p_values.len());
    for p in p_values {
        all.push(if p.is_some() { adjusted.next() } else { None });
    }
    all
}

/// Adjusts all questions as one family by Holm's method, which holds whatever the dependence between them is. The
/// p-values of "no difference" and those of "inside the margin" are adjusted separately: each is its own promise.
pub(crate) fn together(questions: &[Ps]) -> Vec<Ps> {
    let same = holm_of(&questions.iter().map(|q| q.same).collect::<Vec<_>>());
    let inside = holm_of(&questions.iter().map(|q| q.inside).collect::<Vec<_>>());
    same.into_iter().zip(inside).map(|(same, inside)| Ps { same, inside }).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Whether it is about the report's first metric.
    pub(crate) is_of_the_answer: bool,
    /// Whether no issue bars it.
    pub(crate) can_be_answered: bool,
    pub(crate) ps: Ps,
}

/// Adjusts the first metric's questions as a family at 4 %, and all others as one at 1 %. If all of the first
/// metric's questions are decided, their 4 % pass to the others (gatekeeping: Bretz et al. 2009). Without
/// others the first metric has all 5 %. P-values are scaled so that 5 % is the threshold for all.
pub(crate) fn gate(questions: &[Question], alpha: f64) -> Vec<Ps> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for question in questions {
        let family = if question.is_of_the_answer { &mut first } else { &mut others };
        family.push(question.ps);
    }
    let weight = if others.is_empty() { 1.0 } else { OF_THE_ANSWER };
    let mut first = together(&first).into_iter().map(|ps| ps.scaled(weight, weight));
    let mut others = together(&others).into_iter();
    let mut adjusted = vec![Ps::default(); questions.len()];
    let (mut same_decided, mut inside_decided) = (first.len() > 0, first.len() > 0);
    for (question, adjusted) in questions.iter().zip(&mut adjusted) {
        if question.is_of_the_answer {
            *adjusted = first.next().unwrap_or_default();
            same_decided &= question.can_be_answered && adjusted.same.is_some_and(|p| p < alpha);
            inside_decided &= question.can_be_answered && adjusted.inside.is_some_and(|p| p < alpha);
        }
    }
    let rest = 1.0 - OF_THE_ANSWER;
    let (same, inside) = (if same_decided { 1.0 } else { rest }, if inside_decided { 1.0 } else { rest });
    for (question, adjusted) in questions.iter().zip(&mut adjusted) {
        if !question.is_of_the_answer {
            *adjusted = others.next().unwrap_or_default().scaled(same, inside);
        }
    }
    adjusted
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
    let mut questions: Vec<Ps> = Vec::new();
    for &(report, row) in rows {
        let comparison = &reports[report].analysis.comparisons[row];
        questions.push(Ps { same: comparison.p, inside: comparison.p_margin });
    }
    questions.extend(std::iter::repeat_n(Ps { same: Some(1.0), inside: Some(1.0) }, ahead as usize));
    for (&(report, row), ps) in rows.iter().zip(together(&questions)) {
        let report = &mut *reports[report];
        report.analysis.comparisons[row] = judged_by(report, &report.analysis.comparisons[row], ps);
    }
}

/// The comparison judged by these p-values; as it is where the report does not know its metric.
fn judged_by(report: &Report, comparison: &Comparison, ps: Ps) -> Comparison {
    let mut judged = comparison.clone();
    let metrics = &report.head.workload.metrics;
    let Some(metric) = metrics.iter().find(|metric| metric.name == comparison.metric) else { return judged };
    (judged.p_adjusted, judged.p_margin_adjusted) = (ps.same, ps.inside);
    let terms = Terms::of(&report.head.plan, block_seconds(report, &comparison.point));
    judge_again(&mut judged, metric, &terms);
    judged
}

/// The comparison judged by unadjusted p-values, for a claim that several comparisons must all show.
/// That all of them agree by chance is no more likely than that one does, so each is tested at the full
/// level (an intersection–union test, Berger 1982). A contradiction is another question: a single one is
/// looked for among all points, and needs the adjusted value (docs/method.md §4).
#[must_use]
pub fn judge_alone(report: &Report, comparison: &Comparison) -> Comparison {
    if comparison.p_margin.is_none() {
        return comparison.clone();
    }
    judged_by(report, comparison, Ps { same: comparison.p, inside: comparison.p_margin })
}

/// Adjusts questions as [`together`] does, with one family for each name; `names` and `questions` belong together by place.
pub(crate) fn adjust_by_metric(names: &[&str], questions: &[Ps]) -> Vec<Ps> {
    let mut adjusted = questions.to_vec();
    for name in distinct(names) {
        let places: Vec<usize> = (0..names.len()).filter(|&place| names[place] == *name).collect();
        let family: Vec<Ps> = places.iter().map(|&place| questions[place]).collect();
        for (place, ps) in places.into_iter().zip(together(&family)) {
            adjusted[place] = ps;
        }
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ps(p: f64) -> Ps {
        Ps { same: Some(p), inside: Some(p) }
    }

    fn gated(questions: &[(bool, f64)], can_be_answered: &[bool]) -> Vec<f64> {
        let mut all = Vec::new();
        for (&(is_of_the_answer, p), &can_be_answered) in questions.iter().zip(can_be_answered) {
            all.push(Question { is_of_the_answer, can_be_answered, ps: ps(p) });
        }
        gate(&all, 0.05).into_iter().map(|ps| ps.inside.unwrap()).collect()
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
