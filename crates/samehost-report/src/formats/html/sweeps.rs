//! Charts of lines: each metric against connections, size or another swept parameter, with the interval of each arm's
//! typical trial as a band; and ladders, the latency against the offered rate, with the rate at which it rises sharply.

use samehost_analysis::{Knee, Ladder, Step, StepState, find_ladders};
use samehost_model::human::{capitalised, format_percent, format_rate, format_value};
use samehost_model::printable::clean;
use samehost_model::{Arm, Family, MetricInfo, Point};
use serde_json::json;

use super::chart::{self, Chart, ChartView, Marks, Series};
use crate::layout::{Align, Column, Grid, Span};
use crate::measurement::view::{self, Parameter, View};
use crate::measurement::words;

/// Metrics that share a chart: title of the chart, and whether a metric belongs to it.
type Kind = (&'static str, fn(&MetricInfo) -> bool);
const KINDS: [Kind; 3] = [("Throughput", is_rate), ("Latency", is_time), ("Other metrics", is_other)];

fn is_rate(metric: &MetricInfo) -> bool {
    matches!(metric.family(), Family::Rate | Family::Bandwidth)
}

fn is_time(metric: &MetricInfo) -> bool {
    metric.family() == Family::Time
}

fn is_other(metric: &MetricInfo) -> bool {
    !is_rate(metric) && !is_time(metric)
}

/// A swept parameter with the position of each of its values.
struct Along<'a> {
    parameter: &'a Parameter,
    /// Value and label, in ascending order.
    places: Vec<(f64, String)>,
}

impl Along<'_> {
    fn place(&self, point: &Point) -> Option<f64> {
        let text = self.parameter.value(point);
        self.places.iter().find(|(_, known)| *known == text).map(|(value, _)| *value)
    }
}

pub(crate) fn charts(view: &View<'_>) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (number, along) in view.varying.iter().filter_map(|p| along(view, p)).enumerate() {
        for (kind, (title, belongs)) in KINDS.into_iter().enumerate() {
            let metrics = view.metrics().iter().filter(|metric| belongs(metric));
            let id = format!("sweep-{number}-{kind}");
            charts.extend(sweep(view, &along, id, title, &metrics.collect::<Vec<_>>()));
        }
    }
    charts
}

/// The parameter as an axis, if all its values are positive numbers, as the logarithmic axis requires.
fn along<'a>(view: &View<'_>, parameter: &'a Parameter) -> Option<Along<'a>> {
    let mut places = Vec::new();
    for group in &view.groups {
        let point = &group.baseline.point;
        let value = number(parameter, point).filter(|value: &f64| value.is_finite() && *value > 0.0)?;
        let text = parameter.value(point);
        if !places.iter().any(|(_, known)| *known == text) {
            places.push((value, text));
        }
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    (places.len() > 1).then_some(Along { parameter, places })
}

/// The value of a parameter at a point as a number, where it is one.
fn number(parameter: &Parameter, point: &Point) -> Option<f64> {
    match parameter {
        Parameter::Connections => Some(f64::from(point.connections)),
        Parameter::Rate => point.rate_per_s,
        Parameter::Size => point.size_bytes.map(|bytes| bytes as f64),
        Parameter::Placement => None,
        Parameter::Own(name) => point.parameters.get(name)?.parse().ok(),
    }
}

/// One arm at one point: median and interval over its trials.
struct Spot {
    x: f64,
    value: f64,
    interval: Option<(f64, f64)>,
    trials: usize,
}

fn spot(view: &View<'_>, arm: &Arm, metric: &MetricInfo, along: &Along<'_>) -> Option<Spot> {
    let values = view::values(view.report, &arm.id, |trial| metric.value(trial));
    let value = samehost_stats::median(&values).filter(|value| *value > 0.0)?;
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    // With fewer trials the interval is so wide that the band would hide the lines.
    let enough = logs.len() >= samehost_stats::SIGNED_RANK_FROM;
    let estimate = samehost_stats::estimate(&logs, view.report.head.plan.confidence).filter(|_| enough);
    let interval = estimate.and_then(|estimate| estimate.interval).map(|i| (i.low, i.high));
    let interval = interval.filter(|(low, high)| low.is_finite() && high.is_finite() && *low > 0.0);
    Some(Spot { x: along.place(&arm.point)?, value, interval, trials: values.len() })
}

/// One view of a sweep: a metric at fixed values of all other parameters.
struct Panel<'a> {
    view: &'a View<'a>,
    along: &'a Along<'a>,
    metric: &'a MetricInfo,
    level: &'a str,
    swept: &'a str,
}

