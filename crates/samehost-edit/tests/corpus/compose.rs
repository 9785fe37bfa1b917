//! Compose files, proved by Docker Compose's own loader (the one of Debian's docker-compose, which needs no daemon): what
//! each service would be, and whether client and server share the directory of the socket.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn compose() {
    crate::run("compose", 20, ask, crate::facts::moved);
}

fn ask(file: &Path, _: &Path) -> BTreeSet<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/compose/ask.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(file).env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
    crate::facts::of(command)
}
