//! Facts of the form `NAME endpoint=ENDPOINT`, which a case moves, and all others, which stay.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use samehost_edit::Setting;
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

/// The lines that a PHP script prints of a file, in surroundings of its own; a script may fail.
pub(crate) fn of_php(script: &str, arguments: &[&Path]) -> BTreeSet<String> {
    let mut php = Command::new("php");
    php.args(["-n", "-d", "max_execution_time=2", "-d", "display_errors=0", "-r", script, "--"]);
    php.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = php.output().expect("php (package php-cli)");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// A fact after the case's moves.
pub(crate) fn moved(fact: &str, case: &Case) -> String {
    moved_as(fact, " endpoint=", Path::new("{root}"), |_| Protocol::Plain, case)
}

/// A fact `NAME means ENDPOINT` of MySQL after the case's moves.
pub(crate) fn moved_mysql(fact: &str, case: &Case) -> String {
    moved_meaning(fact, |_| Protocol::Mysql, case)
}

/// A fact `NAME means ENDPOINT` after the case's moves.
pub(crate) fn moved_meaning(fact: &str, protocol: impl Fn(&str) -> Protocol, case: &Case) -> String {
    moved_as(fact, " means ", Path::new("/"), protocol, case)
}

fn moved_as(fact: &str, verb: &str, root: &Path, protocol: impl Fn(&str) -> Protocol, case: &Case) -> String {
    let moved = fact.split_once(verb).and_then(|(name, endpoint)| {
        let setting = Setting::connects(name, protocol(name), "", endpoint.parse().ok()?);
        Some(format!("{name}{verb}{}", case.to(root, &setting)?))
    });
    moved.unwrap_or_else(|| fact.to_owned())
}
