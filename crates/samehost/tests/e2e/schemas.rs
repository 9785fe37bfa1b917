//! What `scan`, `verify` and `how` print keeps to the schemas that are checked in.

use serde_json::Value;

use crate::support::Home;

/// The checked-in schemas, by the name that a document gives itself.
const SCHEMAS: &[(&str, &str)] = &[
    ("samehost.scan/1", include_str!("../../../samehost-model/schema/scan-1.json")),
    ("samehost.verify/1", include_str!("../../../samehost-model/schema/verify-1.json")),
    ("samehost.how/1", include_str!("../../../samehost-model/schema/how-1.json")),
];

/// Fails unless a document keeps to the schema that it names.
pub(crate) fn assert_valid(document: &Value) {
    let name = document["schema"].as_str().expect("a document names its schema");
    let (_, schema) = SCHEMAS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(faults.is_empty(), "{name}: {faults:#?}");
    // Schemas let pass what they do not know; what is printed must be known.
    let mut unknown = Vec::new();
    undescribed(document, &schema, &schema, name, &mut unknown);
    assert!(unknown.is_empty(), "{name} does not describe {unknown:?}");
}

/// Fields that a schema has no word for.
fn undescribed(value: &Value, schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(path) => root.pointer(path.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    for choice in ["anyOf", "oneOf", "allOf"] {
        let choices = schema[choice].as_array().into_iter().flatten();
        let mut best: Option<Vec<String>> = None;
        for one in choices {
            let mut missing = Vec::new();
            undescribed(value, one, root, at, &mut missing);
            if best.as_ref().is_none_or(|best| missing.len() < best.len()) {
                best = Some(missing);
            }
        }
        if let Some(best) = best {
            found.extend(best);
            return;
        }
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match schema["properties"].get(name) {
                    Some(known) => undescribed(field, known, root, &format!("{at}.{name}"), found),
                    None => found.push(format!("{at}.{name}")),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                undescribed(item, &schema["items"], root, at, found);
            }
        }
        _ => {}
    }
}

#[test]
fn scan_verify_and_how_print_what_their_schemas_say() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let _client = std::net::TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    let pid = std::process::id().to_string();
    for arguments in [
        &["scan", "--json"][..],
        &["verify", &server.unix, "--json"],
        &["verify", &server.tcp, "--json", "--expect", "tcp"],
        &["verify", &pid, "--json"],
        &["how", "redis", "--json"],
        &["how", "--url", "mysql://u@localhost/db", "--client", "php", "--json"],
    ] {
        let ended = home.run(arguments);
        assert_eq!(ended.status, 0, "{arguments:?}: {}", ended.stderr);
        assert_valid(&serde_json::from_str(&ended.stdout).unwrap());
    }
}

#[test]
fn a_field_that_no_schema_knows_is_found() {
    let home = Home::new();
    let mut found: Value = serde_json::from_str(&home.run(&["scan", "--json"]).stdout).unwrap();
    found["hidden"]["surprise"] = Value::from(1);
    assert!(std::panic::catch_unwind(|| assert_valid(&found)).is_err());
}
