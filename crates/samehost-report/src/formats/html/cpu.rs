//! CPU time per operation as stacked bars: client, proxy and server, each in user and kernel mode.

use samehost_model::Trial;
use serde_json::json;

use super::chart::{self, Chart, ChartView, Series};
use crate::layout::{Align, Grid, Span};
use crate::measurement::view::{self, View};

/// A segment of the bars. Kernel time is hatched and paler, so that it is told apart without colour as well.
struct Part {
    key: &'static str,
    name: &'static str,
    colour: &'static str,
    pattern: &'static str,
    read: fn(&Trial) -> Option<f64>,
}

fn part(
    key: &'static str,
    name: &'static str,
    colour: &'static str,
    pattern: &'static str,
    read: fn(&Trial) -> Option<f64>,
) -> Part {
    Part { key, name, colour, pattern, read }
}

fn parts() -> [Part; 9] {
    [
        part("client-user", "client, user", "$client", "", |s| s.client_user_us_per_op),
        part("client-kernel", "client, kernel", "$client-soft", "/", |s| {
            Some((s.client_cpu_us_per_op? - s.client_user_us_per_op?).max(0.0))
        }),
        part("client", "client", "$client", "", |s| {
            s.client_cpu_us_per_op.filter(|_| s.client_user_us_per_op.is_none())
        }),
        part("proxy-user", "proxy, user", "$proxy", "", |s| s.proxy_user_us_per_op),
        part("proxy-kernel", "proxy, kernel", "$proxy-soft", "/", |s| {
            Some((s.proxy_cpu_us_per_op? - s.proxy_user_us_per_op?).max(0.0))
        }),
        part("proxy", "proxy", "$proxy", "", |s| {
            s.proxy_cpu_us_per_op.filter(|_| s.proxy_user_us_per_op.is_none())
        }),
        part("server-user", "server, user", "$server", "", |s| s.server_user_us_per_op),
        part("server-kernel", "server, kernel", "$server-soft", "/", |s| {
            Some((s.server_cpu_us_per_op? - s.server_user_us_per_op?).max(0.0))
        }),
        part("server", "server", "$server", "", |s| {
            s.server_cpu_us_per_op.filter(|_| s.server_user_us_per_op.is_none())
        }),
    ]
}

/// Label of an arm, and the median of each segment over its trials.
type Row = (String, [Option<f64>; 9]);

fn rows(view: &View<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for group in &view.groups {
        for arm in group.arms() {
            let medians = parts().map(|part| view::median(view.report, &arm.id, part.read));
            if medians.iter().any(Option::is_some) {
                let at = view.point(&arm.point);
                let at = if at.is_empty() { at } else { format!("{at}, ") };
                rows.push((format!("{at}{}", view.name(&arm.id)), medians));
            }
        }
    }
    rows
}

fn bar(index: usize, part: &Part, rows: &[Row]) -> serde_json::Value {
    let (mut widths, mut hovers) = (Vec::new(), Vec::new());
    for (label, medians) in rows {
        let text = format!("{}: {} per operation", part.name, chart::value_or_dash(medians[index], "us"));
        widths.push(medians[index]);
        hovers.push(chart::hover(&[label.clone(), text]));
    }
    json!({
        "type": "bar", "orientation": "h", "name": part.name, "legendgroup": part.key,
        "y": (0..rows.len()).collect::<Vec<_>>(),
        "x": widths, "hovertext": hovers, "hoverinfo": "text", "textposition": "none",
        "marker": {
            "color": part.colour, "line": { "width": 0.5, "color": "$paper" },
            "pattern": { "shape": part.pattern, "fillmode": "overlay", "fgcolor": "$ink", "fgopacity": 0.35, "size": 7 },
        },
    })
}

/// The chart; `None` when no trial has CPU times.
pub(crate) fn chart(view: &View<'_>) -> Option<Chart> {
    let rows = rows(view);
    let mut used: Vec<(usize, Part)> = parts().into_iter().enumerate().collect();
    used.retain(|(i, _)| rows.iter().any(|(_, medians)| medians[*i].unwrap_or(0.0) > 0.0));
    if used.is_empty() {
        return None;
    }
    let heads: Vec<&str> = used.iter().map(|(_, part)| part.name).collect();
    let mut table = Grid::default().with(Align::Left, &[""]).with(Align::Value, &heads);
    for (label, medians) in &rows {
        let mut row = vec![Span::plain(label)];
        row.extend(used.iter().map(|(i, _)| Span::plain(chart::value_or_dash(medians[*i], "us"))));
        table.push(row);
    }
    let traces = used.iter().map(|(i, part)| bar(*i, part, &rows)).collect();
    let totals = rows.iter().map(|(_, medians)| medians.iter().flatten().sum::<f64>());
    let x = chart::linear_axis("CPU time per operation", "us", true, totals.chain([0.0]));
    let y = chart::rows_axis(rows.iter().map(|(label, _)| label.as_str()));
    let mut layout = chart::layout(&x, &y, 90 + 28 * rows.len());
    layout["barmode"] = json!("stack");
    layout["bargap"] = json!(0.25);
    Some(Chart {
        id: "cpu".into(),
        title: "CPU time per operation".into(),
        about:
            "Medians over trials of each part, stacked; kernel time is hatched. A part's median need not add \
                up to the median of the whole."
                .into(),
        series: used.iter().map(|(_, part)| Series::other(part.key, part.name, part.colour)).collect(),
        views: vec![ChartView { label: String::new(), traces, layout }],
        table,
    })
}
