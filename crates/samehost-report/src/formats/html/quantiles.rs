//! Latency by percentile, and the shift plot (Doksum 1974). Both pool the requests of all trials, which share connections, memory
//! layout and minute; verdicts are never based on them (docs/method.md §8).

use samehost_analysis::{HistogramError, Shift, quantiles_for_shift};
use samehost_model::Trial;
use samehost_model::human::{format_ratio_aligned, format_value};
use serde_json::json;

use super::chart::{self, Chart, ChartView, Marks, Series};
use crate::layout::Align::{Left, Right, Value};
use crate::layout::Grid;
use crate::measurement::plots::label;
use crate::measurement::view::{View, trials};

const QUANTILES: [f64; 25] = [
    0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999,
];
/// Those of them that have a label on the axis.
const TICKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Position of a quantile on the axis: the number of nines.
fn place(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

struct Level {
    label: String,
    baseline: (Series, Vec<Shift>),
    candidates: Vec<(Series, Vec<Shift>)>,
}

impl Level {
    /// Quantiles of each arm, 0 to 1, with their latencies in microseconds; the baseline first.
    fn latencies(&self) -> Vec<(&Series, Vec<(f64, f64)>)> {
        let (series, own) = &self.baseline;
        let mut all = vec![(series, own.iter().map(|shift| (shift.quantile, shift.baseline_us)).collect())];
        for (series, shifts) in &self.candidates {
            all.push((series, shifts.iter().map(|shift| (shift.quantile, shift.candidate_us)).collect()));
        }
        all
    }
}

fn levels(view: &View<'_>) -> Result<Vec<Level>, HistogramError> {
    let mut levels = Vec::new();
    for group in &view.groups {
        let base: Vec<&Trial> = trials(view.report, &group.baseline.id).collect();
        let own = quantiles_for_shift(&base, &base, &QUANTILES)?;
        let mut candidates = Vec::new();
        for candidate in &group.candidates {
            let samples: Vec<&Trial> = trials(view.report, &candidate.id).collect();
            let shifts = quantiles_for_shift(&base, &samples, &QUANTILES)?;
            if !shifts.is_empty() {
                candidates.push((Series::of(view, &view.name(&candidate.id)), shifts));
            }
        }
        if !own.is_empty() {
            levels.push(Level {
                label: view.point(&group.baseline.point),
                baseline: (Series::of(view, &view.name(&group.baseline.id)), own),
                candidates,
            });
        }
    }
    Ok(levels)
}

/// Both charts, where there are histograms. Fails when a stored histogram is corrupt.
pub(crate) fn charts(view: &View<'_>) -> Result<Vec<Chart>, HistogramError> {
    let levels = levels(view)?;
    Ok(vec![by_percentile(view, &levels), shift(view, &levels)])
}

fn axis(quantiles: &[f64]) -> serde_json::Value {
    let highest = quantiles.iter().copied().fold(0.5, f64::max);
    let lowest = quantiles.iter().copied().fold(0.5, f64::min);
    let ticked = TICKED.into_iter().filter(|quantile| (lowest..=highest).contains(quantile));
    let ticks: Vec<(f64, String)> = ticked.map(|quantile| (place(quantile), label(quantile))).collect();
    let mut axis = chart::named_axis("percentile", false, &ticks);
    axis["range"] = json!([place(lowest) - 0.08, place(highest) + 0.08]);
    axis
}

fn by_percentile(view: &View<'_>, levels: &[Level]) -> Chart {
    let mut table = Grid::default().with(Left, &["at", "arm", "percentile"]).with(Value, &["latency"]);
    let mut views = Vec::new();
    for level in levels {
        let mut traces = Vec::new();
        let (mut values, mut quantiles) = (Vec::new(), Vec::new());
        for (series, latencies) in level.latencies() {
            let mut marks = Marks::default();
            for (quantile, us) in latencies.into_iter().filter(|(_, us)| *us > 0.0) {
                let value = format_value(us, "us");
                let text = format!("{}: {value}", label(quantile));
                let hover = chart::hover(&[series.name.clone(), level.label.clone(), text]);
                marks.push(place(quantile), us, hover);
                values.push(us);
                quantiles.push(quantile);
                table.push_texts([level.label.clone(), series.name.clone(), label(quantile), value]);
            }
            let mut trace = chart::points(series, "lines+markers", &marks);
            trace["marker"]["size"] = json!(6);
            traces.push(trace);
        }
        if !values.is_empty() {
            let layout = chart::layout(&axis(&quantiles), &chart::log_axis("latency", "us", values), 400);
            views.push(ChartView { label: level.label.clone(), traces, layout });
        }
    }
    Chart {
        id: "percentiles".into(),
        title: "Latency by percentile".into(),
        about:
            "Requests of all trials together, so that one sees whether all of the distribution moved or only \
                its tail; a percentile needs ten requests beyond it. Verdicts do not rest on this picture."
                .into(),
        series: Series::all(view),
        views,
        table,
    }
}

fn shift_hover(series: &Series, base: &str, level: &str, shift: &Shift) -> String {
    let [candidate, baseline] = [shift.candidate_us, shift.baseline_us].map(|us| format_value(us, "us"));
    chart::hover(&[
        format!("{} ÷ {base} at {}", series.name, label(shift.quantile)),
        level.to_owned(),
        format_ratio_aligned(shift.candidate_us / shift.baseline_us),
        format!("{candidate} against {baseline}"),
    ])
}

fn margin_band(margin: f64) -> serde_json::Value {
    json!([
        { "type": "rect", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1.0 / (1.0 + margin),
          "y1": 1.0 + margin, "layer": "below", "line": { "width": 0 }, "fillcolor": "$margin" },
        { "type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1,
          "layer": "below", "line": { "width": 1.5, "color": "$ink" } },
    ])
}

fn shift(view: &View<'_>, levels: &[Level]) -> Chart {
    let mut table = Grid::default().with(Left, &["at", "candidate", "percentile"]).with(Right, &["ratio"]);
    let mut views = Vec::new();
    for level in levels.iter().filter(|level| !level.candidates.is_empty()) {
        let (baseline, _) = &level.baseline;
        let base = &baseline.name;
        let (mut traces, mut ratios, mut quantiles) = (Vec::new(), vec![1.0], Vec::new());
        for (series, shifts) in &level.candidates {
            let mut marks = Marks::default();
            for shift in shifts.iter().filter(|s| s.baseline_us > 0.0 && s.candidate_us > 0.0) {
                let ratio = shift.candidate_us / shift.baseline_us;
                let hover = shift_hover(series, base, &level.label, shift);
                marks.push(place(shift.quantile), ratio, hover);
                ratios.push(ratio);
                quantiles.push(shift.quantile);
                let value = format_ratio_aligned(ratio);
                table.push_texts([level.label.clone(), series.name.clone(), label(shift.quantile), value]);
            }
            let mut trace = chart::points(series, "lines+markers", &marks);
            trace["marker"]["size"] = json!(6);
            traces.push(trace);
        }
        if quantiles.is_empty() {
            continue;
        }
        let y = chart::log_axis(&format!("latency ÷ {base}'s"), "", ratios);
        let mut layout = chart::layout(&axis(&quantiles), &y, 340);
        layout["shapes"] = margin_band(view.report.head.plan.margin);
        views.push(ChartView { label: level.label.clone(), traces, layout });
    }
    Chart {
        id: "shift".into(),
        title: "Shift by percentile".into(),
        about:
            "The candidate's latency ÷ the baseline's at the same percentile: below the line it is smaller. \
                A level curve moves every request alike; one that bends moves the tail."
                .into(),
        series: view.candidates().iter().map(|name| Series::of(view, name)).collect(),
        views,
        table,
    }
}
