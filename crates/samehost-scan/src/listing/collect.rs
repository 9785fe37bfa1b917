//! Takes a snapshot: the sockets of every network namespace, the processes that hold them, and their attributes. The
//! kernel lists its sockets while other threads walk through /proc.
//!
//! A first look misses two things: listeners on Unix sockets whose file has gone or is another server's by now, so that
//! the program runs and nobody reaches it, as after a server that took its path and then went; and connections whose
//! client no process holds, which came after the look at its process or were closed before it. Where it is gone, the
//! kernel still says in which control group it was made.

use samehost_system::threads;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::geteuid;
use samehost_model::scan::{
    Connection, Hidden, NetworkNamespace, Process, ReadBy, Scan, Service, Socket, Unseen,
};
use samehost_system::accounts::Names;
use samehost_system::{Asked, Identity, Refusal, interrupt, ownership, refusal};

use crate::diag::Diag;
use crate::listing::trust::described;
use crate::listing::{congestion, join, service};
use crate::proc::descriptors::{self, Descriptors, sockets_of, walk};
use crate::proc::{cgroup, net_table, pids, status};
use crate::{namespaces, proc, process};

/// Snapshot of this machine: sockets, processes, services, connections; without advice, exchanges and findings, which callers
/// add where they need them. `version` is that of the program, for the report.
///
/// What may not be read is counted in `hidden` and left out.
///
/// # Errors
/// When /proc is missing, when sockets can be listed neither by sock_diag nor from /proc, or when an interrupt is requested: an
/// incomplete snapshot would be misleading.
pub fn collect(version: &str) -> Result<Scan, ScanError> {
    let proc = descriptors::proc().map_err(no_processes)?;
    let own = namespaces::own_inode();
    let numbers = descriptors::pids(proc.as_fd()).map_err(no_processes)?;
    let (descriptors, own_sockets) = threads::both(|| walk(proc.as_fd(), &numbers), || own_sockets(own));
    let (read_by, refused, mut sockets) = own_sockets?;
    let mut spaces = vec![NetworkNamespace {
        inode: own,
        own: true,
        foreign: false,
        name: None,
        pid: None,
        read_by,
        refused,
        somaxconn: namespaces::somaxconn(),
    }];
    for door in namespaces::others(own, &descriptors.namespaces) {
        stop_if_interrupted()?;
        let (space, more) = door.read();
        spaces.push(space);
        sockets.extend(more);
    }
    stop_if_interrupted()?;
    for socket in &mut sockets {
        socket.pids = descriptors.holders_of(socket.inode).collect();
    }
    let connections = join::join(&mut sockets, &spaces);
    name_clients(&mut sockets, &connections);
    let hidden = hidden(&sockets, &descriptors, &spaces, &numbers);
    let processes = processes(&sockets);
    stop_if_interrupted()?;
    let mut scan = Scan {
        samehost_version: version.to_owned(),
        seen_as: refusal::seen_as(),
        network_namespaces: spaces,
        sockets,
        processes,
        services: Vec::new(),
        connections,
        advice: Vec::new(),
        priced_at: None,
        slow_congestion: Vec::new(),
        dropped: Vec::new(),
        exchanges: None,
        findings: Vec::new(),
        hidden,
    };
    service::find(&mut scan);
    scan.slow_congestion = congestion::slow(&scan);
    Ok(scan)
}

fn stop_if_interrupted() -> Result<(), ScanError> {
    if interrupt::is_requested() { Err(ScanError::Interrupted) } else { Ok(()) }
}

fn no_processes(errno: Errno) -> ScanError {
    ScanError::Refused(Refusal::of(Asked::Processes, errno))
}

/// The sockets of this namespace, how they were read, and why not from the kernel's listing.
fn own_sockets(namespace: u64) -> Result<(ReadBy, Option<String>, Vec<Socket>), ScanError> {
    match Diag::open().and_then(|mut diag| diag.sockets(namespace)) {
        Ok(sockets) => Ok((ReadBy::SockDiag, None, sockets)),
        Err(errno) => {
            let refusal = Refusal::of(Asked::SocketListing, errno);
            match net_table::read(std::process::id(), namespace) {
                Some(sockets) => Ok((ReadBy::Proc, Some(refusal.to_string()), sockets)),
                None => Err(ScanError::Refused(refusal)),
            }
        }
    }
}

