//! Takes plotly.js out of the crate that has it and compresses it once, so that the program and every page hold
//! a third of its size.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const OPEN: &str = "<script type=\"text/javascript\">";
const CLOSE: &str = "</script>";

fn main() -> Result<(), Box<dyn Error>> {
    let sources = plotly::Plot::offline_js_sources();
    let mut scripts = sources.split(OPEN).skip(1).filter_map(|rest| rest.split(CLOSE).next());
    let plotly = scripts.find(|script| script.trim_start().starts_with("/**\n* plotly.js")).ok_or(
        "the plotly crate has no plotly.js where build.rs looks for it; see Plot::offline_js_sources",
    )?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plotly.as_bytes())?;
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?;
    fs::write(Path::new(&out).join("plotly.min.js.gz"), encoder.finish()?)?;
    writeln!(std::io::stdout(), "cargo::rerun-if-changed=build.rs")?;
    Ok(())
}
