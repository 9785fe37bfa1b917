//! settings.py, proved by Django: it imports the settings, its backends say what the database's library would get, and
//! redis-py, pymemcache and kombu what they make of caches and brokers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn django() {
    crate::run("django", 30, ask, crate::facts::moved);
}

fn ask(file: &Path, _: &Path) -> BTreeSet<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/django/ask.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(file).env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
    crate::facts::of(command)
}
