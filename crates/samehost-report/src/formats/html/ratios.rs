//! Forest plot: the ratio of each comparison with its interval, the margin, and the noise floor.

use samehost_model::human::{format_percent, format_ratio_aligned, format_value};
use samehost_model::{Better, Comparison, MetricInfo, Verdict};
use serde_json::{Value, json};

use super::chart::{self, Chart, ChartView, Marks, Series};
use crate::layout::{Align, Grid, Span, count, truncate};
use crate::measurement::view::{self, View};
use crate::measurement::words::{self, interval};

/// How each verdict looks: its colour, and a symbol for readers who do not tell colours apart.
const LOOKS: [(Verdict, &str, &str); 4] = [
    (Verdict::Faster, "$good", "circle"),
    (Verdict::Slower, "$bad", "square"),
    (Verdict::Equivalent, "$plain", "diamond"),
    (Verdict::Inconclusive, "$doubt", "circle-open"),
];
/// Key of the series that shows how far the baseline may differ from itself.
const FLOOR: &str = "floor";
struct Row<'a> {
    label: String,
    metric: &'a MetricInfo,
    comparison: &'a Comparison,
    name: String,
    floor: Option<f64>,
}

pub(crate) fn chart(view: &View<'_>) -> Chart {
    let mut drawings: Vec<(String, Vec<Row<'_>>)> = Vec::new();
    if view.is_sweep() {
        for metric in view.metrics() {
            drawings.push((words::title(&metric.name), rows(view, std::slice::from_ref(metric))));
        }
    } else {
        drawings.push((String::new(), rows(view, view.metrics())));
    }
    let mut views = Vec::new();
    let interval = format!("{} interval", format_percent(view.report.head.plan.confidence));
    let mut table = Grid::default()
        .with(Align::Left, &["comparison", "metric"])
        .with(Align::Value, &["baseline", "candidate"])
        .with(Align::Right, &["ratio", &interval, "self-check"])
        .with(Align::Left, &["verdict"]);
    let mut has_floor = false;
    for (label, rows) in drawings {
        if rows.is_empty() {
            continue;
        }
        views.push(ChartView { label, traces: traces(view, &rows), layout: layout(view, &rows) });
        for row in &rows {
            has_floor |= row.floor.is_some();
            table.push(cells(view, row));
        }
    }
    let mut series: Vec<Series> = view.candidates().iter().map(|name| Series::of(view, name)).collect();
    if series.len() == 1 {
        series.clear();
    }
    if has_floor {
        series.push(Series::other(FLOOR, "self-check", "$floor"));
    }
    let plan = &view.report.head.plan;
    let about = format!(
        "Candidate ÷ baseline with its {} interval. The dark line is no difference, the shaded zone the margin \
         of ±{}; a thick grey bar is the self-check: as far as the baseline may differ from itself. ● better, \
         ■ worse, ◆ equivalent, ○ no verdict.",
        format_percent(plan.confidence),
        format_percent(plan.margin)
    );
    Chart { id: "ratios".into(), title: "Ratios".into(), about, series, views, table }
}

fn rows<'a>(view: &View<'a>, metrics: &'a [MetricInfo]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for metric in metrics {
        for group in &view.groups {
            for candidate in &group.candidates {
                let Some(comparison) = view.comparison(&metric.name, &candidate.id) else { continue };
                if !(comparison.ratio.is_finite() && comparison.ratio > 0.0) {
                    continue;
                }
                let name = view.name(&candidate.id);
                let mut parts = Vec::new();
                if view.is_sweep() {
                    parts.push(view.point(&comparison.point));
                } else {
                    parts.push(words::title(&metric.name));
                }
                if view.candidates().len() > 1 {
                    parts.push(name.clone());
                }
                let floor = view::noise_floor(view.report, &comparison.point, &metric.name);
                rows.push(Row { label: parts.join(", "), metric, comparison, name, floor });
            }
        }
    }
    rows
}

/// Both ends of an interval, if they are positive and finite, as the logarithmic axis requires.
fn both(comparison: &Comparison) -> Option<[f64; 2]> {
    let ends = [comparison.ci_low?, comparison.ci_high?];
    if ends.iter().all(|end| end.is_finite() && *end > 0.0) { Some(ends) } else { None }
}

