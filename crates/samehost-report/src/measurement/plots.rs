//! Plots in characters: latency by quantile, all arms on one logarithmic axis, which shows whether the whole distribution moved or
//! only its tail; and ratios with their intervals along a sweep. The first pools the requests of all trials, so no verdict is ever
//! based on it: they share connections, memory layout and minute (docs/method.md §8).

use samehost_analysis::{HistogramError, quantiles_for_shift};
use samehost_model::human::{format_percent, format_together};
use samehost_model::{Better, Comparison, MetricInfo, Trial};

use crate::layout::{Line, Span, Tone, truncate, width};
use crate::measurement::view::{View, ends, trials};
use crate::measurement::words;

/// The quantiles that are shown, each where ten operations of every arm lie beyond it.
const QUANTILES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];
/// The arms, the baseline first, and two arms in one column.
const SIGNS: [char; 6] = ['○', '●', '◆', '▲', '■', '▼'];
const BOTH: char = '◉';
/// Columns of a plot, at most and at least; where there is less room there is none.
const WIDEST: usize = 72;
const NARROWEST: usize = 16;

/// Plot of a single point; empty when the baseline or all candidates lack a histogram. Fails when a stored
/// histogram is corrupt.
pub(crate) fn quantile_plot(view: &View<'_>, columns: usize) -> Result<Vec<Line>, HistogramError> {
    let Some(group) = view.single() else { return Ok(Vec::new()) };
    // Further candidates would have no sign.
    let candidates: Vec<_> = group.candidates.iter().take(SIGNS.len() - 1).collect();
    let base: Vec<&Trial> = trials(view.report, &group.baseline.id).collect();
    let mut names = Vec::new();
    let mut rows: Vec<(f64, Vec<f64>)> = Vec::new();
    for candidate in candidates {
        let samples: Vec<&Trial> = trials(view.report, &candidate.id).collect();
        let shifts = quantiles_for_shift(&base, &samples, &QUANTILES)?;
        if shifts.is_empty() {
            continue;
        }
        if names.is_empty() {
            names.push(view.name(&group.baseline.id));
            rows = shifts.iter().map(|shift| (shift.quantile, vec![shift.baseline_us])).collect();
        }
        // Only quantiles that all arms have are shown.
        rows.retain(|(quantile, _)| shifts.iter().any(|shift| shift.quantile == *quantile));
        for (quantile, values) in &mut rows {
            let Some(shift) = shifts.iter().find(|shift| shift.quantile == *quantile) else { continue };
            values.push(shift.candidate_us);
        }
        names.push(view.name(&candidate.id));
    }
    Ok(if rows.is_empty() { Vec::new() } else { draw(&names, &rows, columns) })
}

fn draw(names: &[String], rows: &[(f64, Vec<f64>)], screen: usize) -> Vec<Line> {
    let labels: Vec<String> = rows.iter().map(|(quantile, _)| label(*quantile)).collect();
    let label_width = labels.iter().map(|label| width(label)).max().unwrap_or(0);
    let values: Vec<Vec<String>> = rows.iter().map(|(_, values)| format_together(values, "us")).collect();
    let wide = values.iter().flatten().map(|text| width(text)).max().unwrap_or(0);
    let wide = wide.max(names.iter().map(|name| width(name)).max().unwrap_or(0).min(12));
    let beside = names.len() * (wide + 2);
    // The numbers are placed beside the plot if both fit.
    let room = screen.saturating_sub(label_width + 2);
    let numbers = room >= beside + NARROWEST + 8;
    let columns = if numbers { room - beside } else { room }.min(WIDEST);
    if columns < NARROWEST {
        return Vec::new();
    }
    let Some(axis) = Axis::over(rows.iter().flat_map(|(_, values)| values.iter().copied()), columns) else {
        return Vec::new();
    };
    let (ticks, scale) = axis.ticks(&tick_labels());
    let mut lines = vec![legend(names, screen), Line::default()];
    let head = &mut lines[1];
    head.spaces(label_width + 2);
    if numbers {
        for name in names {
            let name = truncate(name, wide);
            head.spaces(wide - width(&name));
            head.push(Span::dim(&name));
            head.spaces(2);
        }
    }
    head.append(scale);
    for ((label, texts), (_, values)) in labels.iter().zip(&values).zip(rows) {
        let mut line = Line::default();
        line.push(Span::dim(label));
        line.spaces(label_width + 2 - width(label));
        if numbers {
            for text in texts {
                line.spaces(wide - width(text));
                line.push(Span::plain(text));
                line.spaces(2);
            }
        }
        marks(&axis, &ticks, values, columns).draw(&mut line);
        lines.push(line);
    }
    lines
}

