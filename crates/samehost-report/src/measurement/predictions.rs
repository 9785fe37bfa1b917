//! Predictions for a whole from the gain of its part, compared with measurements: a sentence, and a table.

use samehost_model::human::{
    MAX_PERCENT, TOO_WIDE, change_range, format_percent, format_ratio_aligned, is_too_wide,
};
use samehost_model::{Bounds, Prediction};

use crate::layout::Align::{Left, Right};
use crate::layout::{Figure, Grid, Paragraph, Span, Tone};
use crate::measurement::view::View;
use crate::measurement::words;

pub(crate) fn sentences(view: &View<'_>) -> Vec<Paragraph> {
    if view.is_sweep() {
        return Vec::new();
    }
    view.report.analysis.predictions.iter().map(|prediction| sentence(view, prediction)).collect()
}

fn sentence(view: &View<'_>, prediction: &Prediction) -> Paragraph {
    let (part, whole) = (words::title(&prediction.part), words::title(&prediction.whole));
    let arithmetic = format!(
        "The arithmetic: {part} is {} of {whole} over {}, and over {} {}; so {whole} should be {}. Measured: {}.",
        percent(&prediction.share),
        view.name(&prediction.baseline),
        view.name(&prediction.candidate),
        change(&prediction.part_ratio),
        change(&prediction.predicted),
        change(&prediction.measured),
    );
    let (tone, agreement) = match (prediction.agrees, &prediction.deviation) {
        (_, deviation) if !is_measured(deviation) => (Tone::Doubt, format!("How they agree is {TOO_WIDE}.")),
        (Some(true), Bounds { ci_low: Some(low), ci_high: Some(high), .. }) => {
            let [low, high] = [low, high].map(|end| format_ratio_aligned(*end));
            (
                Tone::Plain,
                format!("The two do not differ significantly: measured ÷ predicted is {low}–{high}."),
            )
        }
        (Some(false), _) => {
            (Tone::Doubt, "The two do not agree: something besides the part changed.".to_owned())
        }
        _ => (Tone::Doubt, "One block is too few to say whether the two agree.".to_owned()),
    };
    vec![Span::plain(arithmetic), Span::new(tone, agreement)]
}

/// Whether the interval says something.
fn is_measured(bounds: &Bounds) -> bool {
    !bounds.ci_low.zip(bounds.ci_high).is_some_and(|(low, high)| is_too_wide(low, high))
}

/// A fraction with its interval: `9.8 % (9.5 %–10 %)`. No part is longer than its whole, or shorter than nothing.
fn percent(bounds: &Bounds) -> String {
    if !(0.0..=1.0).contains(&bounds.value) {
        return words::NOT_MEASURED.to_owned();
    }
    words::with_interval(format_percent(bounds.value), bounds.ci_low.zip(bounds.ci_high), format_percent)
}

/// A ratio of times as a change: `12 % shorter (10 to 14 % less)`.
fn change(ratio: &Bounds) -> String {
    let Bounds { value, ci_low, ci_high } = *ratio;
    let change = match 100.0 * (value - 1.0) {
        percent if percent > MAX_PERCENT => format!("{value:.1} times as long"),
        percent if percent > 0.0 => format!("{} longer", format_percent(value - 1.0)),
        _ => format!("{} shorter", format_percent(1.0 - value)),
    };
    match ci_low.zip(ci_high) {
        Some((low, high)) if is_too_wide(low, high) => TOO_WIDE.to_owned(),
        Some((low, high)) => format!("{change} ({})", change_range(low, high)),
        None => change,
    }
}

pub(crate) fn figures(view: &View<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for prediction in &view.report.analysis.predictions {
        let (part, whole) = (words::title(&prediction.part), words::title(&prediction.whole));
        let point = view.point(&prediction.point);
        let place = if view.is_sweep() { format!(", {point}") } else { String::new() };
        let title = format!("what the gain of {part} predicts for {whole}{place}");
        figures.push(Figure { title, grid: table(view, prediction) });
    }
    figures
}

/// Row of a table: label, value, formatter, note.
type Row<'a> = (String, &'a Bounds, fn(f64) -> String, Span);

fn table(view: &View<'_>, prediction: &Prediction) -> Grid {
    let interval = format!("{} interval", format_percent(view.report.head.plan.confidence));
    let mut grid = Grid::default().with(Left, &[""]).with(Right, &["estimate", &interval]).with(Left, &[""]);
    let (part, whole) = (words::title(&prediction.part), words::title(&prediction.whole));
    let (base, candidate) = (view.name(&prediction.baseline), view.name(&prediction.candidate));
    let ratio = format!("{candidate} ÷ {base}");
    let verdict = match prediction.agrees {
        Some(true) => Span::plain("no difference found"),
        Some(false) => Span::new(Tone::Doubt, "they do not agree"),
        None => Span::default(),
    };
    let rows: [Row<'_>; 5] = [
        (format!("{part}, of {whole} over {base}"), &prediction.share, format_percent, Span::default()),
        (format!("{part}, {ratio}"), &prediction.part_ratio, format_ratio_aligned, Span::default()),
        (format!("{whole}, predicted"), &prediction.predicted, format_ratio_aligned, Span::default()),
        (format!("{whole}, measured"), &prediction.measured, format_ratio_aligned, Span::default()),
        ("measured ÷ predicted".to_owned(), &prediction.deviation, format_ratio_aligned, verdict),
    ];
    for (label, bounds, format, note) in rows {
        let [estimate, interval] = match bounds.ci_low.zip(bounds.ci_high) {
            _ if !is_measured(bounds) => ["–".to_owned(), words::NOT_MEASURED.to_owned()],
            Some((low, high)) => [format(bounds.value), format!("{}–{}", format(low), format(high))],
            None => [format(bounds.value), "–".to_owned()],
        };
        grid.push(vec![Span::plain(label), Span::from(estimate), Span::from(interval), note]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(value: f64, low: f64, high: f64) -> Bounds {
        Bounds { value, ci_low: Some(low), ci_high: Some(high) }
    }

    #[test]
    fn ratios_are_told_as_changes_of_a_time() {
        assert_eq!(change(&bounds(0.75, 0.7, 0.8)), "25 % shorter (20 to 30 % less)");
        assert_eq!(change(&bounds(1.2, 1.1, 1.3)), "20 % longer (10 to 30 % more)");
        assert_eq!(change(&bounds(0.9, 0.7, 1.2)), "10 % shorter (30 % less to 20 % more)");
        assert_eq!(change(&bounds(101.5, 0.1, 300.0)), TOO_WIDE);
        assert_eq!(change(&Bounds { value: 0.9, ci_low: None, ci_high: None }), "10 % shorter");
        assert_eq!(percent(&bounds(13.0, 12.0, 14.0)), "not measured");
        assert_eq!(percent(&bounds(0.25, 0.2, 0.3)), "25 % (20 %–30 %)");
    }
}