/// `pids` are all processes that `/proc` shows.
fn hidden(
    sockets: &[Socket],
    descriptors: &Descriptors,
    spaces: &[NetworkNamespace],
    pids: &[u32],
) -> Hidden {
    // Inode 0: the process has closed the socket, and the kernel is still finishing the connection.
    let unheld = sockets.iter().filter(|socket| socket.pids.is_empty() && socket.inode != 0).count() as u32;
    let refused = spaces.iter().filter(|space| matches!(space.read_by, ReadBy::Refused(_)));
    let processes = descriptors.refused.len() as u32;
    let because = if unheld > 0 { Refusal::of_unseen(processes) } else { None };
    // An ordinary user who runs nothing is no surprise to himself. Whoever is root and sees nobody may take it for a quiet
    // machine. Where nothing of ours is missing and one process of a hundred hides all the same, as the first one of some
    // virtual machines does, the others that were looked at show that nobody else holds a socket.
    let own = proc::own_pid();
    let is_seen = |socket: &Socket| socket.pids.iter().any(|pid| Some(*pid) != own);
    let is_telling = |refusal: &Refusal| {
        !refusal.is_of_ordinary_user() && (refusal.has_reason() || others(pids) <= 2 * processes)
    };
    let saw_no_process = !sockets.iter().any(is_seen) && because.as_ref().is_some_and(is_telling);
    Hidden {
        processes,
        sockets: unheld,
        network_namespaces: refused.count() as u32,
        in_pid_namespace: namespaces::in_pid_namespace(),
        because: because
            .map(|refusal| Unseen { why: refusal.why(), try_next: refusal.try_next().to_owned() }),
        saw_no_process,
    }
}

/// How many processes there are besides those that started this program.
fn others(pids: &[u32]) -> u32 {
    let own = proc::own_ancestry();
    pids.iter().filter(|pid| !own.contains(pid)).count() as u32
}

fn processes(sockets: &[Socket]) -> Vec<Process> {
    let mut holders: BTreeSet<u32> = BTreeSet::new();
    for socket in sockets {
        holders.extend(&socket.pids);
    }
    let users = Names::of_users();
    let mut found = Vec::new();
    for pid in holders {
        if interrupt::is_requested() {
            break;
        }
        found.extend(process(pid, &users));
    }
    found
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// Neither processes nor sockets are shown.
    #[error("{0}")]
    Refused(Refusal),
    #[error("no process that holds a socket was seen, of {sockets} sockets: {}; {}", .because.why, .because.try_next)]
    SawNoProcess { sockets: usize, because: Unseen },
    #[error("stopped before everything was looked at")]
    Interrupted,
}

/// As [`collect`], for whoever concludes from what is not there: that nothing is to be done, or has changed.
///
/// # Errors
/// As [`collect`]; also where not one process was seen because something forbids to look.
pub fn collect_seeing(version: &str) -> Result<Scan, ScanError> {
    let scan = collect(version)?;
    saw_processes(&scan)?;
    Ok(scan)
}

/// # Errors
/// Where not one process of a scan was seen because something forbids to look.
pub fn saw_processes(scan: &Scan) -> Result<(), ScanError> {
    match &scan.hidden.because {
        Some(because) if scan.hidden.saw_no_process => {
            Err(ScanError::SawNoProcess { sockets: scan.sockets.len(), because: because.clone() })
        }
        _ => Ok(()),
    }
}

/// A service that runs while nobody reaches it over its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// As [`described`] says it: service, process, user and program.
    pub service: String,
    pub path: PathBuf,
    /// The systemd unit to restart; `None` where it runs in none.
    pub unit: Option<String>,
}

