//! Network namespaces of this machine and their sockets. A new thread enters a namespace and ends there; the
//! calling thread never moves.

use crate::threads;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use samehost_model::scan::{NetworkNamespace, ReadBy, Scan, Socket};

use crate::diag::Diag;
use crate::identity::is_of_the_system;
use crate::proc::{namespace, net_table};
use crate::refusal::{Asked, FIRST_PID_NAMESPACE, Refusal};

/// Directories where namespaces without a process are bound by name.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// Most processes of a namespace that are checked for who made it.
const MOST_ASKED: usize = 32;

/// A network namespace, and the file by which it may be entered.
#[derive(Clone, Debug)]
pub struct Door {
    pub inode: u64,
    name: Option<String>,
    pid: Option<u32>,
    /// Whether an ordinary user made it, since only his processes are in it.
    foreign: bool,
    path: PathBuf,
}

/// Inode of the calling thread's network namespace; 0 if /proc does not show it.
pub fn own_inode() -> u64 {
    namespace("thread-self", "net").unwrap_or(0)
}

/// The network namespace that a scan calls its own, if the calling thread is still in it.
pub fn own_of(scan: &Scan) -> Option<u64> {
    let own = scan.network_namespaces.iter().find(|space| space.own)?.inode;
    (own == own_inode()).then_some(own)
}

/// Whether there are processes outside of this program's PID namespace, which /proc does not show.
pub fn in_pid_namespace() -> bool {
    namespace("self", "pid").is_some_and(|own| own != FIRST_PID_NAMESPACE)
}

/// Network namespaces other than our own, by process and by name, each once. Whoever made one is judged by its processes: by
/// at most `MOST_ASKED` of them, since each takes a look at its user namespace. One with a name is the system's, because
/// only root can bind it there.
pub fn others(own: u64, by_process: &[(u64, u32)]) -> Vec<Door> {
    let mut doors: BTreeMap<u64, Door> = BTreeMap::new();
    for (inode, pid) in by_process {
        doors.entry(*inode).or_insert_with(|| Door {
            inode: *inode,
            name: None,
            pid: Some(*pid),
            foreign: true,
            path: PathBuf::from(format!("/proc/{pid}/ns/net")),
        });
    }
    for door in doors.values_mut().filter(|door| door.inode != own) {
        let inside = by_process.iter().filter(|(inode, _)| *inode == door.inode).take(MOST_ASKED);
        door.foreign = !inside.map(|(_, pid)| *pid).any(is_of_the_system);
    }
    for entry in NAMED.iter().flat_map(fs::read_dir).flatten().flatten() {
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        let name = Some(entry.file_name().to_string_lossy().into_owned());
        if !is_namespace(&metadata) {
            continue;
        }
        let inode = metadata.ino();
        let door = doors.entry(inode).or_insert(Door {
            inode,
            name: None,
            pid: None,
            foreign: false,
            path: entry.path(),
        });
        (door.name, door.foreign) = (name, false);
    }
    doors.remove(&own);
    doors.into_values().collect()
}

pub fn named(name: &str) -> Option<PathBuf> {
    NAMED.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// Whether a file has a namespace bound to it; without one it is an ordinary file, on another device.
fn is_namespace(metadata: &fs::Metadata) -> bool {
    match fs::metadata("/proc/self/ns/net") {
        Ok(own) => own.dev() == metadata.dev(),
        Err(_) => false,
    }
}

fn inside<T: Send>(door: &Path, work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    let file = File::open(door).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    inside_of(&file, work)
}

/// Runs `work` in the network namespace that a file of /proc or a named file refers to.
///
/// # Errors
/// When it may not be entered, or those of `work`.
pub fn inside_of<T: Send>(file: &File, work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    let enter_and_work = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    threads::apart(enter_and_work).unwrap_or(Err(Errno::AGAIN))
}

/// Runs `work` in a namespace of a scan; `None` if nothing leads to it. In the scan's own it runs on the calling thread, which
/// must still be in it.
pub fn within<T: Send>(
    space: &NetworkNamespace,
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> Option<Result<T, Errno>> {
    match (&space.pid, &space.name) {
        _ if space.own => Some(work()),
        (Some(pid), _) => Some(inside(Path::new(&format!("/proc/{pid}/ns/net")), work)),
        (None, Some(name)) => named(name).map(|door| inside(&door, work)),
        (None, None) => None,
    }
}

/// Upper limit of backlogs (listen(2)) in the calling thread's network namespace.
pub fn somaxconn() -> Option<u32> {
    network_setting("core/somaxconn")?.parse().ok()
}

/// A setting of the kernel below `/proc/sys/net` (`core/somaxconn`), in the calling thread's network namespace where it
/// belongs to one.
pub fn network_setting(name: &str) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?.trim().to_owned())
}

impl Door {
    /// Runs `work` in this namespace.
    ///
    /// # Errors
    /// When it may not be entered, or those of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
        inside(&self.path, work)
    }

    /// Sockets of the namespace: from inside if this process may enter it, else from /proc, else none.
    pub fn read(&self) -> (NetworkNamespace, Vec<Socket>) {
        let listed = || Ok(Diag::open().and_then(|mut diag| Ok((diag.sockets(self.inode)?, somaxconn()))));
        let refusal = match inside(&self.path, listed) {
            Ok(Ok((sockets, somaxconn))) => return (self.seen(ReadBy::SockDiag, None, somaxconn), sockets),
            Ok(Err(errno)) => Refusal::of(Asked::SocketListing, errno).to_string(),
            Err(errno) => Refusal::of(Asked::NetworkNamespace, errno).to_string(),
        };
        match self.pid.and_then(|pid| net_table::read(pid, self.inode)) {
            Some(sockets) => (self.seen(ReadBy::Proc, Some(refusal), None), sockets),
            None => (self.seen(ReadBy::Refused(refusal.clone()), Some(refusal), None), Vec::new()),
        }
    }

    fn seen(&self, read_by: ReadBy, refused: Option<String>, somaxconn: Option<u32>) -> NetworkNamespace {
        NetworkNamespace {
            inode: self.inode,
            own: false,
            foreign: self.foreign,
            name: self.name.clone(),
            pid: self.pid,
            read_by,
            refused,
            somaxconn,
        }
    }
}
