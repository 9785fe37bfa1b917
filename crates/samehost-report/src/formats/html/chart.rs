//! Building blocks of charts: views with plotly.js traces and layout, series that can be toggled, and the same
//! values as a table; axes with their ticks. Colours are names such as `$series0`, which the page replaces by those of its theme.

use samehost_model::human::format_value;
use serde_json::{Value, json};

use crate::layout::{Grid, Span, Tone, truncate};
use crate::measurement::view::{self, View};

/// Symbols and dashes, so that series can be distinguished without colour.
const SYMBOLS: [&str; 8] =
    ["circle", "square", "diamond", "triangle-up", "star", "pentagon", "hexagon", "hourglass"];
const DASHES: [&str; 4] = ["solid", "dash", "dot", "dashdot"];
const COLOURS: usize = 8; // `$series0` to `$series7` in the style sheet
/// Characters of a row's label at most; the hover text and the table have all.
const LABEL: usize = 30;

pub(crate) struct Chart {
    /// Unique in a report.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) series: Vec<Series>,
    /// With several the reader chooses from a list; a chart without any is left out.
    pub(crate) views: Vec<ChartView>,
    pub(crate) table: Grid,
}

/// One drawing of a chart, as plotly.js takes it.
pub(crate) struct ChartView {
    pub(crate) label: String,
    pub(crate) traces: Vec<Value>,
    pub(crate) layout: Value,
}

/// How an arm is drawn; the same in every chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) colour: String,
    pub(crate) symbol: &'static str,
    pub(crate) dash: &'static str,
}

impl Series {
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
    let shown = lines.iter().filter(|line| !line.is_empty());
    let escaped: Vec<String> = shown.map(|line| super::chart(line)).collect();
    escaped.join("<br>")
}

/// A trace of points; `mode` is `lines+markers` or `markers`.
pub(crate) fn points(series: &Series, mode: &str, marks: &Marks) -> Value {
    json!({
        "type": "scatter", "mode": mode, "name": super::chart(&series.name), "legendgroup": series.key,
        "x": marks.x, "y": marks.y, "hovertext": marks.hover, "hoverinfo": "text",
        "line": { "color": series.colour, "dash": series.dash, "width": 2 },
        "marker": { "color": series.colour, "symbol": series.symbol, "size": 8 },
    })
}

pub(crate) fn band(series: &Series, x: &[f64], low: &[f64], high: &[f64]) -> Value {
    let along: Vec<f64> = x.iter().chain(x.iter().rev()).copied().collect();
    let around: Vec<f64> = high.iter().chain(low.iter().rev()).copied().collect();
    json!({
        "type": "scatter", "mode": "lines", "name": format!("{} interval", super::chart(&series.name)),
        "legendgroup": series.key, "x": along, "y": around, "fill": "toself", "hoverinfo": "skip",
        "fillcolor": format!("{}-soft", series.colour), "line": { "width": 0, "color": series.colour },
    })
}

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

/// Minimum distance of two named ticks, as a fraction of the axis.
const NEAREST: f64 = 0.07;
/// A logarithmic axis whose ends have a ratio below this gets the ticks of a linear one.
const NARROW: f64 = 6.0;
/// From this ratio on only decades get ticks.
const WIDE: f64 = 3e3;

/// Smallest and largest finite value.
pub(crate) fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    view::ends(&finite)
}

/// 1, 2 or 5 times a power of ten, so that about five steps cover `span`.
fn step(span: f64) -> f64 {
    let rough = span / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let digit = rough / power;
    let nice = match digit {
        d if d < 1.5 => 1.0,
        d if d < 3.5 => 2.0,
        d if d < 7.5 => 5.0,
        _ => 10.0,
    };
    nice * power
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return vec![low];
    }
    let step = step(span);
    let (from, to) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    let mut ticks = Vec::new();
    for i in from..=to {
        // Dividing by a power of ten avoids rounding errors such as 3 × 0.1 = 0.30000000000000004.
        ticks.push(if step < 1.0 { i as f64 / (1.0 / step).round() } else { i as f64 * step });
    }
    ticks
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    if high / low < NARROW {
        return linear_ticks(low, high).into_iter().filter(|tick| *tick > 0.0).collect();
    }
    let digits: &[f64] = match high / low {
        r if r > WIDE => &[1.0],
        r if r > 200.0 => &[1.0, 3.0],
        _ => &[1.0, 2.0, 5.0],
    };
    let mut ticks = Vec::new();
    for decade in low.log10().floor() as i32..=high.log10().ceil() as i32 {
        for digit in digits {
            let tick = digit * 10_f64.powi(decade);
            if (0.5 * low..=2.0 * high).contains(&tick) {
                ticks.push(tick);
            }
        }
    }
    ticks
}

