//! What every chart is made of: views with traces and a layout in the words of plotly.js, the series that can be
//! toggled, and the same values as a table. Colours are names such as `$series0`, which the page turns into those
//! of its theme.

use serde_json::{Value, json};

use super::escape;
use crate::grid::Grid;
use crate::view::View;

/// Symbols and dashes of series, so that none is told by its colour alone.
const SYMBOLS: [&str; 8] =
    ["circle", "square", "diamond", "triangle-up", "star", "pentagon", "hexagon", "hourglass"];
const DASHES: [&str; 4] = ["solid", "dash", "dot", "dashdot"];
/// So many colours the style has.
pub(crate) const COLOURS: usize = 8;

/// A chart with its title and what it shows in words.
pub(crate) struct Chart {
    /// Unique in a report.
    pub(crate) id: String,
    pub(crate) title: String,
    /// How it is read.
    pub(crate) about: String,
    /// What can be toggled.
    pub(crate) series: Vec<Series>,
    /// At least one; a list lets the reader choose.
    pub(crate) views: Vec<ChartView>,
    /// The values of all views.
    pub(crate) table: Grid,
}

/// One picture of a chart.
pub(crate) struct ChartView {
    pub(crate) label: String,
    pub(crate) traces: Vec<Value>,
    pub(crate) layout: Value,
}

/// An arm as charts draw it, the same in every chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// Which traces belong to it.
    pub(crate) key: String,
    pub(crate) name: String,
    /// The name of its colour.
    pub(crate) colour: String,
    pub(crate) symbol: &'static str,
    pub(crate) dash: &'static str,
}

impl Series {
    /// The arm of this name.
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

    /// Every compared arm, the baseline first.
    pub(crate) fn all(view: &View<'_>) -> Vec<Series> {
        view.arm_names().iter().map(|name| Series::of(view, name)).collect()
    }

    /// Something that is no arm.
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

/// Points of a trace: where, and what is said about each.
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

/// Lines of a hover text; what came with a report is made harmless.
pub(crate) fn hover(lines: &[String]) -> String {
    let lines: Vec<String> =
        lines.iter().filter(|line| !line.is_empty()).map(|line| escape::chart(line)).collect();
    lines.join("<br>")
}

/// A trace of points, `lines+markers` or `markers`.
pub(crate) fn points(series: &Series, mode: &str, marks: &Marks) -> Value {
    json!({
        "type": "scatter", "mode": mode, "name": escape::chart(&series.name), "legendgroup": series.key,
        "x": marks.x, "y": marks.y, "hovertext": marks.hover, "hoverinfo": "text",
        "line": { "color": series.colour, "dash": series.dash, "width": 2 },
        "marker": { "color": series.colour, "symbol": series.symbol, "size": 8 },
    })
}

/// The room between two lines along `x`.
pub(crate) fn band(series: &Series, x: &[f64], low: &[f64], high: &[f64]) -> Value {
    let along: Vec<f64> = x.iter().chain(x.iter().rev()).copied().collect();
    let around: Vec<f64> = high.iter().chain(low.iter().rev()).copied().collect();
    json!({
        "type": "scatter", "mode": "lines", "name": format!("{} interval", escape::chart(&series.name)),
        "legendgroup": series.key, "x": along, "y": around, "fill": "toself", "hoverinfo": "skip",
        "fillcolor": format!("{}-soft", series.colour), "line": { "width": 0, "color": series.colour },
    })
}

/// Separate lines from one point to another.
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

/// A layout: title of the axes, their kind and ticks, height.
pub(crate) fn layout(x: &Value, y: &Value, height: usize) -> Value {
    json!({ "height": height, "xaxis": x, "yaxis": y, "shapes": [], "annotations": [] })
}
