//! The JSON Schemas of the report and of the reproduction, derived from their types.

use schemars::{JsonSchema, SchemaGenerator};

use crate::{Report, Reproduction};

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

fn schema<T: JsonSchema>(file: &str, title: &str) -> String {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("https://samehost.invalid/schema/{file}.json").into());
    schema.insert("title".into(), title.into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
