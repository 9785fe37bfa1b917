//! How a socket is set beyond its address: congestion control and buffers. Asks for it, sees that the kernel
//! has it so, and says what stands in the way. Never touches a setting of the machine.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, ipproto, sockopt};

/// What to set on a socket; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The congestion control of what a TCP socket sends, such as `cubic`. Other sockets have none, and ignore it.
    pub congestion: Option<String>,
    /// Bytes of the send buffer and of the receive buffer, as for `SO_SNDBUF`: the kernel takes twice as much, for its
    /// own use. A TCP buffer that is set does not grow.
    pub buffer_bytes: Option<u64>,
}

/// Why a socket could not be set as asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// The kernel has no such congestion control.
    #[error(
        "this kernel has no congestion control `{name}` now (it has: {available}); the module tcp_{name} may bring it: `modprobe tcp_{name}` as root"
    )]
    NoCongestion {
        /// Its name.
        name: String,
        /// Those that it has.
        available: String,
    },
    /// The congestion control is root's to use.
    #[error(
        "the congestion control `{name}` is not among those that ordinary users may use here (net.ipv4.tcp_allowed_congestion_control is {allowed}); run this as root"
    )]
    Restricted {
        /// Its name.
        name: String,
        /// Those that everybody may use.
        allowed: String,
    },
    /// The kernel gives no such buffer.
    #[error(
        "a socket buffer of {asked} bytes is more than {limit} allows here ({most} bytes); ask for less, or run this as root, who may go beyond"
    )]
    BufferTooLarge {
        /// What was asked for.
        asked: u64,
        /// The setting that stands against it.
        limit: &'static str,
        /// What it allows.
        most: u64,
    },
    /// Anything else that the kernel said.
    #[error("a socket could not be set up: {0}")]
    Other(#[from] io::Error),
}

impl Tuning {
    /// Whether there is nothing to set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.congestion.is_none() && self.buffer_bytes.is_none()
    }

    /// Sets a socket. A listener hands on what it has to the TCP connections that it accepts; a Unix one does not.
    ///
    /// # Errors
    /// [`TuningError`], when the kernel does not have it so afterwards.
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
            return Err(TuningError::NoCongestion {
                name: name.into(),
                available: setting("ipv4/tcp_available_congestion_control"),
            });
        }
        Err(Errno::PERM) => {
            return Err(TuningError::Restricted {
                name: name.into(),
                allowed: setting("ipv4/tcp_allowed_congestion_control"),
            });
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
    let failed = |errno: Errno| TuningError::Other(errno.into());
    // The kernel does not refuse what is too much: it gives less, in silence.
    sockopt::set_socket_send_buffer_size(&socket, wanted).map_err(failed)?;
    if sockopt::socket_send_buffer_size(&socket).map_err(failed)? < wanted.saturating_mul(2)
        && sockopt::set_socket_send_buffer_size_force(&socket, wanted).is_err()
    {
        return Err(too_large(bytes, "net.core.wmem_max"));
    }
    sockopt::set_socket_recv_buffer_size(&socket, wanted).map_err(failed)?;
    if sockopt::socket_recv_buffer_size(&socket).map_err(failed)? < wanted.saturating_mul(2)
        && sockopt::set_socket_recv_buffer_size_force(&socket, wanted).is_err()
    {
        return Err(too_large(bytes, "net.core.rmem_max"));
    }
    Ok(())
}

fn too_large(asked: u64, limit: &'static str) -> TuningError {
    let most = setting(&limit.trim_start_matches("net.").replace('.', "/")).parse().unwrap_or(0);
    TuningError::BufferTooLarge { asked, limit, most }
}

/// A setting of the network, in words for a message.
fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    if text.trim().is_empty() { "not known".into() } else { text.trim().into() }
}
