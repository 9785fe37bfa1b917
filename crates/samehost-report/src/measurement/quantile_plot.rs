//! Plot of latency by quantile: all arms on one logarithmic axis, which shows whether the whole distribution
//! moved or only its tail. Pools requests of all trials; verdicts are never based on it.

use samehost_analysis::{HistogramError, quantiles_for_shift};
use samehost_model::Trial;
use samehost_model::human::format_together;

use crate::layout::axis::{Axis, Canvas};
use crate::layout::text::{Line, Span, Tone, truncate, width};
use crate::measurement::view::{View, trials};

const QUANTILES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];
/// Markers of the arms, the baseline first.
const SIGNS: [char; 6] = ['○', '●', '◆', '▲', '■', '▼'];
/// Marker for two arms in one column.
const BOTH: char = '◉';
const WIDEST: usize = 72;
const NARROWEST: usize = 16;

/// Plot of a single point; empty when the baseline or all candidates lack a histogram. Fails when a stored
/// histogram is corrupt.
pub(crate) fn quantile_plot(view: &View<'_>, columns: usize) -> Result<Vec<Line>, HistogramError> {
    let Some(group) = view.single() else { return Ok(Vec::new()) };
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
            values.extend(shifts.iter().find(|s| s.quantile == *quantile).map(|s| s.candidate_us));
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
    let (numbers, left) = match screen.saturating_sub(label_width + 2) {
        room if room >= beside + NARROWEST + 8 => (true, room - beside),
        room => (false, room),
    };
    let columns = left.min(WIDEST);
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

/// Row of one quantile.
fn marks(axis: &Axis, ticks: &[usize], values: &[f64], columns: usize) -> Canvas {
    let mut canvas = Canvas::new(columns);
    for tick in ticks {
        canvas.put(*tick, '·', Tone::Dim);
    }
    let places: Vec<usize> = values.iter().map(|value| axis.column(*value)).collect();
    let (from, to) = (places.iter().min(), places.iter().max());
    if let (Some(from), Some(to)) = (from, to) {
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

fn label(quantile: f64) -> String {
    let percent = format!("{:.1}", 100.0 * quantile);
    format!("p{}", percent.trim_end_matches(".0"))
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

#[cfg(test)]
mod tests {
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
}
