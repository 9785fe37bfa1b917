//! One chart as HTML: title, explanation, toggles, the drawing, and the same values as a table.

use serde_json::json;

use super::chart::{Chart, Series};
use super::escape;
use crate::layout::grid::Grid;
use crate::layout::text::{Span, Tone};

/// CSS class of a tone.
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
    let text = escape::html(span.text());
    class(span.tone()).map_or(text.clone(), |class| format!("<span class=\"{class}\">{text}</span>"))
}

/// A table with header cells for columns and rows.
pub(crate) fn table(grid: &Grid, caption: &str) -> String {
    let mut html = String::from("<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
    html.push_str(&format!(" aria-label=\"{}\"><table>", escape::html(caption)));
    if grid.heads().any(|head| !head.is_empty()) {
        html.push_str("<thead><tr>");
        for (column, head) in grid.heads().enumerate() {
            let right = if grid.is_right(column) { " class=\"right\"" } else { "" };
            // An empty header cell would confuse screen readers.
            let (open, close) = if head.is_empty() { ("td", "td") } else { ("th scope=\"col\"", "th") };
            html.push_str(&format!("<{open}{right}>{}</{close}>", escape::html(head)));
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

/// CSS class of a colour name: `$series0` → `series0`.
fn colour(series: &Series) -> &str {
    series.colour.trim_start_matches('$')
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

/// A chart. `prefix` makes its ids unique in the page.
pub(crate) fn figure(chart: &Chart, prefix: &str) -> String {
    let id = format!("{prefix}-{}", chart.id);
    let title = escape::html(&chart.title);
    let mut html = format!(
        "<section class=\"chart\" aria-labelledby=\"{id}-title\"><h3 id=\"{id}-title\">{title}</h3>\
         <p class=\"about\" id=\"{id}-about\">{}</p><div class=\"controls\">",
        escape::html(&chart.about)
    );
    if chart.views.len() > 1 {
        html.push_str(&format!("<label>Show <select data-chart=\"{id}\">"));
        for (index, view) in chart.views.iter().enumerate() {
            html.push_str(&format!("<option value=\"{index}\">{}</option>", escape::html(&view.label)));
        }
        html.push_str("</select></label>");
    }
    if !chart.series.is_empty() {
        html.push_str(&format!("<div class=\"series\" role=\"group\" aria-label=\"Series of {title}\">"));
        for series in &chart.series {
            html.push_str(&format!(
                "<button type=\"button\" aria-pressed=\"true\" data-chart=\"{id}\" data-series=\"{}\">\
                 <span class=\"sign {}\" aria-hidden=\"true\">{}</span> {}</button>",
                escape::html(&series.key),
                colour(series),
                sign(series),
                escape::html(&series.name)
            ));
        }
        html.push_str("</div>");
    }
    let height = chart.views.first().and_then(|view| view.layout["height"].as_u64()).unwrap_or(400);
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
        escape::json(&json!({ "views": views }).to_string())
    ));
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::grid::{Align, Column};

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
