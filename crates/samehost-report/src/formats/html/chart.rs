//! Building blocks of charts: SVG that needs no script, in the colours of the page's style, with the same values as a table; axes with
//! their ticks. A picture is 400 units wide, which is a small screen; on a large one two or three stand side by side.
//!
//! Charts were plotly.js before: 355 kB in every page for lists and toggles, and nothing to see where scripts are off or a page is
//! printed. What pointing at a mark shows is the mark's own title now.

use std::fmt::Write;

use samehost_model::human::format_value;

use crate::layout::{Grid, Span, Tone};
use crate::measurement::view::{self, View};

/// Colours of the style sheet: the classes `s0` to `s7`.
const COLOURS: usize = 8;
/// Marks around 0, so that series can be distinguished without colour: circle, square, diamond, triangle.
const MARKS: [&str; 4] =
    ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-4-4h8v8h-8z", "M0-5.5L5.5 0L0 5.5L-5.5 0z", "M0-5L5 4H-5z"];
const CROSS: &str = "M-4-4L4 4M-4 4L4-4";

pub(crate) struct Chart {
    /// Unique in a report.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) series: Vec<Series>,
    /// A chart without any is left out.
    pub(crate) pictures: Vec<Picture>,
    /// The same values; none where they stand in the results already.
    pub(crate) table: Grid,
}

/// One drawing of a chart, as HTML.
pub(crate) struct Picture {
    pub(crate) label: String,
    pub(crate) html: String,
}

/// How an arm is drawn; the same in every chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) name: String,
    index: usize,
}

impl Series {
    pub(crate) fn of(view: &View<'_>, name: &str) -> Self {
        let index = view.arm_names().iter().position(|known| known == name).unwrap_or(0);
        Series { name: name.to_owned(), index }
    }

    /// Series of all compared arms, the baseline first.
    pub(crate) fn all(view: &View<'_>) -> Vec<Series> {
        view.arm_names().iter().map(|name| Series::of(view, name)).collect()
    }

    fn class(&self) -> String {
        let dash = if self.index >= MARKS.len() { " dashed" } else { "" };
        format!("s{}{dash}", self.index % COLOURS)
    }

    fn mark(&self) -> &'static str {
        MARKS[self.index % MARKS.len()]
    }
}

/// How a mark says what became of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Filled,
    Open,
    Cross,
}

pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// What it says when it is pointed at.
    pub(crate) about: String,
    pub(crate) look: Look,
}

#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) title: String,
    /// Ends, of the logarithms where it is logarithmic.
    pub(crate) low: f64,
    pub(crate) high: f64,
    is_log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A logarithmic axis around these values, with round ticks.
    pub(crate) fn log(title: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 1.0));
        let ticks = log_ticks(low, high).into_iter().map(|value| (value, tick(value, unit))).collect();
        let pad = ((high / low).log10() * 0.06).max(0.01);
        Axis {
            title: title.to_owned(),
            low: low.log10() - pad,
            high: high.log10() + pad,
            is_log: true,
            ticks,
        }
    }

    /// An axis of values that have names. Labels that would overlap the one before are left out.
    pub(crate) fn named(title: &str, is_log: bool, all: &[(f64, String)]) -> Self {
        let place = |value: f64| if is_log { value.log10() } else { value };
        let (low, high) = ends(all.iter().map(|(value, _)| place(*value))).unwrap_or((0.0, 1.0));
        let mut last = f64::NEG_INFINITY;
        let mut ticks = Vec::new();
        for (value, text) in all {
            if place(*value) - last >= NEAREST * (high - low) {
                last = place(*value);
                ticks.push((*value, text.clone()));
            }
        }
        let pad = if high > low { 0.05 * (high - low) } else { 0.5 };
        Axis { title: title.to_owned(), low: low - pad, high: high + pad, is_log, ticks }
    }

    /// Where a value is, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }
}

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

/// A picture of lines under construction: axes first, then what is drawn on them.
pub(crate) struct Plot {
    x: Axis,
    y: Axis,
    svg: String,
}

