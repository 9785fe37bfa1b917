//! All trials in the order in which they ran, which shows drift and trials that were disturbed, set aside or void.

use samehost_analysis::Group;
use samehost_model::human::format_value;
use samehost_model::printable::clean;
use samehost_model::{MetricInfo, Trial};
use serde_json::json;

use super::chart::{self, Chart, ChartView, Marks, Series};
use crate::layout::Align::{Left, Right, Value};
use crate::layout::{Grid, Span};
use crate::measurement::view::View;
use crate::measurement::words;

/// Number of metrics shown for a single point. A sweep shows only the first, to limit the page's size.
const SHOWN: usize = 4;
/// With more points than this the table lists only irregular trials.
const FEW_POINTS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Control,
    Disturbed,
    SetAside,
    Void,
}

/// State, symbol (empty for the series' own) and label.
const STATES: [(State, &str, &str); 5] = [
    (State::Good, "", "good"),
    (State::Control, "circle-open", "control"),
    (State::Disturbed, "diamond-open", "disturbed, kept"),
    (State::SetAside, "x", "disturbed, set aside"),
    (State::Void, "cross", "void"),
];

fn state(trial: &Trial) -> State {
    if trial.invalid.is_some() {
        State::Void
    } else if trial.set_aside {
        State::SetAside
    } else if !trial.polluted.is_empty() {
        State::Disturbed
    } else if trial.control {
        State::Control
    } else {
        State::Good
    }
}

fn reason(trial: &Trial) -> String {
    let mut reasons: Vec<String> = trial.polluted.iter().map(|reason| clean(reason)).collect();
    reasons.extend(trial.invalid.as_deref().map(clean));
    reasons.join("; ")
}

pub(crate) fn chart(view: &View<'_>) -> Chart {
    let mut table = Grid::default()
        .with(Right, &["trial"])
        .with(Left, &["at", "arm"])
        .with(Right, &["block"])
        .with(Left, &["metric"])
        .with(Value, &["value"])
        .with(Left, &["state", "why"]);
    let shown = if view.is_sweep() { 1 } else { SHOWN };
    let mut metrics: Vec<&MetricInfo> = view.metrics().iter().collect();
    metrics.retain(|metric| view.report.trials.iter().any(|trial| metric.value(trial).is_some()));
    let mut views = Vec::new();
    for (index, metric) in metrics.into_iter().take(shown).enumerate() {
        for group in &view.groups {
            views.extend(picture(view, group, metric, index == 0, &mut table));
        }
    }
    Chart {
        id: "trials".into(),
        title: "Trials over time".into(),
        about: "Every trial in the order in which it was made; a slope is drift. Filled: good. ○ control, \
                ◇ disturbed but kept, ✕ disturbed and measured again, ✚ void."
            .into(),
        series: Series::all(view),
        views,
        table,
    }
}

fn picture(
    view: &View<'_>,
    group: &Group<'_>,
    metric: &MetricInfo,
    in_table: bool,
    table: &mut Grid,
) -> Option<ChartView> {
    let at = view.point(&group.baseline.point);
    let (mut traces, mut values, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let title = words::title(&metric.name);
    for arm in group.arms() {
        let series = Series::of(view, &view.name(&arm.id));
        for (wanted, symbol, called) in STATES {
            let mut marks = Marks::default();
            for (index, trial) in view.report.trials.iter().enumerate() {
                if trial.arm != arm.id || state(trial) != wanted {
                    continue;
                }
                let Some(value) = metric.value(trial).filter(|value| value.is_finite()) else { continue };
                let number = index + 1;
                let what = format!("{title}: {}", format_value(value, &metric.unit));
                let hover = hover(&series, &at, trial, number, [what, called.to_owned()]);
                marks.push(number as f64, value, hover);
                values.push(value);
                numbers.push(number as f64);
                if in_table && (wanted != State::Good || view.groups.len() <= FEW_POINTS) {
                    table.push(vec![
                        Span::plain(number.to_string()),
                        Span::plain(&at),
                        Span::plain(&series.name),
                        Span::plain((trial.block + 1).to_string()),
                        Span::plain(&title),
                        Span::plain(format_value(value, &metric.unit)),
                        Span::plain(called),
                        Span::plain(reason(trial)),
                    ]);
                }
            }
            if marks.x.is_empty() {
                continue;
            }
            let mode = if wanted == State::Good { "lines+markers" } else { "markers" };
            let mut trace = chart::points(&series, mode, &marks);
            trace["line"]["width"] = json!(1);
            if !symbol.is_empty() {
                trace["marker"]["symbol"] = json!(symbol);
                trace["name"] = json!(format!("{}, {called}", trace["name"].as_str().unwrap_or("")));
            }
            traces.push(trace);
        }
    }
    if traces.is_empty() {
        return None;
    }
    let x = chart::linear_axis("trial, in the order made", "count", false, numbers);
    let y = chart::linear_axis(&title, &metric.unit, false, values);
    let parts: Vec<&str> = [title.as_str(), &at].into_iter().filter(|part| !part.is_empty()).collect();
    Some(ChartView { label: parts.join(", "), traces, layout: chart::layout(&x, &y, 360) })
}

fn hover(series: &Series, at: &str, trial: &Trial, number: usize, [what, called]: [String; 2]) -> String {
    let place = format!("trial {number}, block {}", trial.block + 1);
    chart::hover(&[series.name.clone(), at.to_owned(), place, what, called, reason(trial)])
}
