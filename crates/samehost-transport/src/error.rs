//! Errors of connecting and listening: endpoint, cause and remedy. Converts errno to a variant; may inspect the path to
//! find the cause, such as the component that denies access to a socket, but changes nothing.

use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use samehost_model::Endpoint;

use crate::socket::AddressError;
use crate::tuning::TuningError;

pub(crate) const PARENT_NEEDED: &str = "nobody can connect to it by name: make it with `pair()` or `pipe_pair()` and hand one side to a child process";

/// Why [`connect`](crate::connect) failed. Each variant begins with the endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens at the address, or the socket file is a leftover of a stopped server.
    #[error(
        "cannot connect to {0}: connection refused, nothing listens there; start the server, or see what listens with `ss -ltnp` (TCP) and `ss -lxp` (Unix; an abstract name exists only inside one network namespace)"
    )]
    Refused(Endpoint),
    /// The socket file or one of its directories does not exist: the first component of the path that is missing.
    #[error(
        "cannot connect to {0}: {missing} does not exist; start the server, or look in its configuration for the path it listens on", missing = .1.display()
    )]
    NotFound(Endpoint, PathBuf),
    /// File permissions do not allow it: the component of the path, and the missing permission.
    #[error("cannot connect to {0}: permission denied: {1}")]
    PermissionDenied(Endpoint, Denied),
    /// The path is not a socket, but `a directory`, `a regular file`, …
    #[error("cannot connect to {0}: the path is {1}, not a socket; give the path of the server's socket")]
    NotASocket(Endpoint, &'static str),
    /// The path is a socket of another type.
    #[error(
        "cannot connect to {0}: the socket there is of another kind (stream, seqpacket or datagram); try unix:PATH or seqpacket:PATH"
    )]
    WrongKind(Endpoint),
    /// The server's backlog stayed full.
    #[error(
        "cannot connect to {0}: its backlog is full, the server does not accept connections fast enough; raise the server's backlog and net.core.somaxconn, connect more slowly, or allow a longer timeout"
    )]
    BacklogFull(Endpoint),
    /// No answer within the time limit.
    #[error(
        "cannot connect to {0}: no answer within {1:?}; see whether the server is overloaded or a firewall drops the packets, or allow a longer timeout"
    )]
    TimedOut(Endpoint, Duration),
    /// The host name cannot be resolved.
    #[error(
        "cannot connect to {0}: its host name cannot be looked up: {1}; use 127.0.0.1 or [::1], or add the name to /etc/hosts"
    )]
    Lookup(Endpoint, #[source] io::Error),
    /// Every local port for this destination is in use, mostly by connections in TIME_WAIT.
    #[error(
        "cannot connect to {0}: no free local port (EADDRNOTAVAIL); many closed connections linger in TIME_WAIT (`ss -s`): keep connections open, widen net.ipv4.ip_local_port_range, or use a Unix socket, which needs no ports"
    )]
    OutOfPorts(Endpoint),
    /// The loopback interface is down, so that no address of it can be used.
    #[error(
        "cannot connect to {0}: the loopback interface is down in this network namespace; set it up: ip link set lo up"
    )]
    NoLoopback(Endpoint),
    /// The process (EMFILE) or the system (ENFILE) has no free file descriptor.
    #[error(
        "cannot connect to {0}: too many open files ({1}); raise the limit with `ulimit -n`, or use fewer connections"
    )]
    TooManyFiles(Endpoint, Errno),
    /// A socket option could not be set.
    #[error("cannot connect to {0}: {1}")]
    Tuning(Endpoint, #[source] TuningError),
    /// Connected, but the TLS handshake failed.
    #[error(
        "connected to {0}, but the TLS handshake failed: {1}; check that the server speaks TLS on this port and that its certificate is the one trusted here"
    )]
    Tls(Endpoint, #[source] io::Error),
    /// Connecting is not possible with this transport: reason and remedy.
    #[error("cannot connect to {0}: {1}")]
    Unsupported(Endpoint, &'static str),
    /// The path or name is not a valid socket address.
    #[error("cannot connect: {0}")]
    Address(#[from] AddressError),
    /// Any other error of the kernel.
    #[error("cannot connect to {0}: {1}; see connect(2) for what it means")]
    Other(Endpoint, #[source] io::Error),
}

impl ConnectError {
    /// The same as [`ConnectError::from_errno`], for `map_err`.
    pub(crate) fn at(endpoint: &Endpoint, timeout: Option<Duration>) -> impl Fn(Errno) -> Self {
        move |errno| ConnectError::from_errno(endpoint, errno, timeout)
    }

    /// The variant for an errno of socket(2) or connect(2).
    pub(crate) fn from_errno(endpoint: &Endpoint, errno: Errno, timeout: Option<Duration>) -> Self {
        let path = endpoint.path();
        let endpoint = endpoint.clone();
        match (errno, path) {
            (Errno::CONNREFUSED, Some(path)) => match not_a_socket(path) {
                // connect(2) also returns ECONNREFUSED for a regular file or a directory.
                Some(found) => ConnectError::NotASocket(endpoint, found),
                None => ConnectError::Refused(endpoint),
            },
            (Errno::CONNREFUSED, None) => ConnectError::Refused(endpoint),
            (Errno::NOENT, Some(path)) => ConnectError::NotFound(endpoint, first_missing(path).to_owned()),
            (Errno::NOTDIR, Some(_)) => {
                ConnectError::NotASocket(endpoint, "below something that is not a directory")
            }
            (Errno::ACCESS | Errno::PERM, Some(path)) => {
                ConnectError::PermissionDenied(endpoint, Denied::on_the_way_to(path))
            }
            (Errno::PROTOTYPE, _) => ConnectError::WrongKind(endpoint),
            (Errno::AGAIN, _) => ConnectError::BacklogFull(endpoint),
            (Errno::ADDRNOTAVAIL | Errno::NETUNREACH | Errno::INPROGRESS | Errno::TIMEDOUT, None)
                if lacks_loopback(&endpoint) =>
            {
                ConnectError::NoLoopback(endpoint)
            }
            (Errno::INPROGRESS | Errno::TIMEDOUT, _) => {
                // Without our own limit it was the kernel's: tcp_syn_retries, 127 s by default.
                ConnectError::TimedOut(endpoint, timeout.unwrap_or(Duration::from_secs(127)))
            }
            (Errno::ADDRNOTAVAIL, None) => ConnectError::OutOfPorts(endpoint),
            (Errno::MFILE | Errno::NFILE, _) => ConnectError::TooManyFiles(endpoint, errno),
            (errno, _) => ConnectError::Other(endpoint, errno.into()),
        }
    }
}

pub(crate) fn not_a_socket(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    (!kind.is_socket()).then(|| describe(kind))
}

/// A type of file with its article.
pub(crate) fn describe(kind: std::fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_file() => "a regular file",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// The first component of the path that does not exist; the whole path if all exist by now.
fn first_missing(path: &Path) -> &Path {
    let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    parts.into_iter().find(|part| !part.exists()).unwrap_or(path)
}

/// Why [`connect_nonblocking`](crate::connect_nonblocking) could not start. Each variant begins with the endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An error of socket(2) or connect(2).
    #[error(
        "cannot start a connection to {0}: {1}; EAGAIN is a full backlog (accept faster or raise it), EMFILE too many open files (`ulimit -n`), EADDRNOTAVAIL no free local port"
    )]
    Os(Endpoint, Errno),
    /// The host name cannot be resolved.
    #[error("cannot start a connection to {0}: its host name cannot be looked up: {1}; use an address")]
    Lookup(Endpoint, #[source] io::Error),
    /// A socket option could not be set.
    #[error("cannot start a connection to {0}: {1}")]
    Tuning(Endpoint, #[source] TuningError),
    /// The TLS session could not be created, or the certificate policy does not allow this address.
    #[error("cannot start a connection to {0}: TLS: {1}; check the certificate that is trusted here")]
    Tls(Endpoint, #[source] io::Error),
    /// Connecting is not possible with this transport: reason and remedy.
    #[error("cannot start a connection to {0}: {1}")]
    Unsupported(Endpoint, &'static str),
    /// The path or name is not a valid socket address.
    #[error("cannot start a connection: {0}")]
    Address(#[from] AddressError),
}

impl StartError {
    /// What the kernel answered, for `map_err`.
    pub(crate) fn at(endpoint: &Endpoint) -> impl Fn(Errno) -> Self {
        move |errno| StartError::Os(endpoint.clone(), errno)
    }
}

/// Why [`listen`](crate::listen) failed. Each variant begins with the endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A socket option could not be set.
    #[error("cannot listen on {0}: {1}")]
    Tuning(Endpoint, #[source] TuningError),
    /// Another process listens there, or is starting to: this one, if known from the kernel or the lock file.
    #[error(
        "cannot listen on {0}: address in use, {who} already listens there; stop it or choose another path",
        who = process(*.1)
    )]
    InUse(Endpoint, Option<u32>),
    /// Another process has the port.
    #[error(
        "cannot listen on {0}: port {1} is taken; find who has it with `ss -ltnp 'sport = :{1}'`, stop it, or choose another port (0 takes a free one)"
    )]
    PortTaken(Endpoint, u16),
    /// The path is not a dead socket, but `a regular file`, `a symbolic link`, …, and was not changed.
    #[error(
        "cannot listen on {0}: the path is {1}, which was left as it is; remove it if nobody needs it, or choose another path"
    )]
    Occupied(Endpoint, &'static str),
    /// The directory is missing.
    #[error(
        "cannot listen on {0}: the directory {directory} does not exist; create it (`install -d -m 0700 {directory}`), or let systemd do so (RuntimeDirectory=)", directory = .1.display()
    )]
    NoDirectory(Endpoint, PathBuf),
    /// The path is under /tmp or /var/tmp, and
    /// [`ListenOptions::refuse_tmp`](crate::ListenOptions::refuse_tmp) is set. Its symbolic links are resolved.
    #[error(
        "cannot listen on {0}: {path} is below a directory where any user may write, so another could take the path first; use /run/NAME (systemd: RuntimeDirectory=) or a directory of your own with mode 0700", path = .1.display()
    )]
    UnderTmp(Endpoint, PathBuf),
    /// Permissions do not allow it.
    #[error("cannot listen on {endpoint}: permission denied {doing}; {advice}")]
    PermissionDenied {
        /// The endpoint.
        endpoint: Endpoint,
        /// The failed action: `creating the socket file`, `taking port 80`, …
        doing: String,
        /// Remedy.
        advice: &'static str,
    },
    /// The lock file failed, although nobody holds it.
    #[error(
        "cannot listen on {endpoint}: the lock file {} cannot be taken: {source}; see who owns it, and remove it if no server runs", path.display()
    )]
    Lock {
        /// The endpoint.
        endpoint: Endpoint,
        /// The lock file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The loopback interface is down, so that no address of it can be used.
    #[error(
        "cannot listen on {0}: the loopback interface is down in this network namespace; set it up: ip link set lo up"
    )]
    NoLoopback(Endpoint),
    /// The address is not one of this machine's.
    #[error(
        "cannot listen on {0}: this machine does not have that address; use 127.0.0.1 or [::1] (`ip address` lists what there is)"
    )]
    NotLocal(Endpoint),
    /// The host name cannot be resolved.
    #[error("cannot listen on {0}: its host name cannot be looked up: {1}; use 127.0.0.1 or [::1]")]
    Lookup(Endpoint, #[source] io::Error),
    /// TLS without a certificate.
    #[error(
        "cannot listen on {0}: TLS needs a certificate; set `ListenOptions::tls`, for example to `TlsServer::self_signed()`"
    )]
    NoCertificate(Endpoint),
    /// Listening is not possible with this transport: reason and remedy.
    #[error("cannot listen on {0}: {1}")]
    Unsupported(Endpoint, &'static str),
    /// The path or name is not a valid socket address.
    #[error("cannot listen: {0}")]
    Address(#[from] AddressError),
    /// Any other error of the kernel.
    #[error("cannot listen on {0}: {1}; see bind(2) and listen(2), and `ulimit -n` for too many open files")]
    Other(Endpoint, #[source] io::Error),
}

/// Whether an endpoint is of the loopback interface, and that is down: then it carries nothing, not even to ourselves. Its addresses can
/// be taken all the same, and where it was up before there is a way to them, so that connections wait until their time is over.
fn lacks_loopback(endpoint: &Endpoint) -> bool {
    let (Endpoint::Tcp { host, .. } | Endpoint::TcpTls { host, .. }) = endpoint else { return false };
    let is_loopback = match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost",
    };
    is_loopback && !carries().unwrap_or(false)
}

/// Whether the loopback interface carries a datagram, which it does before `send` returns.
fn carries() -> io::Result<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    socket.send_to(b"?", socket.local_addr()?)?;
    Ok(socket.recv(&mut [0; 1]).is_ok())
}

