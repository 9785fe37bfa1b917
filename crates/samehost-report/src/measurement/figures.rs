//! Tables of a report as data, for the terminal and for Markdown.

use std::collections::BTreeSet;

use samehost_model::human::{format_percent, format_value};
use samehost_model::{Better, Comparison, MetricInfo, Verdict, metric};

use crate::layout::{Align, Column, Figure, Grid, Span, Tone, dash, value_cells};
use crate::measurement::view::{self, Parameter, View};
use crate::measurement::{effects, ladder, predictions, words};

/// Metrics of a sweep that have a table; the others are in JSON and CSV.
const SWEPT: usize = 3;
/// The metric that has a table beside these wherever there were enough requests: users ask a benchmark most for it.
const TAIL: &str = metric::LATENCY_P99_9.name;
/// A sweep with more points than this has only one table.
const MANY_POINTS: usize = 16;

pub(crate) fn figures(view: &View<'_>) -> (Vec<Figure>, Option<String>) {
    if let Some(group) = view.single() {
        let grid = match group.candidates.len() {
            0 => alone(view),
            1 => pair(view),
            _ => stacked(view),
        };
        return (vec![Figure { title: String::new(), grid }], None);
    }
    let mut metrics: Vec<&MetricInfo> = view.metrics().iter().collect();
    metrics.retain(|metric| {
        view.groups.iter().any(|group| view::typical(view.report, &group.baseline.id, metric).is_some())
    });
    let mut figures = ladder::tables(view);
    let most = if view.groups.len() > MANY_POINTS || !figures.is_empty() { 1 } else { SWEPT };
    if view.candidates().is_empty() {
        figures.push(Figure { title: String::new(), grid: sweep_alone(view, &metrics) });
        return (figures, None);
    }
    let mut rest: Vec<String> = Vec::new();
    for (place, metric) in metrics.into_iter().enumerate() {
        let title = words::title(&metric.name);
        if place < most || most == SWEPT && metric.name == TAIL {
            figures.push(Figure { title, grid: sweep(view, metric) });
        } else {
            rest.push(title);
        }
    }
    figures.extend(effects::effects(view));
    figures.extend(effects::combinations(view));
    figures.extend(predictions::figures(view));
    if rest.is_empty() {
        return (figures, None);
    }
    (figures, Some(format!("Also measured: {}; see --json or --csv.", rest.join(", "))))
}

pub(crate) fn legend(view: &View<'_>, figures: &[Figure]) -> Option<String> {
    let cells: Vec<&str> =
        figures.iter().flat_map(|figure| figure.grid.rows.iter().flatten()).map(Span::text).collect();
    words::legend(&cells, view.report.head.plan.margin)
}

fn confidence_head(view: &View<'_>) -> Column {
    let head = format!("{} interval", format_percent(view.report.head.plan.confidence));
    Column::new(head, Align::Right).spare(1)
}

fn verdict_cells(metric: &MetricInfo, comparison: Option<&Comparison>) -> [Span; 3] {
    let Some(comparison) = comparison else { return [dash(), dash(), Span::default()] };
    let tone = words::tone(words::told(comparison));
    let weight = if words::told(comparison) == Verdict::Inconclusive { Tone::Plain } else { Tone::Bold };
    let [ratio, interval] = words::ratio_cells(comparison.ratio, comparison.ends());
    [Span::new(weight, ratio), Span::from(interval), Span::new(tone, words::cell(Some(metric), comparison))]
}

fn alone(view: &View<'_>) -> Grid {
    let grid = Grid::default().with(Align::Left, &[""]);
    let mut grid = grid.with(Align::Value, &["median", "min", "max"]);
    let Some(group) = view.single() else { return grid };
    for metric in view.metrics() {
        let values = view::values(view.report, &group.baseline.id, |trial| metric.value(trial));
        let (Some(median), Some((low, high))) = (samehost_stats::median(&values), view::ends(&values)) else {
            continue;
        };
        let mut row = vec![Span::plain(words::title(&metric.name))];
        row.extend(value_cells(&[Some(median), Some(low), Some(high)], &metric.unit));
        grid.push(row);
    }
    grid
}

