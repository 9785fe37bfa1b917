//! Blocker `file-system`: the directory of the socket that a service would make is on a file system that carries no
//! sockets, or not to all who have its files.

use std::path::Path;

use samehost_model::scan::Weight;
use samehost_services::UnixSocket;
use samehost_system::mounts::share;

use super::Finding;
use super::pair::Pair;
use super::walk::Root;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    // Of a socket that is there, `findings` tells who cannot use it.
    if pair.listener.is_some() {
        return None;
    }
    let known = pair.known.filter(|known| matches!(known.unix(), UnixSocket::Setting(_)))?;
    let folder = Path::new(&known.socket).parent()?;
    let share = share(device(&pair.server_root()?, folder)?, pair.service.pid)?;
    Some(Finding::new(
        Weight::Setting,
        share.refusal(folder),
        "Put the socket into a directory of this machine's own, such as one below /run".to_owned(),
    ))
}

/// Device of a directory, or of the first above it that is there.
fn device(root: &Root, directory: &Path) -> Option<u64> {
    directory.ancestors().find_map(|path| root.find(path)).map(|step| step.identity().0)
}
