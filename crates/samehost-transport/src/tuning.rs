//! Socket options: congestion control and buffer sizes. Sets them, checks that the kernel applied them, and
//! reports the cause of a failure. Never changes system settings.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, ipproto, sockopt};

use crate::tls::{TlsServer, TlsTrust};

/// Socket options; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Congestion control of a TCP socket's sending side, such as `cubic`. Ignored for other sockets, which
    /// have none.
    pub congestion: Option<String>,
    /// Size of the send buffer and of the receive buffer in bytes, as for `SO_SNDBUF`: the kernel doubles it
    /// for its own overhead. A TCP buffer with a fixed size does not grow.
    pub buffer_bytes: Option<u64>,
}

/// Why a socket option could not be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// The kernel does not have this congestion control, but those.
    #[error(
        "this kernel has no congestion control `{0}` now (it has: {1}); the module tcp_{0} may bring it: `modprobe tcp_{0}` as root"
    )]
    NoCongestion(String, String),
    /// This congestion control is reserved for root; those are allowed for all users.
    #[error(
        "the congestion control `{0}` is not among those that ordinary users may use here (net.ipv4.tcp_allowed_congestion_control is {1}); run this as root"
    )]
    Restricted(String, String),
    /// The buffer exceeds a limit of the kernel.
    #[error(
        "a socket buffer of {asked} bytes is more than {limit} allows here ({most} bytes); ask for less, or run this as root, who may go beyond"
    )]
    BufferTooLarge {
        /// The requested size in bytes.
        asked: u64,
        /// Name of the sysctl with the limit.
        limit: &'static str,
        /// The limit in bytes.
        most: u64,
    },
    /// Any other error of the kernel.
    #[error("a socket could not be set up: {0}")]
    Other(#[from] io::Error),
}

impl Tuning {
    /// Whether no option is set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.congestion.is_none() && self.buffer_bytes.is_none()
    }

    /// Sets the options of a socket. Accepted TCP connections inherit them from the listener; Unix sockets do not.
    ///
    /// # Errors
    /// [`TuningError`] if the kernel did not apply an option.
    pub fn apply(&self, socket: impl AsFd) -> Result<(), TuningError> {
        if let Some(name) = &self.congestion {
            set_congestion(&socket, name)?;
        }
        if let Some(bytes) = self.buffer_bytes {
            set_buffers(&socket, bytes)?;
        }
        Ok(())
    }
}

fn set_congestion(socket: impl AsFd, name: &str) -> Result<(), TuningError> {
    if !is_tcp(&socket) {
        return Ok(());
    }
    match sockopt::set_tcp_congestion(&socket, name) {
        Ok(()) => {}
        Err(Errno::NOENT) => {
            let available = setting("ipv4/tcp_available_congestion_control");
            return Err(TuningError::NoCongestion(name.into(), available));
        }
        Err(Errno::PERM) => {
            let allowed = setting("ipv4/tcp_allowed_congestion_control");
            return Err(TuningError::Restricted(name.into(), allowed));
        }
        Err(errno) => return Err(io::Error::from(errno).into()),
    }
    let has = sockopt::tcp_congestion(&socket).map_err(io::Error::from)?;
    if has == name {
        return Ok(());
    }
    Err(io::Error::other(format!("it has the congestion control {has}, although {name} was asked for"))
        .into())
}

fn is_tcp(socket: impl AsFd) -> bool {
    let inet = matches!(sockopt::socket_domain(&socket), Ok(AddressFamily::INET | AddressFamily::INET6));
    inet && matches!(sockopt::socket_protocol(&socket), Ok(Some(ipproto::TCP)))
}

fn set_buffers(socket: impl AsFd, bytes: u64) -> Result<(), TuningError> {
    let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
    // The kernel does not reject an excessive size, but silently reduces it.
    sockopt::set_socket_send_buffer_size(&socket, wanted).map_err(other)?;
    if sockopt::socket_send_buffer_size(&socket).map_err(other)? < wanted.saturating_mul(2)
        && sockopt::set_socket_send_buffer_size_force(&socket, wanted).is_err()
    {
        return Err(too_large(bytes, "net.core.wmem_max"));
    }
    sockopt::set_socket_recv_buffer_size(&socket, wanted).map_err(other)?;
    if sockopt::socket_recv_buffer_size(&socket).map_err(other)? < wanted.saturating_mul(2)
        && sockopt::set_socket_recv_buffer_size_force(&socket, wanted).is_err()
    {
        return Err(too_large(bytes, "net.core.rmem_max"));
    }
    Ok(())
}

fn other(errno: Errno) -> TuningError {
    TuningError::Other(errno.into())
}

fn too_large(asked: u64, limit: &'static str) -> TuningError {
    let most = setting(&limit.trim_start_matches("net.").replace('.', "/")).parse().unwrap_or(0);
    TuningError::BufferTooLarge { asked, limit, most }
}

/// A network sysctl as text for a message.
fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    if text.trim().is_empty() { "not known".into() } else { text.trim().into() }
}

// Options for connecting and listening: plain data, the same for all transports.

/// Options for connecting.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Time limit for connecting and a TLS handshake together. `None` waits as long as the kernel does:
    /// forever for a Unix socket with a full backlog.
    pub timeout: Option<Duration>,
    /// Which certificates `tcp+tls` accepts; the default is [`TlsTrust::any_on_loopback`].
    pub tls: TlsTrust,
    /// Socket options, set before connecting.
    pub tuning: Tuning,
}

/// Options for listening. Options that do not apply to the endpoint's transport are ignored.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Maximum number of connections waiting to be accepted; the kernel limits it to `net.core.somaxconn`.
    pub backlog: i32,
    /// Permission bits of the socket file. Connecting requires the w bit. The file never has more permissions
    /// than these, not even briefly.
    pub mode: u32,
    /// User and group of the socket file, and of the directory if it is created; changing them requires root.
    pub owner: Option<(u32, u32)>,
    /// Create the socket's directory (only the last component, with mode 0700) if it is missing. It is not removed.
    pub create_directory: bool,
    /// Refuse paths under /tmp and /var/tmp, where any user may have created something at the path before.
    pub refuse_tmp: bool,
    /// Certificate, required for a `tcp+tls` listener.
    pub tls: Option<TlsServer>,
    /// Socket options of its connections.
    pub tuning: Tuning,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            backlog: 4096,
            mode: 0o600,
            owner: None,
            create_directory: false,
            refuse_tmp: false,
            tls: None,
            tuning: Tuning::default(),
        }
    }
}

impl ListenOptions {
    /// Options for a long-running service: the default, but not under /tmp.
    #[must_use]
    pub fn service() -> Self {
        ListenOptions { refuse_tmp: true, ..ListenOptions::default() }
    }
}