/// Label of a tick without trailing zeros: `20 k/s`.
fn tick(value: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format_value(value, unit);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}").trim_end().to_owned()
}

pub(crate) fn log_axis(title: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Value {
    let (low, high) = ends(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 1.0));
    let ticks = log_ticks(low, high);
    let texts: Vec<String> = ticks.iter().map(|value| tick(*value, unit)).collect();
    let pad = ((high / low).log10() * 0.06).max(0.01);
    json!({
        "type": "log", "title": { "text": super::chart(title) }, "tickvals": ticks, "ticktext": texts,
        "range": [low.log10() - pad, high.log10() + pad],
    })
}

pub(crate) fn linear_axis(
    title: &str,
    unit: &str,
    from_zero: bool,
    values: impl IntoIterator<Item = f64>,
) -> Value {
    let (low, high) = ends(values).unwrap_or((0.0, 1.0));
    let low = if from_zero { low.min(0.0) } else { low };
    let ticks = linear_ticks(low, high);
    let texts: Vec<String> = ticks.iter().map(|value| tick(*value, unit)).collect();
    let pad = if high > low { 0.06 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
    let from = if from_zero && low >= 0.0 { 0.0 } else { low - pad };
    json!({
        "type": "linear", "title": { "text": super::chart(title) }, "tickvals": ticks, "ticktext": texts,
        "range": [from, high + pad],
    })
}

pub(crate) fn named_axis(title: &str, log: bool, ticks: &[(f64, String)]) -> Value {
    let places: Vec<f64> = ticks.iter().map(|(value, _)| if log { value.log10() } else { *value }).collect();
    let (low, high) = ends(places.iter().copied()).unwrap_or((0.0, 1.0));
    // Omits labels that would overlap the previous one.
    let mut last = f64::NEG_INFINITY;
    let (mut values, mut texts) = (Vec::new(), Vec::new());
    for ((value, text), place) in ticks.iter().zip(places) {
        if place - last >= NEAREST * (high - low) {
            last = place;
            values.push(*value);
            texts.push(super::chart(text));
        }
    }
    let pad = if high > low { 0.05 * (high - low) } else { 0.5 };
    json!({
        "type": if log { "log" } else { "linear" }, "title": { "text": super::chart(title) },
        "tickvals": values, "ticktext": texts, "range": [low - pad, high + pad],
    })
}

/// An axis of rows, from the top down, each with its label.
pub(crate) fn rows_axis<'a>(labels: impl Iterator<Item = &'a str>) -> Value {
    let texts: Vec<String> = labels.map(|label| super::chart(&truncate(label, LABEL))).collect();
    json!({
        "type": "linear", "range": [texts.len() as f64 - 0.5, -0.5], "ticktext": texts,
        "tickvals": (0..texts.len()).collect::<Vec<_>>(), "showgrid": false,
    })
}

pub(crate) fn value_or_dash(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) => format_value(value, unit),
        None => "–".to_owned(),
    }
}

pub(crate) fn class(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Bold => Some("bold"),
        Tone::Dim => Some("dim"),
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Doubt => Some("doubt"),
        Tone::Loud => Some("loud"),
    }
}

pub(crate) fn span(span: &Span) -> String {
    let text = super::html(span.text());
    match class(span.tone()) {
        Some(class) => format!("<span class=\"{class}\">{text}</span>"),
        None => text,
    }
}

