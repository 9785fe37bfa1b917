//! Quadlet files: nothing is edited, so no program is asked. Each case is what is said of a file, or that nothing is.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn quadlet() {
    crate::run("quadlet", 7, ask, crate::facts::moved);
}

fn ask(file: &Path, _: &Path) -> BTreeSet<String> {
    panic!("{} is not to be edited", file.display())
}
