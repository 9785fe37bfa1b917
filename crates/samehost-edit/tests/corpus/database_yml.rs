//! database.yml, proved by Ruby: its YAML and ERB, and ActiveRecord's own reading of the document.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn database_yml() {
    crate::run("database-yml", 30, ask, crate::facts::moved);
}

fn ask(file: &Path, _: &Path) -> BTreeSet<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/database_yml/ask.rb");
    let mut command = Command::new("ruby");
    command.arg(script).arg(file).env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
    crate::facts::of(command)
}
