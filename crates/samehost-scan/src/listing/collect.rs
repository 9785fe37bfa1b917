//! Takes a snapshot: the sockets of every network namespace, the processes that hold them, and their
//! attributes. The kernel lists its sockets while other threads walk through /proc.

use rustix::fd::AsFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use samehost_model::scan::{Hidden, NetworkNamespace, Process, ReadBy, Scan, Socket};
use samehost_system::interrupt;

use crate::diag::Diag;
use crate::listing::{congestion, join, service, unreachable};
use crate::proc::descriptors::{Descriptors, pids, walk};
use crate::proc::net_table;
use crate::proc::users::Names;
use crate::{namespaces, process};

/// Snapshot of this machine: sockets, processes, services, connections, without advice.
///
/// # Errors
/// When /proc is missing, or sockets can be listed neither by sock_diag nor from /proc.
pub fn collect(version: &str) -> Result<Scan, ScanError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, c"/proc", flags, Mode::empty()).map_err(ScanError::Proc)?;
    let own = namespaces::own_inode();
    let numbers = pids(proc.as_fd()).map_err(ScanError::Proc)?;
    let (own_sockets, descriptors) = std::thread::scope(|scope| {
        let walking = scope.spawn(|| walk(proc.as_fd(), &numbers));
        let sockets = own_sockets(own);
        (sockets, walking.join().unwrap_or_default())
    });
    let (read_by, mut sockets) = own_sockets?;
    let mut spaces = vec![NetworkNamespace {
        inode: own,
        own: true,
        foreign: false,
        name: None,
        pid: None,
        read_by,
        somaxconn: namespaces::somaxconn(),
    }];
    for door in namespaces::others(own, &descriptors.namespaces) {
        stop_here()?;
        let (space, more) = door.read();
        spaces.push(space);
        sockets.extend(more);
    }
    stop_here()?;
    hold(&mut sockets, &descriptors);
    let connections = join::join(&mut sockets, &spaces);
    unreachable::name_clients(&mut sockets, &connections);
    let hidden = hidden(&sockets, &descriptors, &spaces);
    let processes = processes(&sockets);
    stop_here()?;
    let mut scan = Scan {
        samehost_version: version.to_owned(),
        as_root: rustix::process::geteuid().is_root(),
        network_namespaces: spaces,
        sockets,
        processes,
        services: Vec::new(),
        connections,
        advice: Vec::new(),
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

/// Aborts an interrupted snapshot, as an incomplete one would be misleading.
fn stop_here() -> Result<(), ScanError> {
    if interrupt::is_requested() { Err(ScanError::Interrupted) } else { Ok(()) }
}

fn own_sockets(namespace: u64) -> Result<(ReadBy, Vec<Socket>), ScanError> {
    match Diag::open().and_then(|mut diag| diag.sockets(namespace)) {
        Ok(sockets) => Ok((ReadBy::SockDiag, sockets)),
        Err(errno) => match net_table::read(std::process::id(), namespace) {
            Some(sockets) => Ok((ReadBy::Proc, sockets)),
            None => Err(ScanError::Kernel(errno)),
        },
    }
}

/// Records the processes that hold each socket.
fn hold(sockets: &mut [Socket], descriptors: &Descriptors) {
    for socket in sockets.iter_mut() {
        socket.pids = descriptors.holders_of(socket.inode).collect();
    }
}

/// Counts what stays hidden.
fn hidden(sockets: &[Socket], descriptors: &Descriptors, spaces: &[NetworkNamespace]) -> Hidden {
    // Inode 0: the process has closed the socket, and the kernel is still finishing the connection.
    let unheld = sockets.iter().filter(|socket| socket.pids.is_empty() && socket.inode != 0).count() as u32;
    let refused = spaces.iter().filter(|space| matches!(space.read_by, ReadBy::Refused(_)));
    Hidden {
        processes: descriptors.refused,
        sockets: unheld,
        network_namespaces: refused.count() as u32,
        in_pid_namespace: namespaces::in_pid_namespace(),
    }
}

fn processes(sockets: &[Socket]) -> Vec<Process> {
    let mut holders: Vec<u32> = sockets.iter().flat_map(|socket| socket.pids.iter().copied()).collect();
    holders.sort_unstable();
    holders.dedup();
    let users = Names::of_users();
    let going_on = holders.into_iter().take_while(|_| !interrupt::is_requested());
    going_on.filter_map(|pid| process(pid, &users)).collect()
}

impl From<Errno> for ScanError {
    fn from(errno: Errno) -> Self {
        ScanError::Kernel(errno)
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    #[error("/proc cannot be read ({0}); mount it: mount -t proc proc /proc")]
    Proc(#[source] Errno),
    /// Neither sock_diag nor /proc/self/net lists sockets.
    #[error(
        "the kernel does not list its sockets ({0}), and /proc/self/net does not show them; load the modules tcp_diag and unix_diag"
    )]
    Kernel(#[source] Errno),
    /// Interrupted by a signal.
    #[error("stopped before everything was looked at")]
    Interrupted,
}
