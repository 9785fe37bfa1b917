//! Options for connecting and listening: plain data, the same for all transports.

use std::time::Duration;

use crate::tls_trust::{TlsServer, TlsTrust};
use crate::tuning::Tuning;

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
