//! Errors of a scan.

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    #[error("/proc cannot be read ({0}); mount it: mount -t proc proc /proc")]
    Proc(#[source] Errno),
    /// Neither sock_diag nor /proc/self/net lists sockets.
    #[error(
        "the kernel does not list its sockets ({0}), and /proc/self/net does not show them; load the modules tcp_diag and unix_diag"
    )]
    Kernel(#[source] Errno),
    /// Interrupted by a signal.
    #[error("stopped before everything was looked at")]
    Interrupted,
}
