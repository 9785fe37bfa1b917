//! JSON Schemas of printed and stored JSON, derived from the types, with their doc comments as descriptions. A test compares them
//! with the checked-in files. Optional are, in types that are read back, the fields that reading does not require; in the others,
//! those that printing may omit.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};

use crate::report::Report;
use crate::reproduction::Reproduction;
use crate::scan::{
    HOW_SCHEMA, HowTo, INVENTORY_SCHEMA, Inventory, SCAN_CHANGES_SCHEMA, SCAN_SCHEMA, ScanChanges, ScanView,
    VERIFY_SCHEMA, Verification,
};

/// Schema of [`Report`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn report_schema() -> String {
    schema::<Report>("report-1", crate::SCHEMA)
}

/// Schema of [`Reproduction`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn reproduction_schema() -> String {
    schema::<Reproduction>("reproduction-1", crate::REPRODUCTION_SCHEMA)
}

/// Schema of [`Scan`](crate::scan::Scan) as pretty-printed JSON with a final newline.
#[must_use]
pub fn scan_schema() -> String {
    printed::<ScanView<'static>>("scan-1", SCAN_SCHEMA)
}

/// Schema of [`Inventory`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn inventory_schema() -> String {
    schema::<Inventory>("inventory-1", INVENTORY_SCHEMA)
}

/// Schema of [`ScanChanges`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn scan_changes_schema() -> String {
    printed::<ScanChanges>("scan-changes-1", SCAN_CHANGES_SCHEMA)
}

/// Schema of [`Verification`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn verify_schema() -> String {
    printed::<Verification>("verify-1", VERIFY_SCHEMA)
}

/// Schema of [`HowTo`] as pretty-printed JSON with a final newline.
#[must_use]
pub fn how_schema() -> String {
    printed::<HowTo>("how-1", HOW_SCHEMA)
}

/// Schema of a stored type. Optional fields are those that reading does not require.
fn schema<T: JsonSchema>(file: &str, title: &str) -> String {
    text::<T>(SchemaGenerator::default(), file, title)
}

/// Schema of a type that is only printed. Optional fields are those that printing may omit.
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