/// One point, two arms: a row for each metric.
fn pair(view: &View<'_>) -> Grid {
    let Some(group) = view.single() else { return Grid::default() };
    let (base, candidate) = (group.baseline, group.candidates[0]);
    let (base_name, name) = (view.name(&base.id), view.name(&candidate.id));
    let mut grid = Grid::new(vec![
        Column::new("", Align::Left),
        Column::new(&base_name, Align::Value),
        Column::new(&name, Align::Value),
        Column::new(format!("{name} ÷ {base_name}"), Align::Right).or_short("ratio"),
        confidence_head(view),
        Column::new("verdict", Align::Left),
    ]);
    for metric in view.metrics() {
        let comparison = view.comparison(&metric.name, &candidate.id);
        let values = both_values(view, metric, &base.id, &candidate.id);
        let needs = samehost_analysis::time_for_percentile(view.report, metric, &base.point);
        if values == [None, None] && needs.is_none() {
            continue;
        }
        let mut row = vec![Span::plain(words::title(&metric.name))];
        row.extend(value_cells(&values, &metric.unit));
        row.extend(verdict_cells(metric, comparison));
        if let (None, Some(time), Some(last)) = (comparison, needs, row.last_mut()) {
            *last = Span::dim(format!("needs --trial-time {time:?}"));
        }
        grid.push(row);
    }
    for own in own_measurements(view) {
        let values =
            [view::typical(view.report, &base.id, &own), view::typical(view.report, &candidate.id, &own)];
        let mut row = vec![Span::plain(words::title(&own.name))];
        row.extend(value_cells(&values, &own.unit));
        row.extend(verdict_cells(&own, None));
        grid.push(row);
    }
    grid
}

/// One point, several candidates: a row for each metric and arm, compared with the baseline.
fn stacked(view: &View<'_>) -> Grid {
    let Some(group) = view.single() else { return Grid::default() };
    let mut grid = Grid::new(vec![
        Column::new("", Align::Left),
        Column::new("", Align::Left),
        Column::new("median", Align::Value),
        Column::new(format!("÷ {}", view.name(&group.baseline.id)), Align::Right).or_short("ratio"),
        confidence_head(view),
        Column::new("verdict", Align::Left),
    ]);
    for metric in view.metrics() {
        let arms: Vec<_> = group.arms().collect();
        let mut values: Vec<Option<f64>> = Vec::new();
        for arm in &arms {
            values.push(match view.comparison(&metric.name, &arm.id) {
                Some(comparison) => Some(comparison.candidate_value),
                None => view::typical(view.report, &arm.id, metric),
            });
        }
        if values.iter().all(Option::is_none) {
            continue;
        }
        for (i, (arm, value)) in arms.iter().zip(value_cells(&values, &metric.unit)).enumerate() {
            let title = if i == 0 { words::title(&metric.name) } else { String::new() };
            let mut row = vec![Span::from(title), Span::plain(view.name(&arm.id)), value];
            if i == 0 {
                row.extend([Span::default(), Span::default(), Span::default()]);
            } else {
                row.extend(verdict_cells(metric, view.comparison(&metric.name, &arm.id)));
            }
            grid.push(row);
        }
    }
    grid
}

fn parameter_column(parameter: &Parameter) -> Column {
    let column = Column::new(parameter.title(), Align::Value);
    if *parameter == Parameter::Connections { column.or_short("conn.") } else { column }
}

/// The values of a baseline and a candidate: those that were compared, else what each typically has.
fn both_values(view: &View<'_>, metric: &MetricInfo, baseline: &str, candidate: &str) -> [Option<f64>; 2] {
    match view.comparison(&metric.name, candidate) {
        Some(found) => [Some(found.baseline_value), Some(found.candidate_value)],
        None => [view::typical(view.report, baseline, metric), view::typical(view.report, candidate, metric)],
    }
}

/// Several points: a row for each point and candidate. Values of all rows have one unit, so that a column can be read.
fn sweep(view: &View<'_>, metric: &MetricInfo) -> Grid {
    let many = view.candidates().len() > 1;
    let mut values = Vec::new();
    for group in &view.groups {
        for candidate in &group.candidates {
            values.extend(both_values(view, metric, &group.baseline.id, &candidate.id));
        }
    }
    let mut cells = value_cells(&values, &metric.unit).into_iter();
    let mut grid = Grid::new(sweep_columns(view, many));
    for group in &view.groups {
        for (i, candidate) in group.candidates.iter().enumerate() {
            let mut row = Vec::new();
            let (base, value) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            if i == 0 {
                let point = &group.baseline.point;
                row.extend(view.varying.iter().map(|parameter| Span::from(parameter.value(point))));
                row.push(base);
            } else {
                row.resize(view.varying.len() + 1, Span::default());
            }
            if many {
                row.push(Span::plain(view.name(&candidate.id)));
            }
            row.push(value);
            row.extend(verdict_cells(metric, view.comparison(&metric.name, &candidate.id)));
            grid.push(row);
        }
    }
    grid
}

