//! Ladder charts: latency against the offered rate, and the rate at which latency rises sharply.

use samehost_analysis::{Knee, Ladder, Step, StepState, find_ladders};
use samehost_model::Point;
use samehost_model::human::{format_percent, format_rate, format_value};
use samehost_model::printable::clean;
use serde_json::json;

use super::chart::{self, Chart, ChartView, Marks, Series};
use crate::layout::grid::{Align, Column, Grid};
use crate::layout::text::Span;
use crate::measurement::view::{Parameter, View};

type Read = (&'static str, &'static str, fn(&Step) -> Option<f64>);
const SHOWN: [Read; 3] = [
    ("latency p99", "us", |step| step.p99_us),
    ("mean latency", "us", |step| step.mean_us),
    ("achieved rate", "per_s", |step| step.achieved_per_s),
];

fn state(state: StepState) -> (&'static str, &'static str) {
    match state {
        StepState::Held => ("circle", "rate held"),
        StepState::Saturated => ("triangle-up-open", "saturated: less was done than was due"),
        StepState::Void => ("x", "void: the generator fell short"),
    }
}

/// The chart of all ladders; `None` without ladders.
pub(crate) fn chart(view: &View<'_>) -> Option<Chart> {
    let ladders = find_ladders(view.report);
    let mut levels: Vec<&Point> = Vec::new();
    for ladder in &ladders {
        if !levels.contains(&&ladder.level) {
            levels.push(&ladder.level);
        }
    }
    let mut table = Grid::new(vec![
        Column::new("at", Align::Left),
        Column::new("arm", Align::Left),
        Column::new("offered", Align::Value),
        Column::new("of capacity", Align::Right),
        Column::new("achieved", Align::Value),
        Column::new("mean latency", Align::Value),
        Column::new("latency p99", Align::Value),
        Column::new("", Align::Left),
    ]);
    let mut views = Vec::new();
    for level in levels {
        let label = view.point_but(&Parameter::Rate, level);
        let these: Vec<&Ladder> = ladders.iter().filter(|ladder| ladder.level == *level).collect();
        for ladder in &these {
            ladder.steps.iter().for_each(|step| table.push(cells(&label, ladder, step)));
        }
        views.extend(SHOWN.iter().filter_map(|read| picture(view, &these, &label, *read)));
    }
    if views.is_empty() {
        return None;
    }
    let series = ladders.iter().map(|ladder| Series::of(view, &clean(&ladder.name)));
    let mut unique: Vec<Series> = Vec::new();
    series.for_each(|series| {
        if !unique.contains(&series) {
            unique.push(series);
        }
    });
    Some(Chart {
        id: "rates".into(),
        title: "Latency against offered rate".into(),
        about:
            "Latency counts from when a request was due, so that waiting is in it. An upright line is the \
                knee: the rate from which on latency takes off. ● rate held, △ saturated, ✕ void."
                .into(),
        series: unique,
        views,
        table,
    })
}

fn picture(view: &View<'_>, ladders: &[&Ladder], label: &str, read: Read) -> Option<ChartView> {
    let (title, unit, read) = read;
    let values = || ladders.iter().flat_map(|l| &l.steps).filter_map(read).filter(|v| *v > 0.0);
    let (low, high) = chart::ends(values())?;
    let mut rates: Vec<f64> = ladders.iter().flat_map(|l| &l.steps).map(|step| step.rate_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let mut traces = Vec::new();
    for ladder in ladders {
        let series = Series::of(view, &clean(&ladder.name));
        if let Knee::At { step, .. } = ladder.knee {
            let rate = ladder.steps[step].rate_per_s;
            let mut knee = chart::segments(&series.key, &series.colour, 2, &[([rate; 2], [low, high])]);
            knee["line"]["dash"] = json!("dot");
            knee["mode"] = json!("lines+text");
            knee["text"] = json!(["", format!("{} takes off", super::chart(&series.name)), ""]);
            knee["textposition"] = json!("top left");
            knee["textfont"] = json!({ "color": "$ink", "size": 12 });
            knee["cliponaxis"] = json!(false);
            traces.push(knee);
        }
        let mut marks = Marks::default();
        let mut symbols = Vec::new();
        for step in &ladder.steps {
            let Some(value) = read(step).filter(|value| *value > 0.0) else { continue };
            let (symbol, said) = state(step.state);
            let part = part(ladder, step).map_or_else(String::new, |part| format!(" ({part} of capacity)"));
            symbols.push(symbol);
            marks.push(
                step.rate_per_s,
                value,
                chart::hover(&[
                    series.name.clone(),
                    label.to_owned(),
                    format!("offered {}{part}", format_rate(step.rate_per_s)),
                    format!("{title}: {}", format_value(value, unit)),
                    said.to_owned(),
                ]),
            );
        }
        let mut trace = chart::points(&series, "lines+markers", &marks);
        trace["marker"]["symbol"] = json!(symbols);
        traces.push(trace);
    }
    let mut x = chart::log_axis("offered rate", "per_s", rates);
    x["showgrid"] = json!(true);
    let y = chart::log_axis(title, unit, values());
    let parts: Vec<&str> = [title, label].into_iter().filter(|part| !part.is_empty()).collect();
    Some(ChartView { label: parts.join(", "), traces, layout: chart::layout(&x, &y, 420) })
}

/// Rate as a percentage of the baseline's capacity.
fn part(ladder: &Ladder, step: &Step) -> Option<String> {
    let capacity = ladder.baseline_capacity_per_s.filter(|capacity| *capacity > 0.0)?;
    Some(format_percent((100.0 * step.rate_per_s / capacity).round() / 100.0))
}

fn cells(label: &str, ladder: &Ladder, step: &Step) -> Vec<Span> {
    let value =
        |value: Option<f64>, unit: &str| value.map_or_else(|| "–".to_owned(), |v| format_value(v, unit));
    vec![
        Span::plain(label),
        Span::plain(&ladder.name),
        Span::plain(format_rate(step.rate_per_s)),
        Span::plain(part(ladder, step).unwrap_or_else(|| "–".into())),
        Span::plain(value(step.achieved_per_s, "per_s")),
        Span::plain(value(step.mean_us, "us")),
        Span::plain(value(step.p99_us, "us")),
        Span::plain(state(step.state).1),
    ]
}
