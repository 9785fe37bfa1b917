//! A report in each format. A format is one file, and one line in [`RENDERERS`](crate::RENDERERS).

pub(crate) mod csv;
#[cfg(feature = "html")]
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod metrics;
pub(crate) mod terminal;