impl Panel<'_> {
    /// Points of a series in ascending order.
    fn spots(&self, series: &Series) -> Vec<Spot> {
        let arms = self
            .view
            .arms(&series.name)
            .filter(|arm| self.view.point_but(self.along.parameter, &arm.point) == self.level);
        let mut spots: Vec<Spot> =
            arms.filter_map(|arm| spot(self.view, arm, self.metric, self.along)).collect();
        spots.sort_by(|a, b| a.x.total_cmp(&b.x));
        spots
    }

    /// Draws all series and adds their values to the table. `None` if no series has two points.
    fn draw(&self, table: &mut Grid) -> Option<ChartView> {
        let (mut bands, mut lines, mut values, mut longest) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for series in Series::all(self.view) {
            let spots = self.spots(&series);
            longest = longest.max(spots.len());
            let mut marks = Marks::default();
            for spot in &spots {
                values.push(spot.value);
                values.extend(spot.interval.into_iter().flat_map(|(low, high)| [low, high]));
                let at = self.along.places.iter().find(|(x, _)| *x == spot.x).map_or("", |(_, text)| text);
                let hover = hover(&series, self.metric, self.level, self.swept, at, spot);
                marks.push(spot.x, spot.value, hover);
                table.push(cells(self.metric, self.level, at, &series, spot));
            }
            bands.extend(band(&series, &spots));
            if !spots.is_empty() {
                lines.push(chart::points(&series, "lines+markers", &marks));
            }
        }
        if longest < 2 {
            return None;
        }
        // Lines are drawn on top of all bands.
        bands.extend(lines);
        let title = words::title(&self.metric.name);
        let x = chart::named_axis(self.swept, true, &self.along.places);
        let y = chart::log_axis(&title, &self.metric.unit, values);
        let parts: Vec<&str> =
            [title.as_str(), self.level].into_iter().filter(|part| !part.is_empty()).collect();
        Some(ChartView { label: parts.join(", "), traces: bands, layout: chart::layout(&x, &y, 400) })
    }
}

/// Intervals of a series as a band, if at least two points have one.
fn band(series: &Series, spots: &[Spot]) -> Option<serde_json::Value> {
    let banded: Vec<(f64, (f64, f64))> =
        spots.iter().filter_map(|spot| Some((spot.x, spot.interval?))).collect();
    (banded.len() > 1).then(|| {
        let x: Vec<f64> = banded.iter().map(|(x, _)| *x).collect();
        let low: Vec<f64> = banded.iter().map(|(_, (low, _))| *low).collect();
        let high: Vec<f64> = banded.iter().map(|(_, (_, high))| *high).collect();
        chart::band(series, &x, &low, &high)
    })
}

/// Title of a chart: the metric if there is only one, else the common name.
fn name(metrics: &[&MetricInfo], in_common: &str) -> String {
    let [one] = metrics else { return in_common.to_owned() };
    capitalised(&words::title(&one.name))
}

fn sweep(
    view: &View<'_>,
    along: &Along<'_>,
    id: String,
    title: &str,
    metrics: &[&MetricInfo],
) -> Option<Chart> {
    let mut levels: Vec<String> = Vec::new();
    for group in &view.groups {
        let level = view.point_but(along.parameter, &group.baseline.point);
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    let swept = along.parameter.title();
    let mut table = Grid::new(vec![
        Column::new("metric", Align::Left),
        Column::new("at", Align::Left),
        Column::new(&swept, Align::Value),
        Column::new("arm", Align::Left),
        Column::new("median", Align::Value),
        Column::new("from", Align::Value),
        Column::new("to", Align::Value),
        Column::new("trials", Align::Right),
    ]);
    let mut views = Vec::new();
    for metric in metrics {
        for level in &levels {
            views.extend(Panel { view, along, metric, level, swept: &swept }.draw(&mut table));
        }
    }
    if views.is_empty() {
        return None;
    }
    let about = format!(
        "Medians over trials; a band is the {} interval of the typical trial, from {} trials on. Both axes \
         are logarithmic.",
        format_percent(view.report.head.plan.confidence),
        samehost_stats::SIGNED_RANK_FROM
    );
    let title = format!("{} against {swept}", name(metrics, title));
    Some(Chart { id, title, about, series: Series::all(view), views, table })
}

fn hover(series: &Series, metric: &MetricInfo, level: &str, swept: &str, at: &str, spot: &Spot) -> String {
    let unit = &metric.unit;
    chart::hover(&[
        series.name.clone(),
        level.to_owned(),
        format!("{swept}: {at}"),
        format!("{}: {}", words::title(&metric.name), format_value(spot.value, unit)),
        spot.interval.map_or_else(String::new, |(low, high)| {
            format!("from {} to {}", format_value(low, unit), format_value(high, unit))
        }),
        format!("{} trials", spot.trials),
    ])
}

fn cells(metric: &MetricInfo, level: &str, at: &str, series: &Series, spot: &Spot) -> Vec<Span> {
    let end = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format_value(v, &metric.unit));
    vec![
        Span::plain(words::title(&metric.name)),
        Span::plain(level),
        Span::plain(at),
        Span::plain(&series.name),
        Span::plain(format_value(spot.value, &metric.unit)),
        Span::plain(end(spot.interval.map(|interval| interval.0))),
        Span::plain(end(spot.interval.map(|interval| interval.1))),
        Span::plain(spot.trials.to_string()),
    ]
}

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
pub(crate) fn ladder_chart(view: &View<'_>) -> Option<Chart> {
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
            ladder.steps.iter().for_each(|step| table.push(ladder_cells(&label, ladder, step)));
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

fn ladder_cells(label: &str, ladder: &Ladder, step: &Step) -> Vec<Span> {
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
