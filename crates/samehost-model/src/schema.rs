//! The JSON Schemas of what is printed or stored as JSON, derived from the types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};

use crate::report::Report;
use crate::reproduction::Reproduction;
use crate::scan::{HOW_SCHEMA, HowTo, SCAN_SCHEMA, ScanView, VERIFY_SCHEMA, Verification};

/// The schema of [`Report`] as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn report_schema() -> String {
    schema::<Report>("report-1", crate::SCHEMA)
}

/// The schema of [`Reproduction`] as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn reproduction_schema() -> String {
    schema::<Reproduction>("reproduction-1", crate::REPRODUCTION_SCHEMA)
}

/// The schema of [`Scan`](crate::scan::Scan) as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn scan_schema() -> String {
    printed::<ScanView<'static>>("scan-1", SCAN_SCHEMA)
}

/// The schema of [`Verification`] as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn verify_schema() -> String {
    printed::<Verification>("verify-1", VERIFY_SCHEMA)
}

/// The schema of [`HowTo`] as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn how_schema() -> String {
    printed::<HowTo>("how-1", HOW_SCHEMA)
}

/// Of what is stored and read back: what may be left out is what reading does without.
fn schema<T: JsonSchema>(file: &str, title: &str) -> String {
    text::<T>(SchemaGenerator::default(), file, title)
}

/// Of what is only printed: what may be left out is what printing leaves out.
fn printed<T: JsonSchema>(file: &str, title: &str) -> String {
    text::<T>(SchemaSettings::default().for_serialize().into_generator(), file, title)
}

fn text<T: JsonSchema>(generator: SchemaGenerator, file: &str, title: &str) -> String {
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("https://samehost.invalid/schema/{file}.json").into());
    schema.insert("title".into(), title.into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