fn process(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

impl ListenError {
    /// The same as [`ListenError::from_errno`], for `map_err`.
    pub(crate) fn at(endpoint: &Endpoint) -> impl Fn(Errno) -> Self {
        move |errno| ListenError::from_errno(endpoint, errno)
    }

    /// The variant for an errno of socket(2), bind(2) or listen(2).
    pub(crate) fn from_errno(endpoint: &Endpoint, errno: Errno) -> Self {
        let at = endpoint;
        let endpoint = endpoint.clone();
        match (errno, at) {
            (Errno::ADDRINUSE, Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. }) => {
                ListenError::PortTaken(endpoint, *port)
            }
            (Errno::ADDRINUSE, _) => ListenError::InUse(endpoint, None),
            (Errno::ADDRNOTAVAIL, at) if lacks_loopback(at) => ListenError::NoLoopback(endpoint),
            (Errno::ADDRNOTAVAIL, _) => ListenError::NotLocal(endpoint),
            (Errno::ACCESS | Errno::PERM, Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. }) => {
                ListenError::PermissionDenied {
                    endpoint,
                    doing: format!("taking port {port}"),
                    advice: "ports below 1024 need root, CAP_NET_BIND_SERVICE or a lower net.ipv4.ip_unprivileged_port_start: choose a higher port",
                }
            }
            (Errno::ACCESS | Errno::PERM, at) => {
                let path = at.path().unwrap_or(Path::new("")).display();
                ListenError::PermissionDenied {
                    endpoint,
                    doing: format!("creating {path}"),
                    advice: "its directory must be writable and searchable for this user: use a directory of your own, such as $XDG_RUNTIME_DIR",
                }
            }
            (errno, _) => ListenError::Other(endpoint, errno.into()),
        }
    }
}

