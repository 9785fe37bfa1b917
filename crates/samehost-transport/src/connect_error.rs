//! Why a connection did not come about, in words that name the endpoint, the cause and the next thing to try.
//! Turns errno into a variant; may look at the path to find the cause, changes nothing.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use samehost_model::Endpoint;

use crate::address::AddressError;
use crate::denied::Denied;
use crate::tuning::TuningError;

pub(crate) const PARENT_NEEDED: &str = "nobody can connect to it by name: make it with `pair()` or `pipe_pair()` and hand one side to a child process";

/// Why [`connect`](crate::connect) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens at the address, or the socket file outlived its server.
    #[error(
        "cannot connect to {endpoint}: connection refused, nothing listens there; start the server, or see what listens with `ss -ltnp` (TCP) and `ss -lxp` (Unix; an abstract name exists only inside one network namespace)"
    )]
    Refused {
        /// Where.
        endpoint: Endpoint,
    },
    /// The socket file or a directory on the way to it does not exist.
    #[error(
        "cannot connect to {endpoint}: {} does not exist; start the server, or look in its configuration for the path it listens on", missing.display()
    )]
    NotFound {
        /// Where.
        endpoint: Endpoint,
        /// The first part of the path that is missing.
        missing: std::path::PathBuf,
    },
    /// File permissions stand in the way.
    #[error("cannot connect to {endpoint}: permission denied: {denied}")]
    PermissionDenied {
        /// Where.
        endpoint: Endpoint,
        /// Which part of the path, and why.
        denied: Denied,
    },
    /// Something else than a socket has the path.
    #[error(
        "cannot connect to {endpoint}: the path is {found}, not a socket; give the path of the server's socket"
    )]
    NotASocket {
        /// Where.
        endpoint: Endpoint,
        /// What is there: `a directory`, `a regular file`, …
        found: &'static str,
    },
    /// A socket of another kind has the path.
    #[error(
        "cannot connect to {endpoint}: the socket there is of another kind (stream, seqpacket or datagram); try unix:PATH or seqpacket:PATH"
    )]
    WrongKind {
        /// Where.
        endpoint: Endpoint,
    },
    /// The server's queue of connections not yet accepted stayed full.
    #[error(
        "cannot connect to {endpoint}: its backlog is full, the server does not accept connections fast enough; raise the server's backlog and net.core.somaxconn, connect more slowly, or allow a longer timeout"
    )]
    BacklogFull {
        /// Where.
        endpoint: Endpoint,
    },
    /// No answer in time.
    #[error(
        "cannot connect to {endpoint}: no answer within {after:?}; see whether the server is overloaded or a firewall drops the packets, or allow a longer timeout"
    )]
    TimedOut {
        /// Where.
        endpoint: Endpoint,
        /// How long it waited.
        after: Duration,
    },
    /// The host has no address.
    #[error(
        "cannot connect to {endpoint}: its host name cannot be looked up: {source}; use 127.0.0.1 or [::1], or add the name to /etc/hosts"
    )]
    Lookup {
        /// Where.
        endpoint: Endpoint,
        /// What the resolver said.
        source: io::Error,
    },
    /// Every local port towards this address is taken, mostly by connections in TIME_WAIT.
    #[error(
        "cannot connect to {endpoint}: no free local port (EADDRNOTAVAIL); many closed connections linger in TIME_WAIT (`ss -s`): keep connections open, widen net.ipv4.ip_local_port_range, or use a Unix socket, which needs no ports"
    )]
    OutOfPorts {
        /// Where.
        endpoint: Endpoint,
    },
    /// The process or the system has no descriptor left.
    #[error(
        "cannot connect to {endpoint}: too many open files ({errno}); raise the limit with `ulimit -n`, or use fewer connections"
    )]
    TooManyFiles {
        /// Where.
        endpoint: Endpoint,
        /// EMFILE (this process) or ENFILE (the system).
        errno: Errno,
    },
    /// The socket could not be set as asked for.
    #[error("cannot connect to {endpoint}: {source}")]
    Tuning {
        /// Where.
        endpoint: Endpoint,
        /// What stands in the way.
        source: TuningError,
    },
    /// Connected, but the TLS handshake failed.
    #[error(
        "connected to {endpoint}, but the TLS handshake failed: {source}; check that the server speaks TLS on this port and that its certificate is the one trusted here"
    )]
    Tls {
        /// Where.
        endpoint: Endpoint,
        /// What went wrong.
        source: io::Error,
    },
    /// This transport cannot be connected to.
    #[error("cannot connect to {endpoint}: {reason}")]
    Unsupported {
        /// Where.
        endpoint: Endpoint,
        /// Why, and what can be done.
        reason: &'static str,
    },
    /// The path or name is no socket address.
    #[error("cannot connect: {0}")]
    Address(#[from] AddressError),
    /// Anything else the kernel said.
    #[error("cannot connect to {endpoint}: {source}; see connect(2) for what it means")]
    Other {
        /// Where.
        endpoint: Endpoint,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ConnectError {
    /// The variant for an errno of socket(2) or connect(2).
    pub(crate) fn from_errno(endpoint: &Endpoint, errno: Errno, timeout: Option<Duration>) -> Self {
        let path = endpoint.path();
        let endpoint = endpoint.clone();
        match (errno, path) {
            (Errno::CONNREFUSED, Some(path)) => match not_a_socket(path) {
                // connect(2) says "refused" for a regular file and for a directory too.
                Some(found) => ConnectError::NotASocket { endpoint, found },
                None => ConnectError::Refused { endpoint },
            },
            (Errno::CONNREFUSED, None) => ConnectError::Refused { endpoint },
            (Errno::NOENT, Some(path)) => {
                ConnectError::NotFound { endpoint, missing: first_missing(path).to_owned() }
            }
            (Errno::NOTDIR, Some(_)) => {
                ConnectError::NotASocket { endpoint, found: "below something that is not a directory" }
            }
            (Errno::ACCESS | Errno::PERM, Some(path)) => {
                ConnectError::PermissionDenied { endpoint, denied: Denied::on_the_way_to(path) }
            }
            (Errno::PROTOTYPE, Some(_)) => ConnectError::WrongKind { endpoint },
            (Errno::PROTOTYPE, None) => ConnectError::WrongKind { endpoint },
            (Errno::AGAIN, _) => ConnectError::BacklogFull { endpoint },
            (Errno::INPROGRESS | Errno::TIMEDOUT, _) => {
                // Without a limit of ours it was the kernel's: tcp_syn_retries, 127 s by default.
                ConnectError::TimedOut { endpoint, after: timeout.unwrap_or(Duration::from_secs(127)) }
            }
            (Errno::ADDRNOTAVAIL, None) => ConnectError::OutOfPorts { endpoint },
            (Errno::MFILE | Errno::NFILE, _) => ConnectError::TooManyFiles { endpoint, errno },
            (errno, _) => ConnectError::Other { endpoint, source: errno.into() },
        }
    }
}

/// What has the path, if it is no socket.
pub(crate) fn not_a_socket(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    (!kind.is_socket()).then(|| describe(kind))
}

/// A kind of file with its article.
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

/// The first part of the path, from its root, that does not exist; the path itself where all do by now.
fn first_missing(path: &Path) -> &Path {
    let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    parts.into_iter().find(|part| !part.exists()).unwrap_or(path)
}

/// Why [`connect_nonblocking`](crate::connect_nonblocking) could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// What socket(2) or connect(2) said.
    #[error(
        "cannot start a connection to {endpoint}: {errno}; EAGAIN is a full backlog (accept faster or raise it), EMFILE too many open files (`ulimit -n`), EADDRNOTAVAIL no free local port"
    )]
    Os {
        /// Where.
        endpoint: Endpoint,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The host has no address.
    #[error(
        "cannot start a connection to {endpoint}: its host name cannot be looked up: {source}; use an address"
    )]
    Lookup {
        /// Where.
        endpoint: Endpoint,
        /// What the resolver said.
        source: io::Error,
    },
    /// The socket could not be set as asked for.
    #[error("cannot start a connection to {endpoint}: {source}")]
    Tuning {
        /// Where.
        endpoint: Endpoint,
        /// What stands in the way.
        source: TuningError,
    },
    /// The TLS session could not be made, or this certificate rule does not hold for this address.
    #[error(
        "cannot start a connection to {endpoint}: TLS: {source}; check the certificate that is trusted here"
    )]
    Tls {
        /// Where.
        endpoint: Endpoint,
        /// What is wrong.
        source: io::Error,
    },
    /// This transport cannot be connected to.
    #[error("cannot start a connection to {endpoint}: {reason}")]
    Unsupported {
        /// Where.
        endpoint: Endpoint,
        /// Why, and what can be done.
        reason: &'static str,
    },
    /// The path or name is no socket address.
    #[error("cannot start a connection: {0}")]
    Address(#[from] AddressError),
}

impl StartError {
    /// The errno, where it was the kernel who refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            StartError::Os { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}
