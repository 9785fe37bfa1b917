//! Renders a report as terminal text, JSON, CSV, Markdown or HTML. Pure: reads no clock, opens no file,
//! prints nothing. Verdicts come from `samehost-stats`; this crate only words them.
//!
//! A renderer is one file and one line in [`RENDERERS`]. The terminal is separate, because it has a width and
//! colours.

mod answer;
mod axis;
mod changes;
mod checkup;
mod conditions;
mod csv;
mod effects;
mod explanation;
mod figures;
mod grid;
mod head;
mod history;
mod hosts;
mod how;
#[cfg(feature = "html")]
mod html;
mod json;
mod ladder;
mod line;
mod markdown;
mod metrics;
mod notes;
mod page;
mod predictions;
mod profiles;
mod quantile_plot;
#[cfg(feature = "html")]
mod question;
mod ratio_plot;
mod reproduction;
mod scan;
mod scan_changes;
mod scan_congestion;
mod sockets;
mod switch;
mod terminal;
mod text;
mod verification;
mod view;
mod words;

use std::io::{self, Write};

use samehost_model::Report;

pub use checkup::{Around, Finding, FindingKind, Running};
pub use history::{Change, Run};
pub use how::Clients;
#[cfg(feature = "html")]
pub use html::{CheckupPage, checkup_as_html, hosts_as_html, render_page};
pub use json::reproduction_as_json;
pub use metrics::{
    Found, Metric, metrics_as_otlp, metrics_as_prometheus, metrics_of_report, metrics_of_scan,
};
#[cfg(feature = "html")]
pub use reproduction::reproduction_as_html;
pub use reproduction::reproduction_as_markdown;
pub use scan::Notes;
pub use scan::{part_in_percent, saving_in_short, saving_in_words, signed_part, signed_span_of_time};
pub use scan_changes::When;
pub use terminal::Terminal;
pub use text::wrap;

pub struct Renderer {
    /// Name of the format, as in `--json`.
    pub name: &'static str,
    /// Purpose in one line.
    pub about: &'static str,
    pub render: fn(&Report, &mut dyn Write) -> io::Result<()>,
}

/// All formats, in the order in which help lists them.
pub const RENDERERS: &[Renderer] = &[
    Renderer {
        name: "json",
        about: "everything, for programs and for `samehost report`",
        render: json::render,
    },
    Renderer { name: "csv", about: "one row for each comparison", render: csv::render },
    Renderer {
        name: "markdown",
        about: "the answer and its table, to paste into an issue",
        render: markdown::render,
    },
    #[cfg(feature = "html")]
    Renderer { name: "html", about: "one page with charts that opens offline", render: html::render },
    Renderer { name: "prometheus", about: "metrics for a textfile collector", render: metrics::render },
];
