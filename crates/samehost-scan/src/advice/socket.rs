//! Blockers of the service's socket: whether there is one, whether it is the service's, where it lies and how many may wait at it.
//!
//! Blocker `server`: the service does not listen on a Unix socket yet, or does not support one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;
use samehost_model::UNIX_PATH_MAX;
use samehost_model::human::capitalised;
use samehost_model::scan::{Found, Queues, Scan, Service, Socket, Weight};
use samehost_services::{Descriptor, UnixSocket};
use samehost_system::mounts::share;

use super::pair::Pair;
use super::walk::Root;
use super::{Finding, access, show};

pub(super) fn server(pair: &Pair<'_>) -> Option<Finding> {
    if pair.listener.is_some() {
        return None;
    }
    let known = pair.known?;
    Some(match known.unix() {
        UnixSocket::Never(why) => Finding::new(
            Weight::Blocks,
            format!("{} cannot listen on a Unix socket: {why}", known.label),
            "Keep connections open and reuse them: that saves the most of what TCP costs",
        ),
        UnixSocket::Setting(setting) => Finding::new(
            Weight::Setting,
            without_socket(pair.scan, pair.service, &known.label),
            remedy(pair, known, &setting.replace("{}", &pair.proposed_socket()?)),
        ),
    })
}

/// Whether a socket whose holder is not visible may be that of a service which is not visible either.
fn may_have_one(scan: &Scan, service: &Service) -> bool {
    let is_hidden =
        |socket: &Socket| socket.is_listening() && socket.kind.is_unix() && socket.pids.is_empty();
    scan.main_process(service).is_none() && scan.sockets.iter().any(is_hidden)
}

/// That a service listens on no Unix socket, as far as that can be seen.
#[must_use]
pub fn without_socket(scan: &Scan, service: &Service, label: &str) -> String {
    match may_have_one(scan, service) {
        true => format!("whether {label} listens on a Unix socket is not known: its process is not visible"),
        false => format!("{label} listens on no Unix socket"),
    }
}

fn remedy(pair: &Pair<'_>, known: &Descriptor, setting: &str) -> String {
    let port = if known.one_address {
        "It listens on one address: for tools that want the port, run another one beside it"
    } else {
        "Keep the port as well, for tools that want it"
    };
    let set = if may_have_one(pair.scan, pair.service) { "Where it has none, set" } else { "Set" };
    let mut sentences = vec![format!("{set}: {setting}"), port.to_owned()];
    sentences.extend(known.about_socket.iter().cloned());
    sentences.join(". ")
}

// Blocker `stale`: a socket file without a listener, or a listener whose socket file was removed.

pub(super) fn stale(pair: &Pair<'_>) -> Option<Finding> {
    let root = pair.server_root()?;
    let Some(listener) = pair.listener else {
        // The service has no socket. A leftover file at the default path would keep it from binding one.
        let path = Path::new(&pair.known?.socket);
        if path.as_os_str().is_empty() {
            return None;
        }
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
            "Start the service with its socket; remove the file only after a connection to it was refused",
        ));
    };
    let path = pair.path()?;
    if listener.file.is_none() || root.find(&path).is_some() {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        format!(
            "{} listens on {}, but the file was removed: nobody can connect",
            pair.service.name,
            show(&path)
        ),
        "Restart the service, and find out what removes the file (tmpfiles.d, a second instance)",
    ))
}

// Blocker `another-socket`: the path leads to a socket that is not the service's. Another program may listen
// there and would receive the password, so no login may be tried over it.

pub(super) fn another_socket(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let listed = pair.listener?.file?;
    let theirs = pair.server_root().and_then(|root| root.find(&path));
    if let Some(step) = &theirs
        && !listed.has_inode(step.stat.st_ino)
    {
        return Some(Finding::new(
            Weight::Setting,
            format!(
                "{} names another file by now than the one that {} listens on",
                show(&path),
                pair.service.name
            ),
            "A second server took the path: stop one of the two, and restart the other",
        ));
    }
    let own = pair.client_root()?.find(&path)?;
    if let Some(theirs) = theirs
        && theirs.identity() == own.identity()
    {
        return None;
    }
    let (client, server) = (pair.client()?, pair.server()?);
    if pair.crosses_container() {
        let folder = show(path.parent().unwrap_or(Path::new("/")));
        return Some(Finding::new(
            Weight::Setting,
            format!(
                "{} exists for {} ({}), but it is another file than the service's: the file was mounted by itself, and the service made a new one since",
                show(&path),
                client.name,
                access::place(client)
            ),
            format!("Mount the folder instead of the file: -v {folder}:{folder}"),
        ));
    }
    let what = if own.file_type() == FileType::Socket { "socket" } else { "file" };
    Some(Finding::new(
        Weight::Setting,
        format!("{} leads {} to another {what} than the one of {}", show(&path), client.name, server.name),
        "Share the folder of the service's socket with the client, below /run; a /tmp of its own (PrivateTmp=) or a chroot(2) has files of its own",
    ))
}

