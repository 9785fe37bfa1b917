//! Blocker `stale`: a socket file without a listener, or a listener whose socket file was removed.

use std::path::Path;

use rustix::fs::FileType;
use samehost_model::scan::Weight;

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let root = pair.server_root()?;
    let Some(listener) = pair.listener else {
        // The service has no socket. A leftover file at the default path would keep it from binding one.
        let path = Path::new(pair.known.map(|known| known.socket.as_str()).filter(|path| !path.is_empty())?);
        let found = root.find(path).filter(|step| step.file_type() == FileType::Socket)?;
        for socket in pair.scan.sockets.iter().filter(|socket| socket.is_listening()) {
            let Some(file) = socket.file else { continue };
            // Some file systems (such as btrfs) report another device to stat(2) than inside the kernel.
            let is_same_place = file.device == found.stat.st_dev || socket.local.path() == Some(path);
            if file.has_inode(found.stat.st_ino) && is_same_place {
                return None;
            }
        }
        return Some(Finding::new(
            Weight::Note,
            format!(
                "{} exists, but nothing listens on it: it was left over by a server that died",
                show(path)
            ),
            "Start the service with its socket; remove the file only after a connection to it was refused"
                .to_owned(),
        ));
    };
    let path = pair.path()?;
    let now = root.find(&path);
    listener.file?;
    match now {
        None => Some(Finding::new(
            Weight::Setting,
            format!(
                "{} listens on {}, but the file was removed: nobody can connect",
                pair.service.name,
                show(&path)
            ),
            "Restart the service, and find out what removes the file (tmpfiles.d, a second instance)"
                .to_owned(),
        )),
        Some(_) => None,
    }
}
