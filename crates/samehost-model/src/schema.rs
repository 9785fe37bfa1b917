//! JSON Schemas of printed and stored JSON, derived from the types, with their doc comments as descriptions. A test compares them
//! with the checked-in files. Optional are, in types that are read back, the fields that reading does not require; in the others,
//! those that printing may omit.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};

use crate::report::Report;
use crate::reproduction::Reproduction;
use crate::scan::{HOW_SCHEMA, HowTo, SCAN_SCHEMA, ScanView, VERIFY_SCHEMA, Verification};

/// All schemas by the names of their files, as pretty-printed JSON with a final newline.
#[must_use]
pub fn all() -> [(&'static str, String); 5] {
    [
        stored::<Report>("report-1", crate::SCHEMA),
        stored::<Reproduction>("reproduction-1", crate::REPRODUCTION_SCHEMA),
        printed::<ScanView<'static>>("scan-1", SCAN_SCHEMA),
        printed::<Verification>("verify-1", VERIFY_SCHEMA),
        printed::<HowTo>("how-1", HOW_SCHEMA),
    ]
}

/// Schema of [`Report`].
#[must_use]
pub fn report_schema() -> String {
    stored::<Report>("report-1", crate::SCHEMA).1
}

/// Schema of a stored type. Optional fields are those that reading does not require.
fn stored<T: JsonSchema>(file: &'static str, title: &str) -> (&'static str, String) {
    named::<T>(SchemaGenerator::default(), file, title)
}

/// Schema of a type that is only printed. Optional fields are those that printing may omit.
fn printed<T: JsonSchema>(file: &'static str, title: &str) -> (&'static str, String) {
    named::<T>(SchemaSettings::default().for_serialize().into_generator(), file, title)
}

fn named<T: JsonSchema>(
    generator: SchemaGenerator,
    file: &'static str,
    title: &str,
) -> (&'static str, String) {
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("https://samehost.invalid/schema/{file}.json").into());
    schema.insert("title".into(), title.into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    (file, text)
}
