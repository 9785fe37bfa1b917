//! What a first look misses: listeners on Unix sockets whose file has gone or is another server's by now, so that the program runs and
//! nobody reaches it, as after a server that took its path and then went; and connections whose client no process holds, which came after
//! the look at its process or were closed before it. Where it is gone, the kernel still says in which control group it was made.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::geteuid;
use samehost_model::scan::{Connection, Scan, Service, Socket};
use samehost_system::ownership;

use crate::listing::trust::described;
use crate::proc::descriptors::sockets_of;
use crate::proc::{cgroup, pids, status};

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
    match fs::symlink_metadata(root.join(path.strip_prefix("/").ok()?)) {
        Ok(file) if bound.has_inode(file.ino()) => None,
        Ok(_) => Some(path.to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(path.to_owned()),
        // What may not be looked at is not known to have gone.
        Err(_) => None,
    }
}

/// Most descriptors of a process that is searched again. Clients that come and go have few; a server with thousands takes as
/// long as the first look at all others.
const FEW: u64 = 256;

/// Fills in the holders of clients that the first look missed, else the unit or container that made them.
pub(crate) fn name_clients(sockets: &mut [Socket], connections: &[Connection]) {
    let is_unheld = |sockets: &[Socket], at: &usize| sockets.get(*at).is_some_and(|one| one.pids.is_empty());
    let clients = connections.iter().map(|connection| connection.client);
    let mut unheld: Vec<usize> = clients.filter(|at| is_unheld(sockets, at)).collect();
    if unheld.is_empty() {
        return;
    }
    look_again(sockets, &unheld);
    unheld.retain(|at| is_unheld(sockets, at));
    let group = |at: &usize| sockets.get(*at)?.control_group;
    let names = cgroup::names(unheld.iter().filter_map(group).collect());
    for at in unheld {
        if let Some(socket) = sockets.get_mut(at) {
            socket.made_in = socket.control_group.and_then(|group| names.get(&group).cloned());
        }
    }
}

/// Searches the processes of the sockets' makers.
fn look_again(sockets: &mut [Socket], unheld: &[usize]) {
    let own = geteuid();
    // Others than root may read the descriptors of their own processes only.
    // A socket that its process has closed has no inode, and its maker is not known.
    let open: Vec<usize> =
        unheld.iter().copied().filter(|at| sockets.get(*at).is_some_and(|one| one.inode != 0)).collect();
    let makers: BTreeSet<u32> = open
        .iter()
        .filter_map(|at| sockets.get(*at)?.uid)
        .filter(|uid| own.is_root() || *uid == own.as_raw())
        .collect();
    if makers.is_empty() {
        return;
    }
    let inode = |at: usize| Some((sockets.get(at)?.inode, at));
    let mut wanted: Vec<(u64, usize)> = open.into_iter().filter_map(inode).collect();
    wanted.sort_unstable();
    for pid in pids() {
        if !has_few(pid) || !status::read(pid).is_some_and(|status| makers.contains(&status.uid)) {
            continue;
        }
        for inode in sockets_of(pid) {
            let Ok(found) = wanted.binary_search_by_key(&inode, |(inode, _)| *inode) else { continue };
            let holders = wanted.get(found).and_then(|(_, at)| sockets.get_mut(*at)).map(|one| &mut one.pids);
            if let Some(holders) = holders.filter(|holders| holders.last() != Some(&pid)) {
                holders.push(pid);
            }
        }
    }
}

/// Whether a process has few descriptors: since Linux 6.2 the directory's size is their number; before, it is 0.
fn has_few(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}/fd")).is_ok_and(|folder| folder.len() <= FEW)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use rustix::fs::fstat;
    use samehost_model::scan::{SocketKind, SocketState};

    use super::*;

    #[test]
    fn a_listener_without_its_file_is_named_and_one_with_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [kept, lost, taken] = ["kept", "lost", "taken"].map(|name| directory.path().join(name));
        let listeners = [&kept, &lost, &taken].map(|path| UnixListener::bind(path).unwrap());
        fs::remove_file(&lost).unwrap();
        fs::remove_file(&taken).unwrap();
        let _another = UnixListener::bind(&taken).unwrap();
        let scan = crate::collect("test").unwrap();
        let paths: Vec<PathBuf> = unreachable(&scan).into_iter().map(|one| one.path).collect();
        assert!(paths.contains(&lost) && paths.contains(&taken) && !paths.contains(&kept), "{paths:?}");
        drop(listeners);
    }

    #[test]
    fn a_client_that_the_first_look_missed_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = |inode| Socket {
            uid: Some(geteuid().as_raw()),
            ..Socket::new(SocketKind::Tcp, SocketState::Established, inode, 1)
        };
        let mut sockets = [socket(fstat(&client).unwrap().st_ino), socket(0), socket(0)];
        let connections =
            [0, 1].map(|client| Connection { kind: SocketKind::Tcp, client, server: 2, service: None });
        name_clients(&mut sockets, &connections);
        assert!(sockets[0].pids.contains(&std::process::id()), "{sockets:?}");
        assert!(sockets[1].pids.is_empty(), "closed");
    }
}
