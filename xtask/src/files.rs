//! Walks through folders of the repository.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Visits the files with an ending, in folders that cargo does not write.
pub(crate) fn walk(
    folder: &Path,
    ending: &str,
    visit: &mut dyn FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                walk(&path, ending, visit)?;
            }
        } else if path.extension().is_some_and(|extension| extension == ending) {
            visit(&path)?;
        }
    }
    Ok(())
}

/// Names of the files in a folder, sorted.
pub(crate) fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