fn marks(axis: &Axis, ticks: &[usize], values: &[f64], columns: usize) -> Canvas {
    let mut canvas = Canvas::new(columns);
    for tick in ticks {
        canvas.put(*tick, '·', Tone::Dim);
    }
    let places: Vec<usize> = values.iter().map(|value| axis.column(*value)).collect();
    if let (Some(from), Some(to)) = (places.iter().min(), places.iter().max()) {
        canvas.fill(*from, *to, '─', Tone::Dim);
    }
    for (i, (place, sign)) in places.iter().zip(SIGNS).enumerate() {
        let shared = places.iter().enumerate().any(|(j, other)| j != i && other == place);
        canvas.put(*place, if shared { BOTH } else { sign }, Tone::Plain);
    }
    canvas
}

fn legend(names: &[String], columns: usize) -> Line {
    let signs: String =
        names.iter().zip(SIGNS).map(|(name, sign)| format!("  {sign} {}", truncate(name, 16))).collect();
    let (title, about) = ("latency by quantile", ", all trials together, log scale");
    let mut spans = vec![Span::new(Tone::Bold, title)];
    if width(title) + width(about) + width(&signs) <= columns {
        spans.push(Span::dim(about));
    }
    spans.push(Span::plain(truncate(&signs, columns.saturating_sub(width(title)))));
    Line::from(spans)
}

/// Formats as `p50`, `p99.9`.
pub(crate) fn label(quantile: f64) -> String {
    let percent = format!("{:.2}", 100.0 * quantile);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// Labels from a nanosecond to hundreds of seconds, by precedence: powers of ten first.
fn tick_labels() -> Vec<(f64, String)> {
    let mut labels = Vec::new();
    for digit in [1.0, 2.0, 5.0, 3.0, 1.5, 7.0] {
        for decade in -3..9 {
            let us = digit * 10_f64.powi(decade);
            let (value, unit) = match decade {
                ..0 => (us * 1e3, "ns"),
                0..3 => (us, "µs"),
                3..6 => (us / 1e3, "ms"),
                _ => (us / 1e6, "s"),
            };
            labels.push((us, format!("{} {unit}", (value * 10.0).round() / 10.0)));
        }
    }
    labels
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    columns: usize,
}

impl Axis {
    /// Axis over all positive values, with a small padding; `None` without positive values.
    pub(crate) fn over(values: impl IntoIterator<Item = f64>, columns: usize) -> Option<Axis> {
        let logs: Vec<f64> = values.into_iter().filter(|v| v.is_finite() && *v > 0.0).map(f64::ln).collect();
        let (low, high) = ends(&logs)?;
        let room = (0.03 * (high - low)).max(0.005);
        Some(Axis { low: low - room, high: high + room, columns: columns.max(2) })
    }

    /// Column of a value; values outside the axis are clamped to its ends.
    pub(crate) fn column(&self, value: f64) -> usize {
        let part = (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        ((part * (self.columns - 1) as f64).round().max(0.0) as usize).min(self.columns - 1)
    }

    fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value.ln())
    }

    /// Columns of labelled ticks, and the line of their labels. Labels that come first take precedence where
    /// they overlap.
    pub(crate) fn ticks(&self, labels: &[(f64, String)]) -> (Vec<usize>, Line) {
        let mut taken: Vec<(usize, usize, &str)> = Vec::new();
        let mut columns = Vec::new();
        for (value, label) in labels.iter().filter(|(value, _)| self.holds(*value)) {
            let wide = width(label);
            if wide > self.columns {
                continue;
            }
            let column = self.column(*value);
            let from = column.saturating_sub(wide / 2).min(self.columns - wide);
            let to = from + wide;
            if taken.iter().all(|(start, end, _)| to + 1 < *start || from > end + 1) {
                taken.push((from, to, label));
                columns.push(column);
            }
        }
        taken.sort_unstable();
        let mut line = Line::default();
        let mut at = 0;
        for (from, to, label) in taken {
            line.spaces(from - at);
            line.push(Span::dim(label));
            at = to;
        }
        (columns, line)
    }
}

pub(crate) struct Canvas(Vec<(char, Tone)>);

impl Canvas {
    pub(crate) fn new(columns: usize) -> Self {
        Canvas(vec![(' ', Tone::Plain); columns])
    }

