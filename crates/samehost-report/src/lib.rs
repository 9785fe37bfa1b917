//! Renders a report as terminal text, JSON, CSV, Markdown or HTML. Pure: reads no clock, opens no file,
//! prints nothing. Verdicts come from `samehost-analysis`; this crate only words them.
//!
//! A renderer is one file and one line in [`RENDERERS`]. The terminal is separate, because it has a width and
//! colours.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod formats;
mod layout;
mod measurement;
mod verbs;

use std::io::{self, Write};

use samehost_model::Report;

#[cfg(feature = "html")]
pub use formats::html::{CheckupPage, checkup_as_html, render_page};
pub use formats::json::reproduction_as_json;
pub use formats::metrics::{
    Distribution, Found, Metric, metrics_as_prometheus, metrics_of_report, metrics_of_scan,
};
pub use formats::terminal::Terminal;
pub use layout::{hanging, wrap};
pub use verbs::checkup::{Around, Finding, FindingKind, Running};
pub use verbs::exchanges::reason_of_no_time;
pub use verbs::history::{Change, Run};
pub use verbs::how::Clients;
#[cfg(feature = "html")]
pub use verbs::reproduction::reproduction_as_html;
pub use verbs::reproduction::reproduction_as_markdown;
pub use verbs::savings::{part_in_percent, saving_in_short, saving_in_words, undecided_in_words};
pub use verbs::scan::Notes;
pub use verbs::switch::{own_times_in_words, page_times_in_words};
pub use verbs::top::Look;

pub struct Renderer {
    /// Name of the format, as in `--json`.
    pub name: &'static str,
    pub render: fn(&Report, &mut dyn Write) -> io::Result<()>,
}

/// All formats of a report, in the order in which help lists them. Each takes an analysed report and writes bytes: what a report says
/// is in `measurement/`, once for all of them, and a format only decides where it stands. A new kind of result is a type in the model, a
/// rule in the analysis and a page here (docs/decisions/0084).
pub const RENDERERS: &[Renderer] = &[
    Renderer { name: "json", render: formats::json::render },
    Renderer { name: "csv", render: formats::csv::render },
    Renderer { name: "markdown", render: formats::markdown::render },
    #[cfg(feature = "html")]
    Renderer { name: "html", render: formats::html::render },
    Renderer { name: "prometheus", render: formats::metrics::render },
];
