//! Facts of the form `NAME endpoint=ENDPOINT`, which a case moves, and all others, which stay.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use samehost_edit::{Role, Setting};
use samehost_model::Protocol;

use crate::case::Case;

/// The lines that a program prints.
pub(crate) fn of(mut command: Command) -> BTreeSet<String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    let facts: BTreeSet<String> = out.lines().map(str::to_owned).collect();
    assert!(
        facts.iter().any(|fact| fact.contains(" endpoint=")),
        "{command:?} names no endpoint: {out}{err}"
    );
    facts
}

/// A fact after the case's moves.
pub(crate) fn moved(fact: &str, case: &Case) -> String {
    let Some((name, endpoint)) = fact.split_once(" endpoint=") else { return fact.to_owned() };
    let Ok(parsed) = endpoint.parse() else { return fact.to_owned() };
    let setting = Setting {
        name: name.to_owned(),
        role: Role::Connects,
        protocol: Protocol::Plain,
        endpoint: parsed,
        spelled: String::new(),
        file: Default::default(),
        line: 0,
        user: None,
        password: None,
        database: None,
        backlog: None,
    };
    let to = case.to(Path::new("{root}"), &setting);
    to.map_or_else(|| fact.to_owned(), |to| format!("{name} endpoint={to}"))
}
