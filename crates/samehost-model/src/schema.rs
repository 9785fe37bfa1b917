//! The JSON Schema of the report, derived from its types.

use crate::Report;

/// The schema of [`Report`] as pretty-printed JSON, ending in a newline.
///
/// # Panics
/// Never in practice: a schema is plain JSON.
#[must_use]
pub fn report_schema() -> String {
    let mut schema = schemars::schema_for!(Report);
    schema.insert("$id".into(), "https://samehost.invalid/schema/report-1.json".into());
    schema.insert("title".into(), crate::SCHEMA.into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