fn sweep_columns(view: &View<'_>, many: bool) -> Vec<Column> {
    let base = view.base_name();
    let mut columns: Vec<Column> = view.varying.iter().map(parameter_column).collect();
    columns.push(Column::new(&base, Align::Value));
    let (value, ratio) = if many {
        columns.push(Column::new("", Align::Left));
        ("median".to_owned(), format!("÷ {base}"))
    } else {
        let name = view.candidates().into_iter().next().unwrap_or_default();
        let ratio = format!("{name} ÷ {base}");
        (name, ratio)
    };
    columns.extend([
        Column::new(value, Align::Value),
        Column::new(ratio, Align::Right).or_short("ratio"),
        confidence_head(view),
        Column::new("verdict", Align::Left),
    ]);
    columns
}

/// Several points of one arm: a row for each point, a column for each of the first metrics.
fn sweep_alone(view: &View<'_>, metrics: &[&MetricInfo]) -> Grid {
    let mut columns: Vec<Column> = view.varying.iter().map(parameter_column).collect();
    let mut rows: Vec<Vec<Span>> = Vec::new();
    for group in &view.groups {
        let point = &group.baseline.point;
        rows.push(view.varying.iter().map(|parameter| Span::from(parameter.value(point))).collect());
    }
    for (i, metric) in metrics.iter().enumerate() {
        columns.push(Column::new(words::title(&metric.name), Align::Value).spare(i as u8));
        let medians = view.groups.iter().map(|group| view::typical(view.report, &group.baseline.id, metric));
        let cells = value_cells(&medians.collect::<Vec<_>>(), &metric.unit);
        for (row, cell) in rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    let mut grid = Grid::new(columns);
    for row in rows {
        grid.push(row);
    }
    grid
}

/// Measurements of trials that are not a metric of any table: those that no metric names, and over several points also a metric
/// that was not compared.
fn own_measurements(view: &View<'_>) -> Vec<MetricInfo> {
    let trials = view.report.trials.iter();
    let keys: BTreeSet<&String> = trials.flat_map(|trial| trial.measurements.keys()).collect();
    let mut own = Vec::new();
    for key in keys {
        match view.metric(key) {
            Some(metric) => {
                let is_compared = view.report.analysis.comparisons.iter().any(|c| c.metric == *key);
                if view.is_sweep() && !is_compared {
                    own.push(metric.clone());
                }
            }
            None => own.push(MetricInfo::own(key, samehost_model::split_unit(key).1, Better::Lower)),
        }
    }
    own
}

/// Table of additional measurements: typical values, or their range over several points.
pub(crate) fn besides(view: &View<'_>) -> Option<Grid> {
    // Over one point of two arms they have rows in the table of metrics.
    if let Some(group) = view.single()
        && group.candidates.len() == 1
    {
        return None;
    }
    let names = view.arm_names();
    let values = names.iter().map(|name| Column::new(name, Align::Value));
    let mut grid = Grid::new(std::iter::once(Column::new("", Align::Left)).chain(values).collect());
    for own in own_measurements(view) {
        let mut row = vec![Span::from(words::title(&own.name))];
        for name in &names {
            row.push(range(&view.typicals(name, &own), &own.unit));
        }
        grid.push(row);
    }
    if grid.rows.is_empty() { None } else { Some(grid) }
}

pub(crate) fn range(values: &[f64], unit: &str) -> Span {
    let Some((low, high)) = view::ends(values) else { return dash() };
    let (from, to) = (format_value(low, unit), format_value(high, unit));
    if from == to {
        return Span::from(from);
    }
    Span::from(words::with_one_unit([low, high], "–", unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_share_their_unit() {
        assert_eq!(range(&[12.0, 14.5], "us").text(), "12.0–14.5 µs");
        assert_eq!(range(&[12.0], "us").text(), "12.0 µs");
        assert_eq!(range(&[], "us").text(), "–");
    }
}
