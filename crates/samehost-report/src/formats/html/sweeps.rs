//! Charts of lines: each metric against connections, size or another swept parameter, with the interval of each arm's
//! typical trial as a band; and ladders, the latency against the offered rate, with the rate at which it rises sharply.

use super::chart::{self, Axis, Chart, Look, Mark, Picture, Plot, Series};
use crate::layout::Align::{Left, Right, Value};
use crate::layout::{Grid, Span};
use crate::measurement::ladder::part;
use crate::measurement::view::{self, Parameter, View};
use crate::measurement::words;
use samehost_analysis::{Knee, Ladder, Step, StepState, distinct, find_ladders};
use samehost_model::human::{capitalised, format_percent, format_rate, format_value};
use samehost_model::printable::clean;
use samehost_model::{Arm, Family, MetricInfo, Point};
use samehost_stats::Interval;

/// Metrics that share a chart: its title where there are several, and whether a metric belongs to it.
type Kind = (&'static str, fn(&MetricInfo) -> bool);
const KINDS: [Kind; 3] = [
    ("Throughput", |metric| matches!(metric.family(), Family::Rate | Family::Bandwidth)),
    ("Latency", |metric| metric.family() == Family::Time),
    ("Other metrics", |metric| matches!(metric.family(), Family::Cpu | Family::Other)),
];

struct Along<'a> {
    parameter: &'a Parameter,
    /// Value and label, in ascending order.
    places: Vec<(f64, String)>,
}

impl Along<'_> {
    fn place(&self, point: &Point) -> Option<f64> {
        let text = self.parameter.value(point);
        let (value, _) = self.places.iter().find(|(_, known)| *known == text)?;
        Some(*value)
    }

    fn label(&self, place: f64) -> &str {
        match self.places.iter().find(|(value, _)| *value == place) {
            Some((_, label)) => label,
            None => "",
        }
    }
}

