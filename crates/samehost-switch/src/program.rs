//! Programs that check configurations, where they are found: the directories of the system, not those of whoever runs this.
//! Starts none.

use std::path::PathBuf;

use samehost_system::command::PATH;

/// The first program whose name is accepted; of several in a directory, the last by name (the highest version).
pub(crate) fn find(accepts: impl Fn(&str) -> bool) -> Option<String> {
    PATH.split(':').find_map(|directory| {
        let entries = std::fs::read_dir(directory).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let name = names.filter(|name| accepts(name)).max()?;
        PathBuf::from(directory).join(name).into_os_string().into_string().ok()
    })
}
