//! The proof of the `apache` editor: a real Apache is sent the requests of the case, and servers at every address that the
//! configuration names say which of them was reached, and with what.

use std::collections::BTreeSet;
use std::path::Path;

use samehost_edit::Setting;
use samehost_model::{Endpoint, Protocol};

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 98;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let script =
        concat!("exec python3 ", env!("CARGO_MANIFEST_DIR"), "/tests/corpus/apache/ask.py \"$1\" \"$2\"");
    sandbox::facts(&sandbox::run(script, file, root))
}

/// Where a request arrives, after the case's moves. A name was looked up before a server could be reached.
fn expected(fact: &str, case: &Case) -> String {
    for line in case.words("fact") {
        let (before, after) = line.split_once(" => ").expect("fact: BEFORE => AFTER");
        if fact.contains(before) {
            return fact.replace(before, after);
        }
    }
    let Some((who, reached)) = fact.split_once(" endpoint=") else { return fact.to_owned() };
    let endpoint: Endpoint = reached.parse().unwrap();
    let moved = |endpoint: Endpoint| {
        case.to(Path::new("{root}"), &Setting::connects("", Protocol::Plain, "", endpoint))
    };
    let by_name = match &endpoint {
        Endpoint::Tcp { port, .. } => Some(Endpoint::Tcp { host: "localhost".into(), port: *port }),
        _ => None,
    };
    let found = moved(endpoint).or_else(|| by_name.and_then(moved));
    let stays = case.words("unmoved").any(|request| request == who);
    found.filter(|_| !stays).map_or_else(|| fact.to_owned(), |to| format!("{who} endpoint={to}"))
}

#[test]
fn corpus() {
    crate::run("apache", LEAST_CASES, ask, expected);
}