fn traces(view: &View<'_>, rows: &[Row<'_>]) -> Vec<Value> {
    let mut traces = Vec::new();
    let mut floors = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some(floor) = row.floor else { continue };
        floors.push(([1.0 / (1.0 + floor), 1.0 + floor], [at as f64; 2]));
    }
    if !floors.is_empty() {
        traces.push(chart::segments(FLOOR, "$floor", 9, &floors));
    }
    for name in view.candidates() {
        let series = Series::of(view, &name);
        for (verdict, colour, symbol) in LOOKS {
            let mut intervals = Vec::new();
            let mut marks = Marks::default();
            for (at, row) in rows.iter().enumerate() {
                if row.name != name || row.comparison.verdict != verdict {
                    continue;
                }
                intervals.extend(both(row.comparison).map(|ends| (ends, [at as f64; 2])));
                marks.push(row.comparison.ratio, at as f64, hover(view, row));
            }
            if marks.x.is_empty() {
                continue;
            }
            traces.push(chart::segments(&series.key, colour, 2, &intervals));
            let mut trace = chart::points(&series, "markers", &marks);
            trace["marker"] = json!({ "color": colour, "symbol": symbol, "size": 10, "line": { "width": 2, "color": colour } });
            traces.push(trace);
        }
    }
    traces
}

fn hover(view: &View<'_>, row: &Row<'_>) -> String {
    let c = row.comparison;
    let unit = &row.metric.unit;
    let ratio = format!("{} ÷ {} = {}", row.name, view.name(&c.baseline), format_ratio_aligned(c.ratio));
    let ratio = words::with_interval(ratio, c.ci_low.zip(c.ci_high), format_ratio_aligned);
    let values =
        format!("{} against {}", format_value(c.candidate_value, unit), format_value(c.baseline_value, unit));
    let mut lines = vec![row.label.clone(), ratio, values];
    if let Some(floor) = row.floor {
        lines.push(format!("self-check within ±{}", format_percent(floor)));
    }
    lines.push(format!("{}, {}", words::cell(Some(row.metric), c), count(c.blocks as usize, "block")));
    chart::hover(&lines)
}

fn layout(view: &View<'_>, rows: &[Row<'_>]) -> Value {
    let margin = view.report.head.plan.margin;
    let mut ends = vec![1.0, 1.0 + margin, 1.0 / (1.0 + margin)];
    for row in rows {
        let floor = 1.0 + row.floor.unwrap_or(0.0);
        ends.extend(both(row.comparison).unwrap_or([row.comparison.ratio; 2]));
        ends.extend([floor, 1.0 / floor]);
    }
    let mut title = truncate(&format!("{} ÷ {}", view.candidates().join(", "), view.base_name()), 40);
    if let Some(first) = rows.first()
        && rows.iter().all(|row| better(row) == better(first))
    {
        title.push_str(&format!(" ({} is better)", better(first)));
    }
    let x = chart::log_axis(&title, "", ends);
    let y = chart::rows_axis(rows.iter().map(|row| row.label.as_str()));
    let mut layout = chart::layout(&x, &y, 90 + 30 * rows.len());
    layout["shapes"] = chart::no_difference(margin);
    layout
}

fn better(row: &Row<'_>) -> &'static str {
    if row.metric.better == Better::Higher { "right" } else { "left" }
}

fn cells(view: &View<'_>, row: &Row<'_>) -> Vec<Span> {
    let c = row.comparison;
    let point = view.point(&c.point);
    let lead = if point.is_empty() { String::new() } else { format!("{point}: ") };
    vec![
        Span::plain(format!("{lead}{} ÷ {}", row.name, view.name(&c.baseline))),
        Span::plain(words::title(&row.metric.name)),
        Span::plain(format_value(c.baseline_value, &row.metric.unit)),
        Span::plain(format_value(c.candidate_value, &row.metric.unit)),
        Span::plain(format_ratio_aligned(c.ratio)),
        Span::plain(interval(c.ci_low, c.ci_high).as_deref().unwrap_or("–")),
        Span::plain(row.floor.map(format_percent).as_deref().unwrap_or("–")),
        Span::new(words::tone(c.verdict), words::cell(Some(row.metric), c)),
    ]
}
