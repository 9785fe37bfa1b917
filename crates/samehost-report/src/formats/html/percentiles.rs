//! The latency's distribution: latency by percentile. It pools the requests of all trials, which share connections, memory layout and
//! minute; verdicts are never based on it (docs/method.md §8).

use samehost_analysis::{Group, HistogramError, quantiles_for_shift};
use samehost_model::human::format_value;
use samehost_model::{Arm, Trial};

use super::chart::{self, Axis, Chart, Look, Mark, Picture, Plot, Series};
use crate::layout::Align::{Left, Value};
use crate::layout::Grid;
use crate::measurement::plots::label;
use crate::measurement::view::{View, trials};

const QUANTILES: [f64; 25] = [
    0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999,
];
/// Those of them that have a label on the axis, a mark, and a row in the table.
const TICKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Position of a quantile on the axis: the number of nines.
fn place(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// The chart, with a picture for each point that has histograms. Fails when a stored histogram is corrupt.
pub(crate) fn chart(view: &View<'_>) -> Result<Chart, HistogramError> {
    let mut table = Grid::default().with(Left, &["at", "arm", "percentile"]).with(Value, &["latency"]);
    let mut pictures = Vec::new();
    for group in shown(&view.groups) {
        let arms: Vec<&Arm> = group.arms().collect();
        pictures.extend(picture(view, &view.point(&group.baseline.point), &arms, &mut table)?);
    }
    let about = "Requests of all trials together, so that one sees whether all of the distribution moved or only its tail; a \
                 percentile needs ten requests beyond it. Verdicts do not rest on this picture. Of many points four are shown.";
    Ok(Chart {
        id: "percentiles".into(),
        title: "Latency by percentile".into(),
        about: about.into(),
        series: Series::all(view),
        pictures,
        table,
    })
}

/// Points that have a picture at most.
const MOST_PICTURES: usize = 4;

/// All points, or where there are many the first, the last, and some between.
fn shown<'a, 'b>(groups: &'b [Group<'a>]) -> Vec<&'b Group<'a>> {
    if groups.len() <= MOST_PICTURES {
        return groups.iter().collect();
    }
    (0..MOST_PICTURES).map(|at| &groups[at * (groups.len() - 1) / (MOST_PICTURES - 1)]).collect()
}

fn picture(
    view: &View<'_>,
    level: &str,
    arms: &[&Arm],
    table: &mut Grid,
) -> Result<Option<Picture>, HistogramError> {
    let mut lines = Vec::new();
    for arm in arms {
        let of_arm: Vec<&Trial> = trials(view.report, &arm.id).collect();
        let mut line: Vec<(f64, f64)> = Vec::new();
        for quantile in quantiles_for_shift(&of_arm, &of_arm, &QUANTILES)? {
            if quantile.baseline_us > 0.0 {
                line.push((quantile.quantile, quantile.baseline_us));
            }
        }
        if !line.is_empty() {
            lines.push((Series::of(view, &view.name(&arm.id)), line));
        }
    }
    let all = || lines.iter().flat_map(|(_, line)| line);
    let Some((lowest, highest)) = chart::ends(all().map(|(quantile, _)| *quantile)) else { return Ok(None) };
    let ticked = TICKED.into_iter().filter(|quantile| (lowest..=highest).contains(quantile));
    let ticks: Vec<(f64, String)> = ticked.map(|quantile| (place(quantile), label(quantile))).collect();
    let mut x = Axis::named("percentile", false, &ticks);
    (x.low, x.high) = (place(lowest) - 0.08, place(highest) + 0.08);
    let mut plot = Plot::new(x, Axis::log("latency", "us", all().map(|(_, us)| *us)));
    for (series, line) in &lines {
        let points: Vec<(f64, f64)> = line.iter().map(|(quantile, us)| (place(*quantile), *us)).collect();
        plot.line(series, &points);
        let mut marks = Vec::new();
        for (quantile, us) in line.iter().filter(|(quantile, _)| TICKED.contains(quantile)) {
            let value = format_value(*us, "us");
            let about = format!("{}, {}: {value}", series.name, label(*quantile));
            marks.push(Mark { x: place(*quantile), y: *us, about, look: Look::Filled });
            table.push_texts([level.to_owned(), series.name.clone(), label(*quantile), value]);
        }
        plot.marks(series, &marks);
    }
    let what = if level.is_empty() {
        "Latency by percentile".to_owned()
    } else {
        format!("Latency by percentile, {level}")
    };
    Ok(Some(plot.picture(level.to_owned(), &what)))
}