pub(crate) fn table(grid: &Grid, caption: &str) -> String {
    let mut html = String::from("<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
    html.push_str(&format!(" aria-label=\"{}\"><table>", super::html(caption)));
    if grid.heads().any(|head| !head.is_empty()) {
        html.push_str("<thead><tr>");
        for (column, head) in grid.heads().enumerate() {
            let right = if grid.is_right(column) { " class=\"right\"" } else { "" };
            // An empty header cell would confuse screen readers.
            let (open, close) = if head.is_empty() { ("td", "td") } else { ("th scope=\"col\"", "th") };
            html.push_str(&format!("<{open}{right}>{}</{close}>", super::html(head)));
        }
        html.push_str("</tr></thead>");
    }
    html.push_str("<tbody>");
    for row in &grid.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let right = if grid.is_right(column) { " class=\"right\"" } else { "" };
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            html.push_str(&format!("<{open}{right}>{}</{close}>", span(cell)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn sign(series: &Series) -> &'static str {
    match series.symbol {
        "square" => "■",
        "diamond" => "◆",
        "triangle-up" => "▲",
        "star" => "★",
        "pentagon" => "⬟",
        "hexagon" => "⬢",
        "hourglass" => "⧗",
        _ => "●",
    }
}

/// A chart as HTML: title, explanation, toggles of its series, the drawing, and the same values as a table, for those who cannot see
/// or run the drawing. `prefix` makes its ids unique in the page. The drawing is JSON that the page's script gives to plotly.js.
pub(crate) fn figure(chart: &Chart, prefix: &str) -> String {
    let id = format!("{prefix}-{}", chart.id);
    let title = super::html(&chart.title);
    let mut html = format!(
        "<section class=\"chart\" aria-labelledby=\"{id}-title\"><h3 id=\"{id}-title\">{title}</h3>\
         <p class=\"about\" id=\"{id}-about\">{}</p><div class=\"controls\">",
        super::html(&chart.about)
    );
    if chart.views.len() > 1 {
        html.push_str(&format!("<label>Show <select data-chart=\"{id}\">"));
        for (index, view) in chart.views.iter().enumerate() {
            html.push_str(&format!("<option value=\"{index}\">{}</option>", super::html(&view.label)));
        }
        html.push_str("</select></label>");
    }
    if !chart.series.is_empty() {
        html.push_str(&format!("<div class=\"series\" role=\"group\" aria-label=\"Series of {title}\">"));
        for series in &chart.series {
            html.push_str(&format!(
                "<button type=\"button\" aria-pressed=\"true\" data-chart=\"{id}\" data-series=\"{}\">\
                 <span class=\"sign {}\" aria-hidden=\"true\">{}</span> {}</button>",
                super::html(&series.key),
                series.colour.trim_start_matches('$'),
                sign(series),
                super::html(&series.name)
            ));
        }
        html.push_str("</div>");
    }
    let height = match chart.views.first() {
        Some(view) => view.layout["height"].as_u64().unwrap_or(400),
        None => 400,
    };
    html.push_str(&format!(
        "</div><figure><div class=\"plot\" id=\"{id}\" role=\"img\" style=\"min-height:{height}px\" \
         aria-label=\"{title}, a chart; its values stand in the table below\" \
         aria-describedby=\"{id}-about\"></div></figure>"
    ));
    html.push_str(&format!(
        "<details><summary>{title}: values as a table</summary>{}</details>",
        table(&chart.table, &format!("{}: values", chart.title))
    ));
    let views: Vec<_> =
        chart.views.iter().map(|view| json!({ "traces": view.traces, "layout": view.layout })).collect();
    html.push_str(&format!(
        "<script type=\"application/json\" class=\"spec\" data-chart=\"{id}\">{}</script></section>\n",
        super::json(&json!({ "views": views }).to_string())
    ));
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Align, Column};

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(linear_ticks(0.93, 1.32), [0.9, 1.0, 1.1, 1.2, 1.3, 1.4]);
        assert_eq!(log_ticks(12.0, 180.0), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(linear_ticks(5.0, 5.0), [5.0]);
        for (low, high) in [(1e-3, 1e9), (1.0, 1.001), (3.0, 400.0), (0.7, 50.0)] {
            assert!(
                (2..=14).contains(&log_ticks(low, high).len()),
                "{low} {high}: {:?}",
                log_ticks(low, high)
            );
        }
    }

    #[test]
    fn ticks_are_written_shortly() {
        assert_eq!(tick(20_000.0, "per_s"), "20 k/s");
        assert_eq!(tick(0.5, "us"), "500 ns");
        assert_eq!(tick(1.05, ""), "1.05");
        assert_eq!(tick(0.0, "us"), "0");
    }

    #[test]
    fn a_table_has_heads_for_columns_and_rows() {
        let mut grid = Grid::new(vec![Column::new("", Align::Left), Column::new("t<c>p", Align::Value)]);
        grid.push(vec![Span::plain("p50"), Span::new(Tone::Good, "1 & 2")]);
        let html = table(&grid, "A \"caption\"");
        assert!(html.contains("aria-label=\"A &quot;caption&quot;\""), "{html}");
        assert!(html.contains("<th scope=\"col\" class=\"right\">t&lt;c&gt;p</th>"), "{html}");
        assert!(html.contains("<th scope=\"row\">p50</th>"), "{html}");
        assert!(html.contains("<span class=\"good\">1 &amp; 2</span>"), "{html}");
    }
}
