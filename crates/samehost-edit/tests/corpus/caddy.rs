//! The proof of the `caddy` editor: a real Caddy makes its own configuration of the file, with all that it imports, and
//! checks it. Each value in that is a fact; only the addresses that are dialled may move.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::case::Case;
use crate::{facts, sandbox};

const LEAST_CASES: usize = 87;

/// Nothing of the user's own may count, and Caddy writes its own keys where it may.
const SCRIPT: &str = r#"
export HOME=/run/ask XDG_DATA_HOME=/run/ask XDG_CONFIG_HOME=/run/ask
mkdir /run/ask
caddy adapt --config "$1" --adapter caddyfile --validate 2>/run/ask/said || { cat /run/ask/said; exit 1; }
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let text = sandbox::run(SCRIPT, file, root);
    let text = text.lines().find(|line| line.starts_with('{')).expect("the configuration");
    let mut found = BTreeSet::new();
    flat("", &serde_json::from_str(text).expect("JSON"), &mut found);
    found
}

/// Each value with its path. Addresses are as `dial` has them.
fn flat(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if fields.get("handler").is_some_and(|handler| handler == "reverse_proxy") {
                found.extend(host_of_check(path, fields));
            }
            fields.iter().for_each(|(key, value)| flat(&format!("{path}/{key}"), value, found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| flat(&format!("{path}/{index}"), value, found));
        }
        Value::String(text) if path.ends_with("/dial") => {
            found.insert(format!("{path} endpoint={}", endpoint(text)));
        }
        other => {
            found.insert(format!("{path} = {other}"));
        }
    }
}

/// For which host a health check without one of its own asks (`doActiveHealthCheckForAllHosts` in healthchecks.go), at the
/// place where its own would be.
fn host_of_check(path: &str, handler: &serde_json::Map<String, Value>) -> Option<String> {
    let check = handler.get("health_checks")?.get("active")?;
    let is_named = check.get("headers").is_some_and(|headers| headers.get("Host").is_some());
    let dial = handler.get("upstreams")?.get(0)?.get("dial")?.as_str()?;
    let host = if dial.starts_with("unix/") { "localhost" } else { dial };
    (!is_named).then(|| format!("{path}/health_checks/active/headers/Host/0 = \"{host}\""))
}

fn endpoint(dial: &str) -> String {
    if let Some(path) = dial.strip_prefix("unix/") {
        return format!("unix:{path}");
    }
    let address = dial.strip_prefix("tcp/").unwrap_or(dial);
    // Go's own meaning of an address without a host.
    if address.starts_with(':') { format!("tcp:localhost{address}") } else { format!("tcp:{address}") }
}

/// A fact after the case's moves; with `only: PATH`, the fact of this path moves.
fn moved(fact: &str, case: &Case) -> String {
    let Some(only) = case.word("only") else { return facts::moved(fact, case) };
    match fact.split_once(" endpoint=") {
        Some((path, _)) if path.ends_with(only) => {
            format!("{path} endpoint={}", case.word("to").expect("to:"))
        }
        _ => fact.to_owned(),
    }
}

#[test]
fn corpus() {
    crate::run("caddy", LEAST_CASES, ask, moved);
}
