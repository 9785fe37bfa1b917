//! Server side of `how`: the file, its lines, and how to check that they took effect.

use std::path::Path;

use samehost_services::{Kind, Protocol};
use samehost_system::namespaces::network_setting;

/// Instructions, one step each.
pub(super) fn steps(kind: Kind, setting: &str, path: &str) -> Vec<String> {
    let known = kind.descriptor();
    let files = known.edited_files();
    let file = files.iter().find(|file| Path::new(file).exists());
    let place = match (file, files.first()) {
        (Some(file), _) => format!("in {file} (found here)"),
        (None, Some(usual)) => format!("in {usual} or where this system has it"),
        (None, None) => "in its settings or on its command line".to_owned(),
    };
    let folder = path.rsplit_once('/').map_or("/run", |(folder, _)| folder);
    let mut steps = vec![format!("{place}: {}", setting.replace("{}", path))];
    if !Path::new(folder).is_dir() {
        steps.push(format!(
            "make the folder {folder} with the service: RuntimeDirectory={} in its unit; never below /tmp",
            folder.rsplit('/').next().unwrap_or("app")
        ));
    }
    let limit = |name: &str| network_setting(name).unwrap_or_default();
    steps.push(if known.protocol.is_some_and(Protocol::is_datagram) {
        format!(
            "let its queue hold a burst: net.unix.max_dgram_qlen is {} here, and counts when the service starts; a full queue holds a sender up, or refuses one that does not wait",
            limit("unix/max_dgram_qlen")
        )
    } else {
        format!(
            "give it a backlog for a burst (net.core.somaxconn is {} here, and caps it): a full one refuses at once on a Unix socket",
            limit("core/somaxconn")
        )
    });
    steps.extend(known.about_socket.iter().cloned());
    let port = if known.one_address {
        "it listens on one address: for tools that want the port, run another one beside it"
    } else {
        "keep the port as well, for tools that want it"
    };
    steps.push(format!("{port}; restart, then see what changed: samehost scan"));
    steps
}
