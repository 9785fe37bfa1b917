//! Programs that check configurations, where they are found: PATH, and the directories of servers. Starts none.

use std::path::PathBuf;

/// The directories of servers, which are in root's PATH only.
const SERVERS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The first program whose name is accepted; of several in a directory, the last by name (the highest version).
pub(crate) fn find(accepts: impl Fn(&str) -> bool) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":" + SERVERS;
    path.split(':').filter(|directory| directory.starts_with('/')).find_map(|directory| {
        let entries = std::fs::read_dir(directory).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let name = names.filter(|name| accepts(name)).max()?;
        PathBuf::from(directory).join(name).into_os_string().into_string().ok()
    })
}
