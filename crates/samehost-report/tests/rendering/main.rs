//! Every renderer over simulated reports: trials → analysis → bytes.

// clippy.toml allows it in functions marked as tests; here all is a test, their helpers too.
#![allow(clippy::unwrap_used)]

mod checkup;
mod csv;
mod html;
mod json;
mod markdown;
mod prometheus;
mod scene;
mod scenes;
mod terminal;
mod top;
mod true_figures;
