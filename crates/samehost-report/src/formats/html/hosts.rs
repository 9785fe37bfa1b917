//! The comparison of many hosts as one page: which differ and by what, and every host that was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_analysis::{Cell, Difference, FactorDiffers, HostDiffers, HostsCompared, MARGIN};
use samehost_model::human::format_percent;
use serde_json::{Value, json};

use super::chart::{self, Chart, ChartView, Marks, Series};
use super::page::{Articles, Front};
use super::render_with;
use crate::layout::{Align, Grid, Span, count};
use crate::verbs::hosts::{named, not_compared, of_what, ratio, standing, verdict, what};

const PREFIX: &str = "hosts";
const ALIKE: &str = "circle-open";
/// Most rows with a name of their own that a chart has; the table has all.
const MOST_ROWS: usize = 60;
/// Height of a row without a name, and the most of such a chart.
const ROW: usize = 5;
const TALLEST: usize = 1_400;

pub fn hosts_as_html(found: &HostsCompared, out: &mut dyn Write) -> io::Result<()> {
    let mut html = format!(
        "<p class=\"answer\">{}</p>\n<p class=\"how\">{}</p>\n",
        super::html(&format!("{}.", verdict(found))),
        super::html(&of_what(found))
    );
    html.push_str("<div class=\"charts\">");
    for chart in [differ(found), factors(found), all(found)].into_iter().flatten() {
        html.push_str(&chart::figure(&chart, PREFIX));
    }
    html.push_str("</div>\n");
    if let Some(text) = not_compared(found) {
        // Writing to a String cannot fail.
        let _ = writeln!(html, "<p class=\"note\">{}</p>", super::html(&text));
        let _ = writeln!(html, "<p class=\"about\">{}</p>", super::html(&found.not_compared.join(", ")));
    }
    render_with(&Front { title: "Hosts compared", html: &html, articles: Articles::Whole }, &[], out)
}

struct Row {
    label: String,
    difference: Difference,
    colour: &'static str,
    symbol: &'static str,
    hover: String,
    cells: Vec<Span>,
}

fn look(is_slower: Option<bool>) -> (&'static str, &'static str) {
    match is_slower {
        Some(true) => ("$bad", "square"),
        Some(false) => ("$good", "circle"),
        None => ("$doubt", "diamond"),
    }
}

fn head(first: &[&str]) -> Grid {
    let rest = ["ratio", "95 % interval", "p, adjusted", "hosts"];
    Grid::default().with(Align::Left, first).with(Align::Right, &rest)
}

fn figures(difference: &Difference, hosts: u32) -> Vec<Span> {
    let Difference { ratio, ci_low, ci_high, p_adjusted: p } = difference;
    vec![
        Span::plain(format!("{ratio:.3}")),
        Span::plain(format!("{ci_low:.3}–{ci_high:.3}")),
        Span::plain(if *p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }),
        Span::plain(hosts.to_string()),
    ]
}

fn ends_of(difference: &Difference) -> [f64; 2] {
    [difference.ci_low, difference.ci_high]
}

fn of_host(host: &HostDiffers) -> Row {
    let (colour, symbol) = look(host.is_slower);
    let (tone, word) = standing(host.is_slower);
    let mut cells = vec![Span::plain(&host.host), Span::plain(what(&host.cell)), Span::new(tone, word)];
    cells.extend(figures(&host.difference, host.peers));
    Row {
        label: format!("{}, {}", host.host, host.cell.arm),
        difference: host.difference,
        colour,
        symbol,
        hover: chart::hover(&[
            host.host.clone(),
            what(&host.cell),
            format!("{word} {}", ratio(&host.difference)),
            format!(
                "{}, {} like it",
                count(host.reports as usize, "report"),
                count(host.peers as usize, "host")
            ),
        ]),
        cells,
    }
}

fn rows_chart(id: &str, title: &str, about: String, rows: &[Row], mut table: Grid) -> Option<Chart> {
    if rows.is_empty() {
        return None;
    }
    let shown = &rows[..rows.len().min(MOST_ROWS)];
    let about = match rows.len() - shown.len() {
        0 => about,
        more => format!("{about} The table has {more} more."),
    };
    let mut traces = Vec::new();
    for colour in ["$bad", "$good", "$doubt"] {
        let Some(first) = shown.iter().find(|row| row.colour == colour) else { continue };
        let mut ends = Vec::new();
        let mut marks = Marks::default();
        for (at, row) in shown.iter().enumerate().filter(|(_, row)| row.colour == colour) {
            ends.push((ends_of(&row.difference), [at as f64; 2]));
            marks.push(row.difference.ratio, at as f64, row.hover.clone());
        }
        traces.push(chart::segments(colour, colour, 2, &ends));
        traces.push(dots(colour, first.symbol, 10, &marks));
    }
    let y = chart::rows_axis(shown.iter().map(|row| row.label.as_str()));
    let ends = shown.iter().flat_map(|row| ends_of(&row.difference));
    let layout = layout(ends, &y, 110 + 30 * shown.len());
    for row in rows {
        table.push(row.cells.clone());
    }
    let views = vec![ChartView { label: String::new(), traces, layout }];
    Some(Chart { id: id.into(), title: title.into(), about, series: Vec::new(), views, table })
}

