//! The checked-in JSON Schemas are those that the types give. `SAMEHOST_BLESS=1` writes them.

#![cfg(feature = "schema")]

use std::fs;

#[test]
fn the_checked_in_schemas_are_the_types_own() {
    for (name, derived) in samehost_model::schema::all() {
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