/// A missing permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Search permission on a directory (its x bit).
    Search,
    /// Write permission on the socket (its w bit), required for connecting.
    Write,
    /// Unknown: the file permissions suffice, so a security module or a user namespace may be the cause.
    Unknown,
}

/// The component of a path that denies access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The path up to and including that component.
    pub part: PathBuf,
    /// The missing permission.
    pub right: Right,
    /// Its permission bits, owner and group; `None` if not visible.
    pub held_by: Option<(u32, u32, u32)>,
    /// The user who was denied.
    pub uid: u32,
}

impl Denied {
    /// Checks the path from its root, and returns the first component that this process may not use. Where it may use all
    /// of them, that is the socket itself with [`Right::Unknown`].
    #[must_use]
    pub fn on_the_way_to(path: &Path) -> Denied {
        fn allowed(part: &Path, access: Access) -> bool {
            accessat(CWD, part, access, AtFlags::EACCESS).is_ok()
        }
        let mut directories: Vec<&Path> = path.ancestors().skip(1).collect();
        directories.reverse();
        let (mut part, mut right) = (path, Right::Write);
        if allowed(path, Access::WRITE_OK) {
            right = Right::Unknown;
        }
        for directory in directories {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            if !allowed(directory, Access::EXEC_OK) {
                (part, right) = (directory, Right::Search);
                break;
            }
        }
        Denied {
            part: part.to_owned(),
            right,
            held_by: part.metadata().ok().map(|found| (found.mode() & 0o7777, found.uid(), found.gid())),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { part, right, held_by, uid } = self;
        let what = match part.metadata().map(|found| found.file_type()) {
            Ok(kind) if kind.is_dir() => "directory ",
            Ok(kind) if kind.is_socket() => "socket ",
            _ => "",
        };
        let part = part.display();
        let rights = match held_by {
            Some((mode, owner, group)) => format!(" (mode {mode:04o}, owner uid {owner}, group gid {group})"),
            None => String::new(),
        };
        match right {
            Right::Search => write!(
                f,
                "the {what}{part}{rights} may not be searched by uid {uid}; join its group, or give it the x bit (`chmod o+x {part}`)"
            ),
            Right::Write => write!(
                f,
                "the {what}{part}{rights} may not be written by uid {uid}, which connecting needs; join its group, or set the server's socket mode (0660 or 0666)"
            ),
            Right::Unknown => write!(
                f,
                "the modes of {part}{rights} allow it to uid {uid}, so something else forbids it; look for SELinux or AppArmor denials (`dmesg`, `ausearch -m avc`)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn says_what_it_cannot_explain() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let denied = Denied::on_the_way_to(&path);
        assert_eq!(denied.right, Right::Unknown);
        assert!(denied.to_string().contains("SELinux"), "{denied}");
    }
}