// Blocker `path-length`: a path over 107 bytes does not fit into `sun_path`. A server can bind such a socket
// by a relative path; clients that have the full path cannot connect.

pub(super) fn path_length(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let length = path.as_os_str().as_bytes().len();
    if length <= UNIX_PATH_MAX {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        Found::with(
            format!("{} is {length} bytes long", show(&path)),
            format!("a socket's address holds {UNIX_PATH_MAX}"),
        ),
        "Put the socket into a shorter folder, such as one below /run, or reach it by a symbolic link",
    ))
}

// Blocker `file-system`: the directory of the socket that a service would make is on a file system that carries no
// sockets, or not to all who have its files.

pub(super) fn file_system(pair: &Pair<'_>) -> Option<Finding> {
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
        "Put the socket into a directory of this machine's own, such as one below /run",
    ))
}

/// Device of a directory, or of the first above it that is there.
fn device(root: &Root, directory: &Path) -> Option<u64> {
    let step = directory.ancestors().find_map(|path| root.find(path))?;
    Some(step.stat.st_dev)
}

// Blocker `backlog`: with a full backlog connect(2) on a Unix socket fails at once (EAGAIN, a 502 behind
// nginx), while TCP queues and retries.

/// Default of net.core.somaxconn before Linux 5.4, still requested by many servers. A lower one is a risk where twice the
/// clients that are here would reach it: 80 is what every MariaDB has, and three workers of PHP never fill it.
const FEW: u32 = 128;

pub(super) fn backlog(pair: &Pair<'_>) -> Option<Finding> {
    let mut spaces = pair.scan.network_namespaces.iter();
    let space = spaces.find(|space| space.inode == pair.service.network_namespace);
    let somaxconn = space.and_then(|space| space.somaxconn);
    // All clients may reconnect at once after the service restarts.
    let seen = pair.service.connections.max(pair.connections.len() as u32);
    let Some(listener) = pair.listener else {
        let limit = somaxconn.filter(|limit| *limit < seen)?;
        return Some(Finding::new(
            Weight::Setting,
            format!("net.core.somaxconn is {limit}, and {seen} connections are open"),
            format!("Raise it first: sysctl net.core.somaxconn={}", enough(seen)),
        ));
    };
    let Queues::Listening { waiting, backlog: Some(backlog) } = listener.queues else { return None };
    let remedy = match somaxconn.filter(|limit| *limit <= backlog && *limit < enough(seen)) {
        Some(limit) => format!(
            "net.core.somaxconn ({limit}) is the limit: sysctl net.core.somaxconn={}, then {}",
            enough(seen),
            setting(pair, enough(seen))
        ),
        None => capitalised(&setting(pair, enough(seen))),
    };
    let may_be = seen.max(pair.clients.len() as u32);
    let (weight, what) = if waiting > backlog {
        (Weight::Setting, format!("{waiting} connections wait at a backlog of {backlog}: it is full"))
    } else if backlog < seen {
        (Weight::Setting, format!("the backlog is {backlog}, and {seen} connections are open"))
    } else if backlog < FEW && backlog < may_be.saturating_mul(2) {
        (
            Weight::Note,
            format!("the backlog is only {backlog}, and clients here may open {may_be} or more at once"),
        )
    } else {
        return None;
    };
    let follows = "a Unix socket refuses the next client that does not block (EAGAIN, a 502 behind nginx), where TCP waits";
    Some(Finding::new(weight, Found::with(what, follows), remedy))
}

fn setting(pair: &Pair<'_>, backlog: u32) -> String {
    if let Some(known) = pair.known
        && let Some(setting) = known.backlog_of(backlog)
    {
        return format!("set {setting} ({}), and restart it", known.label);
    }
    format!("set the service's backlog to {backlog} or more, and restart it")
}

/// Twice the connections seen, rounded up to a power of two; at least 512 (nginx uses 511).
pub(crate) fn enough(seen: u32) -> u32 {
    seen.saturating_mul(2).max(512).checked_next_power_of_two().unwrap_or(u32::MAX)
}
