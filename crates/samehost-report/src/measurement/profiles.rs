//! CPU profiles: for each point and candidate a table of the functions that differ most, and the basis of the data.

use samehost_model::human::{count, format_seconds, significant};
use samehost_model::{Profile, ProfileDifference};

use crate::layout::grid::Figure;
use crate::layout::grid::{Align, Column, Grid};
use crate::layout::line::Span;
use crate::measurement::view::View;
use samehost_model::printable::clean;

/// Half-width of a 95 % confidence interval, in standard errors.
const WIDTH: f64 = 1.96;
/// Shown in place of an error that is too uncertain.
const NOTHING: &str = "–";

/// A table for each pair of profiled arms.
pub(crate) fn differences(view: &View<'_>) -> Vec<Figure> {
    let all = &view.report.analysis.profile_differences;
    let pairs = all.chunk_by(|a, b| a.baseline == b.baseline && a.candidate == b.candidate);
    pairs.filter_map(|pair| figure(view, pair)).collect()
}

fn figure(view: &View<'_>, differences: &[ProfileDifference]) -> Option<Figure> {
    let first = differences.first()?;
    let (baseline, candidate) = (view.name(&first.baseline), view.name(&first.candidate));
    let point = view.point(&first.point);
    let place = if point.is_empty() { String::new() } else { format!(", {point}") };
    let mut grid = Grid::new(vec![
        Column::new("function", Align::Left),
        Column::new("who", Align::Left),
        Column::new(&baseline, Align::Right),
        Column::new(&candidate, Align::Right),
        Column::new("difference", Align::Right).or_short("diff."),
        Column::new("±", Align::Right).spare(1),
    ]);
    for one in differences {
        let error = WIDTH * one.error_us_per_op;
        let sign = if one.difference_us_per_op > 0.0 { "+" } else { "" };
        grid.push(vec![
            Span::from(one.function.clone()),
            Span::from(format!("{}, {}", one.role, if one.kernel { "kernel" } else { "user" })),
            Span::from(microseconds(one.baseline_us_per_op)),
            Span::from(microseconds(one.candidate_us_per_op)),
            Span::from(format!("{sign}{}", microseconds(one.difference_us_per_op))),
            Span::from(if error > 0.0 { microseconds(error) } else { NOTHING.to_owned() }),
        ]);
    }
    let title =
        format!("Functions that differ most, µs per operation: {candidate} against {baseline}{place}");
    Some(Figure { title, grid })
}

/// Formats microseconds with fixed decimals, so that they align.
fn microseconds(value: f64) -> String {
    if value.abs() >= 1000.0 { significant(value) } else { format!("{value:.2}") }
}

/// How the profiles were taken, and how much of the CPU time they cover.
pub(crate) fn basis(view: &View<'_>) -> Option<String> {
    let profiles = &view.report.profiles;
    let first = profiles.first()?;
    let why = if first.event == "cpu-clock" { " (no hardware counters here)" } else { "" };
    let ends = |read: fn(&Profile) -> f64| {
        profiles
            .iter()
            .map(read)
            .fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (fewest, most) = ends(|profile| profile.samples as f64);
    let (shortest, _) = ends(|profile| profile.seconds);
    let samples = if fewest == most {
        count(most as u64)
    } else {
        format!("{} to {}", count(fewest as u64), count(most as u64))
    };
    let hidden = if first.kernel_symbols { "" } else { " The kernel hides the names of its functions here." };
    Some(format!(
        "CPU time by perf: {}{why} at {} Hz, {} and {samples} samples an arm, in trials of their own that enter no other \
         figure. A function's time is its own part of its process' samples × that process' CPU time per operation; \
         ± is what sampling alone leaves open (95 %).{hidden}",
        clean(&first.event),
        first.frequency_hz,
        format_seconds(shortest),
    ))
}
