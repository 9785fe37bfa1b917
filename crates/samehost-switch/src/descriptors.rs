//! The sockets of an application's own processes, read from their descriptors: which are new, where each is connected, and
//! where its process works meanwhile.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{SocketAddrAny, getpeername};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::plan::client::Application;
use crate::plan::client::own::{AtHome, Judged};

/// How long a list of an application's processes is taken for right.
///
/// Descriptors are read without a pause while a page is asked for, because PHP's connections live for a
/// millisecond or two and the kernel tells nobody when one over a Unix socket opens or closes. Which
/// processes the application has changes far less often, so the list of them is read again only after
/// this time (docs/decisions/0128).
const FRESH: Duration = Duration::from_millis(20);

/// The processes of an application, and the sockets of theirs that are known.
///
/// A switch was called verified when a login of ours worked, and PHP-FPM with a cached file went on over
/// TCP. Reading the descriptors of the application's own processes takes 0.03 ms a process and saw each
/// request to a page of 2 ms in the tests. sock_diag takes 1.6 ms for all TCP sockets, and named none of
/// 20 requests. The account of the client's socket was rejected, as a web server's account runs every
/// site, and so was inotify, because connect(2) opens nothing (docs/decisions/0128).
pub(crate) struct Processes {
    of: Application,
    at_home: AtHome,
    judged: Judged,
    listed: Option<Instant>,
    /// Inodes of sockets that were looked at.
    pub(crate) known: BTreeSet<u64>,
}

impl Processes {
    pub(crate) fn of(application: &Application) -> Self {
        Processes {
            of: application.clone(),
            at_home: AtHome::default(),
            judged: Judged::default(),
            listed: None,
            known: BTreeSet::new(),
        }
    }

    fn list(&mut self) {
        if matches!(self.listed, Some(listed) if listed.elapsed() < FRESH) {
            return;
        }
        self.at_home = self.of.processes(&mut self.judged);
        self.listed = Some(Instant::now());
    }

    /// Its own processes, as they were looked at last.
    pub(crate) fn own(&self) -> &[u32] {
        &self.at_home.own
    }

    /// The sockets of its processes, and of those that only work where it is, that were not there before. One that is not
    /// connected yet is looked at again.
    pub(crate) fn new_connections(&mut self) -> Vec<Opened> {
        self.list();
        let mut found = Vec::new();
        let AtHome { own, bystanders } = &self.at_home;
        let bystanders = bystanders.iter().map(|pid| (*pid, false));
        for (pid, is_own) in own.iter().map(|pid| (*pid, true)).chain(bystanders) {
            for (descriptor, inode) in sockets_of(pid) {
                if self.known.contains(&inode) {
                    continue;
                }
                let Some(address) = connected_to(pid, descriptor) else { continue };
                self.known.insert(inode);
                found.push(Opened { pid, is_own, descriptor, inode, address });
            }
        }
        found
    }
}

/// A socket of a process, and where it is connected.
pub(crate) struct Opened {
    pub(crate) pid: u32,
    /// Whether the process is the application's own, and not one that only works where it is.
    pub(crate) is_own: bool,
    descriptor: i32,
    inode: u64,
    pub(crate) address: SocketAddrAny,
}

impl Opened {
    /// Where its process works while it has the connection: `None` where it has closed it, and may be at the next request.
    pub(crate) fn works_in(&self) -> Option<PathBuf> {
        let directory = std::fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?;
        let there = std::fs::read_link(format!("/proc/{}/fd/{}", self.pid, self.descriptor)).ok()?;
        (there.to_str().and_then(inode_of) == Some(self.inode)).then_some(directory)
    }
}

/// The descriptors of a process that are sockets, with their inodes.
fn sockets_of(pid: u32) -> Vec<(i32, u64)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return found };
    for entry in entries.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let Some(inode) = target.to_str().and_then(inode_of) else { continue };
        if let Ok(descriptor) = entry.file_name().to_string_lossy().parse() {
            found.push((descriptor, inode));
        }
    }
    found
}

/// The inode in the name that the kernel shows of a socket: `socket:[4711]`.
fn inode_of(name: &str) -> Option<u64> {
    name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Where a socket of another process is connected; `None` if it is not, or may not be asked. Our copy of the descriptor is
/// closed at once: until then, some microseconds, a close by the process itself does not end the connection.
fn connected_to(pid: u32, descriptor: i32) -> Option<SocketAddrAny> {
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    let socket = pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).ok()?;
    getpeername(&socket).ok()?
}