    pub(crate) fn put(&mut self, column: usize, sign: char, tone: Tone) {
        if let Some(cell) = self.0.get_mut(column) {
            *cell = (sign, tone);
        }
    }

    pub(crate) fn fill(&mut self, from: usize, to: usize, sign: char, tone: Tone) {
        for column in from.min(to)..=from.max(to) {
            self.put(column, sign, tone);
        }
    }

    pub(crate) fn draw(self, line: &mut Line) {
        for run in self.0.chunk_by(|a, b| a.1 == b.1) {
            let text: String = run.iter().map(|(sign, _)| sign).collect();
            line.push(Span::new(run[0].1, text));
        }
    }
}

/// Plot of the first metric over all points; empty without intervals.
pub(crate) fn ratio_plot(view: &View<'_>, columns: usize) -> Vec<Line> {
    let Some(metric) = view.metrics().first() else { return Vec::new() };
    if !view.is_sweep() {
        return Vec::new();
    }
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
        ratio_marks(&axis, limits, comparison, left).draw(&mut line);
        lines.push(line);
    }
    let mut scale = Line::default();
    scale.spaces(label + 2);
    scale.append(axis.ticks(&ratio_tick_labels()).1);
    lines.push(scale);
    lines
}

fn head(view: &View<'_>, metric: &MetricInfo, columns: usize) -> Line {
    let base = view.base_name();
    let what = match view.candidates().as_slice() {
        [one] => format!("{} ÷ {base}", truncate(one, 16)),
        _ => format!("÷ {base}"),
    };
    let side = if metric.better == Better::Higher { "right" } else { "left" };
    let title = truncate(&format!("{}, {what}", words::title(&metric.name)), columns);
    let about = format!("  ┊ ±{}, {side} is better", format_percent(view.report.head.plan.margin));
    if width(&title) + width(&about) > columns {
        return Line::from(vec![Span::new(Tone::Bold, title)]);
    }
    Line::from(vec![Span::new(Tone::Bold, title), Span::dim(about)])
}

/// `├──●──┤` on top of the marks of ratio 1 and the margin.
fn ratio_marks(
    axis: &Axis,
    [one, above, below]: [f64; 3],
    comparison: &Comparison,
    columns: usize,
) -> Canvas {
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

fn ratio_tick_labels() -> Vec<(f64, String)> {
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
    fn quantiles_and_ticks_are_named() {
        assert_eq!([0.1, 0.5, 0.999].map(label), ["p10", "p50", "p99.9"]);
        let labels = tick_labels();
        for text in ["1 µs", "200 µs", "50 ms", "1.5 µs", "100 ns", "1 s"] {
            assert!(labels.iter().any(|(_, label)| label == text), "{text}");
        }
    }

    #[test]
    fn an_arm_on_top_of_another_shows() {
        let axis = Axis::over([10.0, 100.0], 20).unwrap();
        let mut line = Line::default();
        marks(&axis, &[], &[50.0, 50.0], 20).draw(&mut line);
        assert_eq!(line.print(false).trim(), "◉");
    }

    #[test]
    fn values_find_their_columns() {
        let axis = Axis::over([1.0, 10.0, 100.0], 41).unwrap();
        assert_eq!(axis.column(10.0), 20);
        assert!(axis.column(1.0) <= 2 && axis.column(100.0) >= 38);
        assert_eq!((axis.column(0.0), axis.column(1e9)), (0, 40));
        assert!(Axis::over([f64::NAN, 0.0], 10).is_none());
        assert!(Axis::over([1.0], 10).is_some());
    }

    #[test]
    fn labels_do_not_touch() {
        let axis = Axis::over([1.0, 100.0], 21).unwrap();
        let labels: Vec<(f64, String)> =
            [1.0, 10.0, 11.0, 100.0, 1000.0].iter().map(|v| (*v, format!("{v}"))).collect();
        let (columns, line) = axis.ticks(&labels);
        assert_eq!(columns.len(), 3);
        assert_eq!(line.print(false).split_whitespace().collect::<Vec<_>>(), ["1", "10", "100"]);
    }

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
        ratio_marks(&axis, [1.0, 1.02, 1.0 / 1.02], &comparison, 40).draw(&mut line);
        let text = line.print(false);
        let column = |sign: char| text.chars().position(|c| c == sign).unwrap();
        assert!(
            column('│') < column('├') && column('├') < column('●') && column('●') < column('┤'),
            "{text}"
        );
    }
}
