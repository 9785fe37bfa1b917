//! Errors of listening: endpoint, cause and remedy. Converts errno to a variant; changes nothing.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use samehost_model::Endpoint;

use crate::address::AddressError;
use crate::tuning::TuningError;

/// Why [`listen`](crate::listen) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A socket option could not be set.
    #[error("cannot listen on {endpoint}: {source}")]
    Tuning {
        /// The endpoint.
        endpoint: Endpoint,
        /// The cause.
        source: TuningError,
    },
    /// Another process listens there, or is starting to.
    #[error(
        "cannot listen on {endpoint}: address in use, {} already listens there; stop it or choose another path",
        process(*pid)
    )]
    InUse {
        /// The endpoint.
        endpoint: Endpoint,
        /// That process, if known from the kernel or the lock file.
        pid: Option<u32>,
    },
    /// Another process has the port.
    #[error(
        "cannot listen on {endpoint}: port {port} is taken; find who has it with `ss -ltnp 'sport = :{port}'`, stop it, or choose another port (0 takes a free one)"
    )]
    PortTaken {
        /// The endpoint.
        endpoint: Endpoint,
        /// The port.
        port: u16,
    },
    /// The path is not a dead socket, and was not changed.
    #[error(
        "cannot listen on {endpoint}: the path is {found}, which was left as it is; remove it if nobody needs it, or choose another path"
    )]
    Occupied {
        /// The endpoint.
        endpoint: Endpoint,
        /// Type of the file: `a regular file`, `a symbolic link`, …
        found: &'static str,
    },
    /// The directory is missing.
    #[error(
        "cannot listen on {endpoint}: the directory {} does not exist; create it (`install -d -m 0700 {0}`), or let systemd do so (RuntimeDirectory=)", directory.display()
    )]
    NoDirectory {
        /// The endpoint.
        endpoint: Endpoint,
        /// The directory.
        directory: PathBuf,
    },
    /// The path is under /tmp or /var/tmp, and
    /// [`ListenOptions::refuse_tmp`](crate::ListenOptions::refuse_tmp) is set.
    #[error(
        "cannot listen on {endpoint}: {} is below a directory where any user may write, so another could take the path first; use /run/NAME (systemd: RuntimeDirectory=) or a directory of your own with mode 0700", path.display()
    )]
    UnderTmp {
        /// The endpoint.
        endpoint: Endpoint,
        /// The path with its symbolic links resolved.
        path: PathBuf,
    },
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
    /// The address is not one of this machine's.
    #[error(
        "cannot listen on {endpoint}: this machine does not have that address; use 127.0.0.1 or [::1] (`ip address` lists what there is)"
    )]
    NotLocal {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The host name cannot be resolved.
    #[error(
        "cannot listen on {endpoint}: its host name cannot be looked up: {source}; use 127.0.0.1 or [::1]"
    )]
    Lookup {
        /// The endpoint.
        endpoint: Endpoint,
        /// The resolver's error.
        source: io::Error,
    },
    /// TLS without a certificate.
    #[error(
        "cannot listen on {endpoint}: TLS needs a certificate; set `ListenOptions::tls`, for example to `TlsServer::self_signed()`"
    )]
    NoCertificate {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// Listening is not possible with this transport.
    #[error("cannot listen on {endpoint}: {reason}")]
    Unsupported {
        /// The endpoint.
        endpoint: Endpoint,
        /// Reason and remedy.
        reason: &'static str,
    },
    /// The path or name is not a valid socket address.
    #[error("cannot listen: {0}")]
    Address(#[from] AddressError),
    /// Any other error of the kernel.
    #[error(
        "cannot listen on {endpoint}: {source}; see bind(2) and listen(2), and `ulimit -n` for too many open files"
    )]
    Other {
        /// The endpoint.
        endpoint: Endpoint,
        /// The kernel's error.
        source: io::Error,
    },
}

fn process(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

impl ListenError {
    /// The variant for an errno of socket(2), bind(2) or listen(2).
    pub(crate) fn from_errno(endpoint: &Endpoint, errno: Errno) -> Self {
        let at = endpoint;
        let endpoint = endpoint.clone();
        match (errno, at) {
            (Errno::ADDRINUSE, Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. }) => {
                ListenError::PortTaken { endpoint, port: *port }
            }
            (Errno::ADDRINUSE, _) => ListenError::InUse { endpoint, pid: None },
            (Errno::ADDRNOTAVAIL, _) => ListenError::NotLocal { endpoint },
            (Errno::ACCESS | Errno::PERM, Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. }) => {
                ListenError::PermissionDenied {
                    endpoint,
                    doing: format!("taking port {port}"),
                    advice: "ports below 1024 need root, CAP_NET_BIND_SERVICE or a lower net.ipv4.ip_unprivileged_port_start: choose a higher port",
                }
            }
            (Errno::ACCESS | Errno::PERM, at) => {
                let path = at.path().unwrap_or(std::path::Path::new("")).display();
                ListenError::PermissionDenied {
                    endpoint,
                    doing: format!("creating {path}"),
                    advice: "its directory must be writable and searchable for this user: use a directory of your own, such as $XDG_RUNTIME_DIR",
                }
            }
            (errno, _) => ListenError::Other { endpoint, source: errno.into() },
        }
    }
}
