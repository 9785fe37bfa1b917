//! Ratios: each comparison with its interval on one axis, and the self-check behind it.

use samehost_model::human::{format_percent, format_ratio_aligned};
use samehost_model::{Comparison, MetricInfo};

use super::chart::{Chart, Picture};
use super::interval::{RatioAxis, look};
use crate::layout::{Grid, Span};
use crate::measurement::view::{self, View};
use crate::measurement::words;

struct Row<'a> {
    label: String,
    metric: &'a MetricInfo,
    comparison: &'a Comparison,
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
    drawings.retain(|(_, rows)| !rows.is_empty());
    let axis = RatioAxis::of(drawings.iter().flat_map(|(_, rows)| rows).map(|row| row.comparison));
    let plan = &view.report.head.plan;
    let about = format!(
        "{} ÷ {} with its {} interval. The upright line is no difference; a thick grey bar is the self-check, as far as the \
         baseline may differ from itself; the margin is ±{}. Green is better, red worse; a hollow dot has no verdict.",
        view.candidates().join(", "),
        view.base_name(),
        format_percent(plan.confidence),
        format_percent(plan.margin)
    );
    let pictures =
        drawings.into_iter().map(|(label, rows)| Picture { html: table(&axis, &label, &rows), label });
    // The values stand in the results.
    let (pictures, table) = (pictures.collect(), Grid::default());
    Chart { id: "ratios".into(), title: "Ratios".into(), about, series: Vec::new(), pictures, table }
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
                let mut parts = Vec::new();
                if view.is_sweep() {
                    parts.push(view.point(&comparison.point));
                } else {
                    parts.push(words::title(&metric.name));
                }
                if view.candidates().len() > 1 {
                    parts.push(view.name(&candidate.id));
                }
                let floor = view::noise_floor(view.report, &comparison.point, &metric.name);
                rows.push(Row { label: parts.join(", "), metric, comparison, floor });
            }
        }
    }
    rows
}

fn table(axis: &RatioAxis, label: &str, rows: &[Row<'_>]) -> String {
    let mut html = format!(
        "<table class=\"ratios\" aria-label=\"Ratios {}\"><thead><tr><td></td><td>{}</td><td></td></tr></thead><tbody>",
        super::html(label),
        axis.head()
    );
    for row in rows {
        let c = row.comparison;
        let drawing = axis.row(c, look(words::told(c)), row.floor);
        let ratio = words::with_interval(format_ratio_aligned(c.ratio), c.ends(), format_ratio_aligned);
        let verdict = Span::new(words::tone(words::told(c)), words::cell(Some(row.metric), c));
        html.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{drawing}</td><td>{}<br>{}</td></tr>",
            super::html(&row.label),
            super::html(&ratio),
            super::chart::span(&verdict)
        ));
    }
    html.push_str("</tbody></table>");
    html
}
