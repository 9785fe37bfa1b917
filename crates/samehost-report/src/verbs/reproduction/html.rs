//! The reproduction as one page: the table, then each experiment's report with its charts.

use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_model::{Report, Reproduction};

use super::{LEGEND, TITLE, here, how, outcome, summary, unmeasured, whys};
use crate::formats::html;
use crate::formats::html::{Articles, Front, render_with, table};
use crate::layout::grid::{Align, Column, Grid};
use crate::layout::text::{Span, Tone};
use crate::measurement::notes::sentence;

/// Maximum length of a reason in the table, in bytes.
const LONGEST: usize = 48;

/// Writes the reproduction as one HTML page that works offline.
pub fn reproduction_as_html(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    let mut reports: Vec<(String, &Report)> = Vec::new();
    for experiment in &reproduction.experiments {
        for measured in &experiment.measurements {
            let label = format!("{}: {}, {}", experiment.id, experiment.title, measured.label);
            reports.push((label, &measured.report));
        }
    }
    let reports: Vec<(&str, &Report)> =
        reports.iter().map(|(label, report)| (label.as_str(), *report)).collect();
    let front = Front { title: TITLE, html: &front(reproduction), articles: Articles::Whole };
    render_with(&front, &reports, out)
}

fn front(reproduction: &Reproduction) -> String {
    let mut grid = Grid::new(vec![
        Column::new("", Align::Left),
        Column::new("claim", Align::Left),
        Column::new("published", Align::Right),
        Column::new("here", Align::Right),
        Column::new("holds?", Align::Left),
    ]);
    for experiment in &reproduction.experiments {
        let name = Span::new(Tone::Bold, format!("{} {}", experiment.id, experiment.title));
        if let Some(reason) = unmeasured(experiment) {
            let empty = Span::default;
            // Cells are not wrapped; a long reason is printed below the table.
            let short =
                reason.split(": this").next().filter(|text| text.len() <= LONGEST).unwrap_or("failed");
            grid.push(vec![name, empty(), empty(), empty(), Span::new(Tone::Doubt, short)]);
            continue;
        }
        for (index, claim) in experiment.claims.iter().enumerate() {
            grid.push(vec![
                if index == 0 { name.clone() } else { Span::default() },
                Span::plain(&claim.claim),
                Span::plain(&claim.published),
                claim.here.as_ref().map_or_else(|| Span::dim("–"), |found| Span::plain(here(found))),
                outcome(claim),
            ]);
        }
    }
    let mut html = format!(
        "<p class=\"answer\">{}</p>\n<p class=\"how\">{}</p>\n",
        html::html(&summary(reproduction)),
        html::html(&how(reproduction).join(" · "))
    );
    if reproduction.interrupted {
        html.push_str("<p class=\"doubt\">Interrupted: run the same command again to continue.</p>\n");
    }
    let _ = writeln!(html, "{}<p class=\"about\">{}</p>", table(&grid, "Claims"), html::html(LEGEND));
    html.push_str("<h2>Why</h2>\n<dl>\n");
    for (experiment, found) in reproduction.experiments.iter().zip(whys(reproduction)) {
        let published = format!("{}: {}.", experiment.source, experiment.setup);
        let mut sentences = vec![html::html(&published)];
        sentences.extend(unmeasured(experiment).map(|reason| html::html(&sentence(&reason))));
        sentences.extend(found.iter().map(|text| html::html(text)));
        let _ = writeln!(
            html,
            "<dt>{}</dt><dd>{}</dd>",
            html::html(&experiment.id),
            sentences.iter().map(|text| format!("<p>{text}</p>")).collect::<String>()
        );
    }
    html.push_str("</dl>\n");
    html
}
