//! Plot of ratios with their intervals along a sweep, with the line at ratio 1 and the margin.

use samehost_model::human::format_percent;
use samehost_model::{Better, Comparison, MetricInfo};

use crate::layout::axis::{Axis, Canvas};
use crate::layout::text::{Line, Span, Tone, truncate, width};
use crate::measurement::view::View;
use crate::measurement::words;

const WIDEST: usize = 72;
const NARROWEST: usize = 16;

/// Plot of the first metric over all points; empty without intervals.
pub(crate) fn ratio_plot(view: &View<'_>, columns: usize) -> Vec<Line> {
    let Some(metric) = view.metrics().first().filter(|_| view.is_sweep()) else { return Vec::new() };
    let mut rows: Vec<(String, &Comparison)> = Vec::new();
    for group in &view.groups {
        for candidate in &group.candidates {
            let Some(comparison) = view.comparison(&metric.name, &candidate.id) else { continue };
            let mut parts: Vec<String> =
                view.varying.iter().map(|parameter| parameter.value(&group.baseline.point)).collect();
            if group.candidates.len() > 1 {
                parts.push(view.name(&candidate.id));
            }
            rows.push((parts.join("  "), comparison));
        }
    }
    let label = rows.iter().map(|(label, _)| width(label)).max().unwrap_or(0).min(columns / 2);
    let left = columns.saturating_sub(label + 2).min(WIDEST);
    let margin = view.report.head.plan.margin;
    let limits = [1.0, 1.0 + margin, 1.0 / (1.0 + margin)];
    let ends = rows.iter().flat_map(|(_, c)| [c.ci_low.unwrap_or(c.ratio), c.ci_high.unwrap_or(c.ratio)]);
    if left < NARROWEST || rows.iter().all(|(_, c)| c.ci_low.is_none()) {
        return Vec::new();
    }
    let Some(axis) = Axis::over(ends.chain(limits), left) else { return Vec::new() };
    let mut lines = vec![head(view, metric, columns)];
    for (text, comparison) in &rows {
        let mut line = Line::default();
        let text = truncate(text, label);
        line.spaces(label - width(&text));
        line.push(Span::dim(&text));
        line.spaces(2);
        marks(&axis, limits, comparison, left).draw(&mut line);
        lines.push(line);
    }
    let mut scale = Line::default();
    scale.spaces(label + 2);
    scale.append(axis.ticks(&tick_labels()).1);
    lines.push(scale);
    lines
}

fn head(view: &View<'_>, metric: &MetricInfo, columns: usize) -> Line {
    let base = view.groups.first().map_or_else(String::new, |group| view.name(&group.baseline.id));
    let what = match view.candidates().as_slice() {
        [one] => format!("{} ÷ {base}", truncate(one, 16)),
        _ => format!("÷ {base}"),
    };
    let side = if metric.better == Better::Higher { "right" } else { "left" };
    let title = truncate(&format!("{}, {what}", words::title(&metric.name)), columns);
    let about = format!("  ┊ ±{}, {side} is better", format_percent(view.report.head.plan.margin));
    let fits = width(&title) + width(&about) <= columns;
    let mut spans = vec![Span::new(Tone::Bold, title)];
    spans.extend(fits.then(|| Span::dim(about)));
    Line::from(spans)
}

/// Row of one point: `├──●──┤` on top of the marks of ratio 1 and the margin.
fn marks(axis: &Axis, [one, above, below]: [f64; 3], comparison: &Comparison, columns: usize) -> Canvas {
    let mut canvas = Canvas::new(columns);
    canvas.put(axis.column(above), '┊', Tone::Dim);
    canvas.put(axis.column(below), '┊', Tone::Dim);
    canvas.put(axis.column(one), '│', Tone::Dim);
    let tone = words::tone(comparison.verdict);
    if let (Some(low), Some(high)) = (comparison.ci_low, comparison.ci_high) {
        let (from, to) = (axis.column(low), axis.column(high));
        canvas.fill(from, to, '─', tone);
        canvas.put(from, '├', tone);
        canvas.put(to, '┤', tone);
    }
    canvas.put(axis.column(comparison.ratio), '●', tone);
    canvas
}

/// Labelled ratios, by precedence.
fn tick_labels() -> Vec<(f64, String)> {
    let ratios = [
        1.0, 0.5, 2.0, 0.1, 10.0, 0.2, 5.0, 0.8, 1.2, 1.5, 0.7, 3.0, 0.9, 1.1, 1.4, 0.6, 1.3, 4.0, 0.95,
        1.05, 0.3, 0.05, 20.0, 0.98, 1.02, 0.99, 1.01,
    ];
    ratios.iter().map(|ratio| (*ratio, ratio.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use samehost_model::Verdict;

    use super::*;

    #[test]
    fn an_interval_stands_around_its_ratio() {
        let comparison = Comparison {
            metric: "throughput".into(),
            candidate: "unix".into(),
            ratio: 1.4,
            ci_low: Some(1.3),
            ci_high: Some(1.5),
            verdict: Verdict::Faster,
            ..Comparison::default()
        };
        let axis = Axis::over([0.9, 1.6], 40).unwrap();
        let mut line = Line::default();
        marks(&axis, [1.0, 1.02, 1.0 / 1.02], &comparison, 40).draw(&mut line);
        let text = line.print(false);
        let column = |sign: char| text.chars().position(|c| c == sign).unwrap();
        assert!(
            column('│') < column('├') && column('├') < column('●') && column('●') < column('┤'),
            "{text}"
        );
    }
}
