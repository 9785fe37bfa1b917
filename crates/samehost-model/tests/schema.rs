//! The checked-in JSON Schemas are those that the types give. `SAMEHOST_BLESS=1` writes them.

#![cfg(feature = "schema")]

use std::fs;

#[test]
fn the_checked_in_schemas_are_the_types_own() {
    for (name, derived) in [
        ("report-1", samehost_model::schema::report_schema()),
        ("reproduction-1", samehost_model::schema::reproduction_schema()),
        ("scan-1", samehost_model::schema::scan_schema()),
        ("inventory-1", samehost_model::schema::inventory_schema()),
        ("scan-changes-1", samehost_model::schema::scan_changes_schema()),
        ("verify-1", samehost_model::schema::verify_schema()),
        ("how-1", samehost_model::schema::how_schema()),
    ] {
        let path = format!("{}/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("SAMEHOST_BLESS").is_some() {
            fs::write(&path, &derived).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == derived,
            "the types of {name} changed; SAMEHOST_BLESS=1 cargo test -p samehost-model --features schema writes the new schema"
        );
    }
}