fn differ(found: &HostsCompared) -> Option<Chart> {
    let rows: Vec<Row> = found.differ.iter().map(of_host).collect();
    let about = format!(
        "Host ÷ the hosts with the same environment, with its 95 % interval. ■ slower, ● faster, ◆ a ratio of two arms. {}",
        margin()
    );
    rows_chart("differ", "Hosts that differ", about, &rows, head(&["host", "of", "is"]))
}

fn factors(found: &HostsCompared) -> Option<Chart> {
    let rows: Vec<Row> = found.factors.iter().map(of_factor).collect();
    let about = format!(
        "Hosts with this part of the environment ÷ hosts with the usual one, with its 95 % interval. Parts that the same hosts \
         have are named together: nothing tells them apart. {}",
        margin()
    );
    let head = head(&["environment", "usual", "of"]);
    rows_chart("environments", "Environments that differ from the usual one", about, &rows, head)
}

fn of_factor(factor: &FactorDiffers) -> Row {
    let level = format!("{} {}", factor.factors.join(", "), named(&factor.level));
    let mut cells =
        vec![Span::plain(&level), Span::plain(named(&factor.usual)), Span::plain(what(&factor.cell))];
    cells.extend(figures(&factor.difference, factor.hosts));
    Row {
        label: format!("{}, {}", factor.cell.arm, level),
        difference: factor.difference,
        colour: "$doubt",
        symbol: "diamond",
        hover: chart::hover(&[
            level,
            what(&factor.cell),
            format!("{} of {}", ratio(&factor.difference), named(&factor.usual)),
            format!("{} hosts", factor.hosts),
        ]),
        cells,
    }
}

/// Every host in order of its ratio, for each thing that was measured.
fn all(found: &HostsCompared) -> Option<Chart> {
    let cells: BTreeSet<&Cell> = found.compared.iter().map(|host| &host.cell).collect();
    let mut table = head(&["host", "of", "is"]);
    let mut views = Vec::new();
    for cell in cells {
        let mut hosts: Vec<&HostDiffers> = found.compared.iter().filter(|host| host.cell == *cell).collect();
        hosts.sort_by(|one, other| one.difference.ratio.total_cmp(&other.difference.ratio));
        let mut lines = Vec::new();
        let mut marks: BTreeMap<(&str, &'static str), Marks> = BTreeMap::new();
        for (at, host) in hosts.iter().enumerate() {
            lines.push((ends_of(&host.difference), [at as f64; 2]));
            let mut row = of_host(host);
            let look = if host.is_called() { (row.colour, row.symbol) } else { ("$plain", ALIKE) };
            marks.entry(look).or_default().push(host.difference.ratio, at as f64, row.hover);
            if !host.is_called() {
                row.cells[2] = Span::plain("alike");
            }
            table.push(row.cells);
        }
        let mut traces = vec![chart::segments("interval", "$floor", 1, &lines)];
        for ((colour, symbol), marks) in &marks {
            traces.push(dots(colour, symbol, if *symbol == ALIKE { 4 } else { 9 }, marks));
        }
        let y = json!({
            "type": "linear", "range": [hosts.len() as f64 - 0.5, -0.5], "tickvals": [], "ticktext": [],
            "showgrid": false, "title": { "text": "hosts, in order" },
        });
        let ends = hosts.iter().flat_map(|host| ends_of(&host.difference));
        let layout = layout(ends, &y, (140 + ROW * hosts.len()).min(TALLEST));
        views.push(ChartView { label: what(cell), traces, layout });
    }
    if views.is_empty() {
        return None;
    }
    let about = format!(
        "Each host ÷ the hosts with the same environment, in order, with its 95 % interval; ■ slower, ● faster and ◆ differ beyond chance. {}",
        margin()
    );
    Some(Chart { id: "all".into(), title: "All hosts".into(), about, series: Vec::new(), views, table })
}

fn margin() -> String {
    format!("The dark line is no difference, the shaded zone the margin of ±{}.", format_percent(MARGIN))
}

fn dots(colour: &str, symbol: &'static str, size: u32, marks: &Marks) -> Value {
    let series = Series { symbol, ..Series::other(colour, "", colour) };
    let mut trace = chart::points(&series, "markers", marks);
    trace["marker"] = json!({ "color": colour, "symbol": symbol, "size": size });
    trace
}

fn layout(ends: impl Iterator<Item = f64>, y: &Value, height: usize) -> Value {
    let (low, high) = (1.0 / (1.0 + MARGIN), 1.0 + MARGIN);
    let ends = ends.filter(|end| end.is_finite() && *end > 0.0).chain([1.0, low, high]);
    let mut layout = chart::layout(&chart::log_axis("ratio", "", ends), y, height);
    layout["shapes"] = chart::no_difference(MARGIN);
    layout
}