/// The services that listen on a Unix socket at a path that does not lead to it any more: the file was removed, or is another
/// server's by now. Looks at the files as they are now, in the root directory of each server.
#[must_use]
pub fn unreachable(scan: &Scan) -> Vec<Unreachable> {
    let mut found = Vec::new();
    for service in &scan.services {
        for socket in scan.listeners(service) {
            let Some(path) = lost_path(socket, service) else { continue };
            // Its process ended meanwhile, and took the socket with it.
            let Some(process) =
                scan.main_process(service).filter(|process| Identity::of(process.pid).is_some())
            else {
                continue;
            };
            let unit = process.unit.clone();
            found.push(Unreachable { service: described(scan, service), path, unit });
        }
    }
    found
}

/// The path of a listener whose file is not there, where its process would look for it.
fn lost_path(socket: &Socket, service: &Service) -> Option<PathBuf> {
    let (path, bound) = (socket.local.path()?, socket.file?);
    if !path.is_absolute() || !socket.kind.is_unix() || !socket.is_listening() {
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
fn name_clients(sockets: &mut [Socket], connections: &[Connection]) {
    let clients = connections.iter().map(|connection| connection.client);
    let mut unheld: Vec<usize> = clients.filter(|at| sockets[*at].pids.is_empty()).collect();
    if unheld.is_empty() {
        return;
    }
    look_again(sockets, &unheld);
    unheld.retain(|at| sockets[*at].pids.is_empty());
    let groups = unheld.iter().filter_map(|at| sockets[*at].control_group);
    let names = cgroup::names(groups.collect());
    for at in unheld {
        let socket = &mut sockets[at];
        if let Some(group) = socket.control_group {
            socket.made_in = names.get(&group).cloned();
        }
    }
}

/// Searches the processes of the sockets' makers. A socket that its process has closed has no inode, and its maker is not known.
/// Others than root may read the descriptors of their own processes only.
fn look_again(sockets: &mut [Socket], unheld: &[usize]) {
    let own = geteuid();
    let mut makers: BTreeSet<u32> = BTreeSet::new();
    let mut wanted: HashMap<u64, usize> = HashMap::new();
    for at in unheld {
        let socket = &sockets[*at];
        if socket.inode == 0 {
            continue;
        }
        wanted.insert(socket.inode, *at);
        if let Some(uid) = socket.uid
            && (own.is_root() || uid == own.as_raw())
        {
            makers.insert(uid);
        }
    }
    if makers.is_empty() {
        return;
    }
    for pid in pids() {
        if !has_few_descriptors(pid) {
            continue;
        }
        let Some(status) = status::read(pid) else { continue };
        if !makers.contains(&status.uid) {
            continue;
        }
        for inode in sockets_of(pid) {
            let Some(at) = wanted.get(&inode) else { continue };
            let holders = &mut sockets[*at].pids;
            // A process may have a socket under several descriptors.
            if holders.last() != Some(&pid) {
                holders.push(pid);
            }
        }
    }
}

/// Since Linux 6.2 the size of the directory is the number of descriptors. Before, it is 0, and every process is searched.
fn has_few_descriptors(pid: u32) -> bool {
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
        let scan = collect("test").unwrap();
        let paths: Vec<PathBuf> = unreachable(&scan).into_iter().map(|one| one.path).collect();
        assert!(paths.contains(&lost) && paths.contains(&taken) && !paths.contains(&kept), "{paths:?}");
        drop(listeners);
    }

    #[test]
    fn a_client_that_the_first_look_missed_is_found() {
        fn socket(inode: u64) -> Socket {
            Socket {
                uid: Some(geteuid().as_raw()),
                ..Socket::new(SocketKind::Tcp, SocketState::Established, inode, 1)
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut sockets = [socket(fstat(&client).unwrap().st_ino), socket(0), socket(0)];
        let connections =
            [0, 1].map(|client| Connection { kind: SocketKind::Tcp, client, server: 2, service: None });
        name_clients(&mut sockets, &connections);
        assert!(sockets[0].pids.contains(&std::process::id()), "{sockets:?}");
        assert!(sockets[1].pids.is_empty(), "closed");
    }
}
