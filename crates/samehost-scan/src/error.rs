//! Why this machine could not be looked at.

use rustix::io::Errno;

/// Why a scan failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// /proc cannot be read.
    #[error("/proc cannot be read ({0}); mount it: mount -t proc proc /proc")]
    Proc(#[source] Errno),
    /// The kernel does not list its sockets.
    #[error(
        "the kernel does not list its sockets ({0}), and /proc/self/net does not show them; load the modules tcp_diag and unix_diag"
    )]
    Kernel(#[source] Errno),
    /// A person, or the system, wanted it to stop.
    #[error("stopped before everything was looked at")]
    Interrupted,
}