impl Plot {
    pub(crate) fn new(x: Axis, y: Axis) -> Self {
        let mut plot = Plot { x, y, svg: String::new() };
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, text) in plot.y.ticks.clone() {
            let at = plot.up(value);
            if (TOP..=bottom).contains(&at) {
                plot.write(format_args!("<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>"));
                plot.text(LEFT - 6.0, at + 4.0, "end", &text);
            }
        }
        for (value, text) in plot.x.ticks.clone() {
            let at = plot.across(value);
            if (LEFT..=right).contains(&at) {
                plot.write(format_args!("<path class=\"grid\" d=\"M{at:.1} {bottom}v4\"/>"));
                plot.text(at, bottom + 17.0, "middle", &text);
            }
        }
        let title = plot.x.title.clone();
        plot.text((LEFT + right) / 2.0, HEIGHT - 6.0, "middle", &title);
        plot.write(format_args!("<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>"));
        plot
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + self.x.part(x) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.part(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn write(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.svg.write_fmt(what);
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = super::html(text);
        self.write(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// An interval around a line: each place with its two ends.
    pub(crate) fn band(&mut self, series: &Series, ends: &[(f64, f64, f64)]) {
        let high = ends.iter().map(|(x, _, high)| (*x, *high));
        let low = ends.iter().rev().map(|(x, low, _)| (*x, *low));
        let path = self.path(high.chain(low));
        self.write(format_args!("<path class=\"band {}\" d=\"{path}z\"/>", series.class()));
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", self.across(x), self.up(y));
        }
        path
    }

    pub(crate) fn line(&mut self, series: &Series, points: &[(f64, f64)]) {
        let path = self.path(points.iter().copied());
        self.write(format_args!("<path class=\"line {}\" d=\"{path}\"/>", series.class()));
    }

    pub(crate) fn marks(&mut self, series: &Series, marks: &[Mark]) {
        for mark in marks {
            let (x, y) = (self.across(mark.x), self.up(mark.y));
            let (shape, look) = match mark.look {
                Look::Filled => (series.mark(), "mark"),
                Look::Open => (series.mark(), "mark open"),
                Look::Cross => (CROSS, "mark open"),
            };
            let about = super::html(&mark.about);
            self.write(format_args!(
                "<path class=\"{look} {}\" transform=\"translate({x:.1} {y:.1})\" d=\"{shape}\"><title>{about}</title></path>",
                series.class()
            ));
        }
    }

    /// An upright line with words at its top.
    pub(crate) fn upright(&mut self, series: &Series, x: f64, words: &str) {
        let at = self.across(x);
        let bottom = HEIGHT - BOTTOM;
        self.write(format_args!(
            "<path class=\"line dashed {}\" d=\"M{at:.1} {TOP}V{bottom}\"/>",
            series.class()
        ));
        self.text(at - 4.0, TOP + 8.0, "end", words);
    }

    /// The picture as HTML; `what` says what it shows to who does not see it.
    pub(crate) fn picture(self, label: String, what: &str) -> Picture {
        let html = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}, a chart; its values stand in the table below\">{}</svg>",
            super::html(what),
            self.svg
        );
        Picture { label, html }
    }
}

/// Lines of what a mark says when it is pointed at.
pub(crate) fn lines(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    shown.join(", ")
}

/// Minimum distance of two named ticks, as a fraction of the axis.
const NEAREST: f64 = 0.09;
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

/// A chart as HTML: title, explanation, what each series looks like, the pictures, and the same values as a table.
/// `prefix` makes its ids unique in the page.
pub(crate) fn figure(chart: &Chart, prefix: &str) -> String {
    let id = format!("{prefix}-{}", chart.id);
    let title = super::html(&chart.title);
    let wide = if chart.pictures.len() > 1 { " wide" } else { "" };
    let mut html = format!(
        "<section class=\"chart{wide}\" aria-labelledby=\"{id}\"><h3 id=\"{id}\">{title}</h3><p class=\"about\">{}</p>",
        super::html(&chart.about)
    );
    if !chart.series.is_empty() {
        html.push_str("<p class=\"key\">");
        for series in &chart.series {
            html.push_str(&format!(
                "<span><svg class=\"sign\" viewBox=\"-16 -7 32 14\" aria-hidden=\"true\"><path class=\"line {0}\" d=\"M-15 0H15\"/>\
                 <path class=\"mark {0}\" d=\"{1}\"/></svg> {2}</span> ",
                series.class(),
                series.mark(),
                super::html(&series.name)
            ));
        }
        html.push_str("</p>");
    }
    html.push_str("<div class=\"pictures\">");
    for picture in &chart.pictures {
        html.push_str("<figure>");
        if !picture.label.is_empty() {
            html.push_str(&format!("<figcaption>{}</figcaption>", super::html(&picture.label)));
        }
        html.push_str(&picture.html);
        html.push_str("</figure>");
    }
    html.push_str("</div>");
    if !chart.table.rows.is_empty() {
        html.push_str(&format!(
            "<details><summary>{title}: values as a table</summary>{}</details>",
            table(&chart.table, &format!("{}: values", chart.title))
        ));
    }
    html.push_str("</section>\n");
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
    fn what_is_drawn_stays_between_the_axes() {
        let y = Axis::log("latency", "us", [10.0, 1000.0]);
        let x = Axis::named("connections", true, &[(1.0, "1".into()), (64.0, "64".into())]);
        let plot = Plot::new(x, y);
        assert!(plot.across(1.0) > LEFT && plot.across(64.0) < WIDTH - RIGHT);
        assert!(plot.up(1000.0) > TOP && plot.up(10.0) < HEIGHT - BOTTOM);
        assert!(plot.up(100.0) < plot.up(10.0), "more is higher");
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
