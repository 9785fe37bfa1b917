//! The checked-in JSON Schema is the one that the types give. `SAMEHOST_BLESS=1` writes it.

#![cfg(feature = "schema")]

use std::fs;

#[test]
fn the_checked_in_schema_is_the_types_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/report-1.json");
    let derived = samehost_model::schema::report_schema();
    if std::env::var_os("SAMEHOST_BLESS").is_some() {
        fs::write(path, &derived).unwrap();
    }
    let stored = fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == derived,
        "the report's types changed; SAMEHOST_BLESS=1 cargo test -p samehost-model --features schema writes the new schema"
    );
}
