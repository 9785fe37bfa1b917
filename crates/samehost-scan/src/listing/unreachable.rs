//! Listeners on Unix sockets whose file has gone, or is another server's by now: the program runs, and nobody reaches it.
//! So it is left behind by a server that took its path, and then went.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use samehost_model::scan::{Scan, Service, Socket};
use samehost_system::ownership;

use crate::listing::trust::described;

/// A service that nobody reaches over its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Service, process, user and program.
    pub service: String,
    /// The path at which it listens.
    pub path: PathBuf,
    /// The unit that runs it.
    pub unit: Option<String>,
}

/// The services that listen on a Unix socket at a path that does not lead to it any more.
#[must_use]
pub fn unreachable(scan: &Scan) -> Vec<Unreachable> {
    let mut found = Vec::new();
    for service in &scan.services {
        for socket in service.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
            let Some(path) = lost_path(socket, service) else { continue };
            let process = service.pid.and_then(|pid| scan.process(pid));
            found.push(Unreachable {
                service: described(scan, service),
                path,
                unit: process.and_then(|process| process.unit.clone()),
            });
        }
    }
    found
}

/// The path of a listener whose file is not there, where its process would look for it.
fn lost_path(socket: &Socket, service: &Service) -> Option<PathBuf> {
    let (path, bound) = (socket.local.path().filter(|path| path.is_absolute())?, socket.file?);
    if !socket.kind.is_unix() || !socket.is_listening() {
        return None;
    }
    let root = ownership::root_of(Some(service.pid?));
    match std::fs::symlink_metadata(root.join(path.strip_prefix("/").ok()?)) {
        Ok(file) if bound.has_inode(file.ino()) => None,
        Ok(_) => Some(path.to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(path.to_owned()),
        // What may not be looked at is not known to have gone.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_without_its_file_is_named_and_one_with_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [kept, lost, taken] = ["kept", "lost", "taken"].map(|name| directory.path().join(name));
        let listeners = [&kept, &lost, &taken].map(|path| UnixListener::bind(path).unwrap());
        std::fs::remove_file(&lost).unwrap();
        std::fs::remove_file(&taken).unwrap();
        let _another = UnixListener::bind(&taken).unwrap();
        let scan = crate::collect("test").unwrap();
        let paths: Vec<PathBuf> = unreachable(&scan).into_iter().map(|one| one.path).collect();
        assert!(paths.contains(&lost) && paths.contains(&taken) && !paths.contains(&kept), "{paths:?}");
        drop(listeners);
    }
}
