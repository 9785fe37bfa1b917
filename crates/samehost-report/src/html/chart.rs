//! Building blocks of charts: views with plotly.js traces and layout, series that can be toggled, and the same
//! values as a table. Colours are names such as `$series0`, which the page replaces by those of its theme.

use serde_json::{Value, json};

use super::escape;
use crate::grid::Grid;
use crate::view::View;

/// Symbols and dashes, so that series can be distinguished without colour.
const SYMBOLS: [&str; 8] =
    ["circle", "square", "diamond", "triangle-up", "star", "pentagon", "hexagon", "hourglass"];
const DASHES: [&str; 4] = ["solid", "dash", "dot", "dashdot"];
/// Number of series colours in the style sheet.
pub(crate) const COLOURS: usize = 8;

pub(crate) struct Chart {
    /// Unique in a report.
    pub(crate) id: String,
    pub(crate) title: String,
    /// How to read the chart.
    pub(crate) about: String,
    /// Series that can be toggled.
    pub(crate) series: Vec<Series>,
    /// One or more; with several, the reader chooses from a list.
    pub(crate) views: Vec<ChartView>,
    /// Values of all views.
    pub(crate) table: Grid,
}

/// One drawing of a chart.
pub(crate) struct ChartView {
    pub(crate) label: String,
    pub(crate) traces: Vec<Value>,
    pub(crate) layout: Value,
}

/// How an arm is drawn; the same in every chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// Key shared by the traces of the series.
    pub(crate) key: String,
    pub(crate) name: String,
    /// Name of a colour in the theme.
    pub(crate) colour: String,
    pub(crate) symbol: &'static str,
    pub(crate) dash: &'static str,
}

impl Series {
    /// Series of the arm with this name.
    pub(crate) fn of(view: &View<'_>, name: &str) -> Self {
        let index = view.arm_names().iter().position(|known| known == name).unwrap_or(0);
        Series {
            key: format!("series{index}"),
            name: name.to_owned(),
            colour: format!("$series{}", index % COLOURS),
            symbol: SYMBOLS[index % SYMBOLS.len()],
            dash: DASHES[(index / COLOURS) % DASHES.len()],
        }
    }

    /// Series of all compared arms, the baseline first.
    pub(crate) fn all(view: &View<'_>) -> Vec<Series> {
        view.arm_names().iter().map(|name| Series::of(view, name)).collect()
    }

    /// Series that does not belong to an arm.
    pub(crate) fn other(key: &str, name: &str, colour: &str) -> Self {
        Series {
            key: key.to_owned(),
            name: name.to_owned(),
            colour: colour.to_owned(),
            symbol: "square",
            dash: "solid",
        }
    }
}

/// Points of a trace, with hover texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) hover: Vec<String>,
}

impl Marks {
    pub(crate) fn push(&mut self, x: f64, y: f64, hover: String) {
        self.x.push(x);
        self.y.push(y);
        self.hover.push(hover);
    }
}

/// Joins lines to a hover text and escapes them, because reports may come from others.
pub(crate) fn hover(lines: &[String]) -> String {
    let lines: Vec<String> =
        lines.iter().filter(|line| !line.is_empty()).map(|line| escape::chart(line)).collect();
    lines.join("<br>")
}

/// A trace of points; `mode` is `lines+markers` or `markers`.
pub(crate) fn points(series: &Series, mode: &str, marks: &Marks) -> Value {
    json!({
        "type": "scatter", "mode": mode, "name": escape::chart(&series.name), "legendgroup": series.key,
        "x": marks.x, "y": marks.y, "hovertext": marks.hover, "hoverinfo": "text",
        "line": { "color": series.colour, "dash": series.dash, "width": 2 },
        "marker": { "color": series.colour, "symbol": series.symbol, "size": 8 },
    })
}

/// A filled band between `low` and `high` along `x`.
pub(crate) fn band(series: &Series, x: &[f64], low: &[f64], high: &[f64]) -> Value {
    let along: Vec<f64> = x.iter().chain(x.iter().rev()).copied().collect();
    let around: Vec<f64> = high.iter().chain(low.iter().rev()).copied().collect();
    json!({
        "type": "scatter", "mode": "lines", "name": format!("{} interval", escape::chart(&series.name)),
        "legendgroup": series.key, "x": along, "y": around, "fill": "toself", "hoverinfo": "skip",
        "fillcolor": format!("{}-soft", series.colour), "line": { "width": 0, "color": series.colour },
    })
}

/// Unconnected line segments.
pub(crate) fn segments(key: &str, colour: &str, width: u32, ends: &[([f64; 2], [f64; 2])]) -> Value {
    let mut x = Vec::with_capacity(3 * ends.len());
    let mut y = Vec::with_capacity(3 * ends.len());
    for (xs, ys) in ends {
        x.extend([json!(xs[0]), json!(xs[1]), Value::Null]);
        y.extend([json!(ys[0]), json!(ys[1]), Value::Null]);
    }
    json!({
        "type": "scatter", "mode": "lines", "legendgroup": key, "x": x, "y": y, "hoverinfo": "skip",
        "line": { "color": colour, "width": width },
    })
}

/// A plotly.js layout with its axes and height.
pub(crate) fn layout(x: &Value, y: &Value, height: usize) -> Value {
    json!({ "height": height, "xaxis": x, "yaxis": y, "shapes": [], "annotations": [] })
}

/// The line of no difference, and the zone of the margin around it, for a logarithmic axis of ratios.
pub(crate) fn no_difference(margin: f64) -> Value {
    json!([
        { "type": "rect", "xref": "x", "yref": "paper", "x0": 1.0 / (1.0 + margin), "x1": 1.0 + margin,
          "y0": 0, "y1": 1, "layer": "below", "line": { "width": 0 }, "fillcolor": "$margin" },
        { "type": "line", "xref": "x", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1,
          "layer": "below", "line": { "width": 1.5, "color": "$ink" } },
    ])
}