pub(crate) fn charts(view: &View<'_>) -> Vec<Chart> {
    let mut charts = Vec::new();
    let has_ladder = !find_ladders(view.report).is_empty();
    for (number, along) in view.varying.iter().filter_map(|parameter| along(view, parameter)).enumerate() {
        for (kind, (title, belongs)) in KINDS.into_iter().enumerate() {
            // The chart of the ladder has it.
            if has_ladder && title == "Latency" && matches!(along.parameter, Parameter::Rate) {
                continue;
            }
            let metrics = view.metrics().iter().filter(|metric| belongs(metric));
            let id = format!("sweep-{number}-{kind}");
            charts.push(sweep(view, &along, id, title, &metrics.collect::<Vec<_>>()));
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
    places.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    if places.len() > 1 { Some(Along { parameter, places }) } else { None }
}

fn number(parameter: &Parameter, point: &Point) -> Option<f64> {
    match parameter {
        Parameter::Connections => Some(f64::from(point.connections)),
        Parameter::Rate => point.rate_per_s,
        Parameter::Size => point.size_bytes.map(|bytes| bytes as f64),
        Parameter::Placement => None,
        Parameter::Own(name) => point.parameters.get(name)?.parse().ok(),
    }
}

struct Spot {
    x: f64,
    value: f64,
    interval: Option<(f64, f64)>,
    trials: usize,
}

fn spot(view: &View<'_>, arm: &Arm, metric: &MetricInfo, along: &Along<'_>) -> Option<Spot> {
    let values = view::values(view.report, &arm.id, |trial| metric.value(trial));
    let value = samehost_stats::median(&values)?;
    if value <= 0.0 {
        return None;
    }
    let interval = interval(&values, view.report.head.plan.confidence);
    Some(Spot { x: along.place(&arm.point)?, value, interval, trials: values.len() })
}

/// The interval of the typical trial, from signed ranks of logarithms; `None` for an axis on which it cannot be drawn, and of so few
/// trials that it would be wide enough to hide the lines.
fn interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    if logs.len() < samehost_stats::SIGNED_RANK_FROM {
        return None;
    }
    let Interval { low, high } = samehost_stats::estimate(&logs, confidence)?.interval?;
    if low.is_finite() && high.is_finite() && low > 0.0 { Some((low, high)) } else { None }
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
    fn spots(&self, series: &Series) -> Vec<Spot> {
        let mut spots = Vec::new();
        for arm in self.view.arms(&series.name) {
            if self.view.point_but(self.along.parameter, &arm.point) == self.level {
                spots.extend(spot(self.view, arm, self.metric, self.along));
            }
        }
        spots.sort_by(|one: &Spot, other| one.x.total_cmp(&other.x));
        spots
    }

    /// Draws all series and adds their values to the table. `None` if no series has two points.
    fn draw(&self, table: &mut Grid) -> Option<Picture> {
        let mut all = Vec::new();
        let mut values = Vec::new();
        for series in Series::all(self.view) {
            let spots = self.spots(&series);
            for spot in &spots {
                values.push(spot.value);
                if let Some((low, high)) = spot.interval {
                    values.extend([low, high]);
                }
                table.push(cells(self.metric, self.level, self.along.label(spot.x), &series, spot));
            }
            all.push((series, spots));
        }
        if all.iter().all(|(_, spots)| spots.len() < 2) {
            return None;
        }
        let title = words::title(&self.metric.name);
        let x = Axis::named(self.swept, true, &self.along.places);
        let mut plot = Plot::new(x, Axis::log(&title, &self.metric.unit, values));
        // Lines are drawn on top of all bands.
        for (series, spots) in &all {
            let ends: Vec<_> = spots
                .iter()
                .filter_map(|spot| spot.interval.map(|(low, high)| (spot.x, low, high)))
                .collect();
            if ends.len() > 1 {
                plot.band(series, &ends);
            }
        }
        for (series, spots) in &all {
            let line: Vec<_> = spots.iter().map(|spot| (spot.x, spot.value)).collect();
            plot.line(series, &line);
            let marks: Vec<Mark> = spots.iter().map(|spot| self.mark(series, spot)).collect();
            plot.marks(series, &marks);
        }
        let parts: Vec<&str> =
            [title.as_str(), self.level].into_iter().filter(|part| !part.is_empty()).collect();
        let label = parts.join(", ");
        let what = format!("{label} against {}", self.swept);
        Some(plot.picture(label, &what))
    }

    fn mark(&self, series: &Series, spot: &Spot) -> Mark {
        let unit = &self.metric.unit;
        let mut lines = vec![
            series.name.clone(),
            format!("{}: {}", self.swept, self.along.label(spot.x)),
            format_value(spot.value, unit),
        ];
        if let Some((low, high)) = spot.interval {
            lines.push(format!("from {} to {}", format_value(low, unit), format_value(high, unit)));
        }
        lines.push(format!("{} trials", spot.trials));
        Mark { x: spot.x, y: spot.value, about: chart::lines(&lines), look: Look::Filled }
    }
}

/// Title of a chart: the metric if there is only one, else the common name.
fn name(metrics: &[&MetricInfo], in_common: &str) -> String {
    let [one] = metrics else { return in_common.to_owned() };
    capitalised(&words::title(&one.name))
}

fn sweep(view: &View<'_>, along: &Along<'_>, id: String, title: &str, metrics: &[&MetricInfo]) -> Chart {
    let points = view.groups.iter().map(|group| &group.baseline.point);
    let levels = distinct(points.map(|point| view.point_but(along.parameter, point)));
    let swept = along.parameter.title();
    let mut table = Grid::default()
        .with(Left, &["metric", "at"])
        .with(Value, &[&swept])
        .with(Left, &["arm"])
        .with(Value, &["median", "from", "to"])
        .with(Right, &["trials"]);
    let mut pictures = Vec::new();
    for metric in metrics {
        for level in &levels {
            pictures.extend(Panel { view, along, metric, level, swept: &swept }.draw(&mut table));
        }
    }
    let about = format!(
        "Medians over trials; a band is the {} interval of the typical trial, from {} trials on. Both axes \
         are logarithmic.",
        format_percent(view.report.head.plan.confidence),
        samehost_stats::SIGNED_RANK_FROM
    );
    let title = format!("{} against {swept}", name(metrics, title));
    Chart { id, title, about, series: Series::all(view), pictures, table }
}

fn cells(metric: &MetricInfo, level: &str, at: &str, series: &Series, spot: &Spot) -> Vec<Span> {
    let (low, high) = spot.interval.unzip();
    vec![
        Span::plain(words::title(&metric.name)),
        Span::plain(level),
        Span::plain(at),
        Span::plain(&series.name),
        Span::plain(format_value(spot.value, &metric.unit)),
        Span::plain(chart::value_or_dash(low, &metric.unit)),
        Span::plain(chart::value_or_dash(high, &metric.unit)),
        Span::plain(spot.trials.to_string()),
    ]
}

/// What a picture of ladders shows of each step: its title, its unit, and where it is read.
type Read = (&'static str, &'static str, fn(&Step) -> Option<f64>);
const SHOWN: [Read; 3] = [
    ("latency p99", "us", |step| step.p99_us),
    ("mean latency", "us", |step| step.mean_us),
    ("achieved rate", "per_s", |step| step.achieved_per_s),
];

fn state(state: StepState) -> (Look, &'static str) {
    match state {
        StepState::Held => (Look::Filled, "rate held"),
        StepState::Saturated => (Look::Open, "saturated: less was done than was due"),
        StepState::Void => (Look::Cross, "void: the generator fell short"),
    }
}

pub(crate) fn ladder_chart(view: &View<'_>) -> Chart {
    let ladders = find_ladders(view.report);
    let mut table = Grid::default()
        .with(Left, &["at", "arm"])
        .with(Value, &["offered"])
        .with(Right, &["of capacity"])
        .with(Value, &["achieved", "mean latency", "latency p99"])
        .with(Left, &[""]);
    let mut pictures = Vec::new();
    for level in distinct(ladders.iter().map(|ladder| &ladder.level)) {
        let label = view.point_but(&Parameter::Rate, level);
        let these: Vec<&Ladder> = ladders.iter().filter(|ladder| ladder.level == *level).collect();
        for ladder in &these {
            for step in &ladder.steps {
                table.push(ladder_cells(&label, ladder, step));
            }
        }
        for read in SHOWN {
            pictures.extend(picture(view, &these, &label, read));
        }
    }
    Chart {
        id: "rates".into(),
        title: "Latency against offered rate".into(),
        about:
            "Latency counts from when a request was due, so that waiting is in it. An upright line is the \
                knee: the rate from which on latency takes off. A filled mark held its rate, a hollow one is saturated, ✕ is void."
                .into(),
        series: distinct(ladders.iter().map(|ladder| Series::of(view, &clean(&ladder.name)))),
        pictures,
        table,
    }
}

fn picture(view: &View<'_>, ladders: &[&Ladder], label: &str, read: Read) -> Option<Picture> {
    let (title, unit, read) = read;
    let (mut values, mut rates) = (Vec::new(), Vec::new());
    for step in ladders.iter().flat_map(|ladder| &ladder.steps) {
        rates.push(step.rate_per_s);
        values.extend(read(step).filter(|value| *value > 0.0));
    }
    chart::ends(values.iter().copied())?;
    let mut plot = Plot::new(Axis::log("offered rate", "per_s", rates), Axis::log(title, unit, values));
    for ladder in ladders {
        let series = Series::of(view, &clean(&ladder.name));
        if let Knee::At { step, .. } = ladder.knee {
            let words = format!("{} takes off", series.name);
            plot.upright(&series, ladder.steps[step].rate_per_s, &words);
        }
    }
    for ladder in ladders {
        let series = Series::of(view, &clean(&ladder.name));
        let (mut line, mut marks) = (Vec::new(), Vec::new());
        for step in &ladder.steps {
            let Some(value) = read(step).filter(|value| *value > 0.0) else { continue };
            let (look, state) = state(step.state);
            let offered = match part(ladder, step.rate_per_s) {
                Some(part) => format!("offered {} ({part} of capacity)", format_rate(step.rate_per_s)),
                None => format!("offered {}", format_rate(step.rate_per_s)),
            };
            let about = chart::lines(&[
                series.name.clone(),
                offered,
                format!("{title}: {}", format_value(value, unit)),
                state.to_owned(),
            ]);
            line.push((step.rate_per_s, value));
            marks.push(Mark { x: step.rate_per_s, y: value, about, look });
        }
        plot.line(&series, &line);
        plot.marks(&series, &marks);
    }
    let parts: Vec<&str> = [title, label].into_iter().filter(|part| !part.is_empty()).collect();
    let label = parts.join(", ");
    let what = format!("{label} against the offered rate");
    Some(plot.picture(label, &what))
}

fn ladder_cells(label: &str, ladder: &Ladder, step: &Step) -> Vec<Span> {
    vec![
        Span::plain(label),
        Span::plain(&ladder.name),
        Span::plain(format_rate(step.rate_per_s)),
        Span::plain(part(ladder, step.rate_per_s).unwrap_or_else(|| "–".into())),
        Span::plain(chart::value_or_dash(step.achieved_per_s, "per_s")),
        Span::plain(chart::value_or_dash(step.mean_us, "us")),
        Span::plain(chart::value_or_dash(step.p99_us, "us")),
        Span::plain(state(step.state).1),
    ]
}
