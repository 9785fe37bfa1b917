//! `listen`: one endpoint string decides how. Options, entry point and the listener itself; how each transport
//! starts is in its own file, who may have a path in `claim.rs`.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::retry_on_intr;
use rustix::net::{SocketFlags, accept_with};
use rustls::{ServerConfig, ServerConnection};
use samehost_model::{Endpoint, Transport};

use crate::claim::Claim;
use crate::connect_error::PARENT_NEEDED;
use crate::listen_error::ListenError;
use crate::registry::carrier;
use crate::stream::Stream;
use crate::tls_session::TlsSession;
use crate::tls_trust::TlsServer;
use crate::tuning::Tuning;

/// How to listen. What does not concern the endpoint's transport is ignored.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// How many connections may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
    pub backlog: i32,
    /// Permission bits of the socket file. Connecting needs the w bit; the file never has more rights than these.
    pub mode: u32,
    /// User and group of the socket file, and of the directory if it is created; changing them needs root.
    pub owner: Option<(u32, u32)>,
    /// Create the socket's directory (the last one only, mode 0700) where it is missing. It is left in place.
    pub create_directory: bool,
    /// Refuse paths under /tmp and /var/tmp, where any user may have put something in the way first.
    pub refuse_tmp: bool,
    /// The certificate of a `tcp+tls` listener, which cannot do without.
    pub tls: Option<TlsServer>,
    /// How the sockets of its connections are set.
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
    /// For a service that stays: the default, but not under /tmp.
    #[must_use]
    pub fn service() -> Self {
        ListenOptions { refuse_tmp: true, ..ListenOptions::default() }
    }
}

/// Listens on an endpoint.
///
/// A path is taken safely. A lock file beside it (`PATH.samehost-lock`, held as long as the listener lives) decides between
/// two starters. What already has the path is left alone, unless it is a socket that nobody answers: that one is
/// removed. To find out, one connection is made to it and closed.
///
/// # Errors
/// [`ListenError`], which names the endpoint, the cause and what to try next.
pub fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    match carrier(endpoint.transport()) {
        Some(carrier) => (carrier.listen)(endpoint, options),
        None => Err(ListenError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED }),
    }
}

/// A listening socket. Dropping it closes it, and removes the socket file if that is still the one it made.
pub struct Listener {
    // Dropped first: the file goes while the socket still listens, so that no client meets a file that refuses.
    claim: Option<Claim>,
    fd: OwnedFd,
    endpoint: Endpoint,
    transport: Transport,
    tls: Option<Arc<ServerConfig>>,
    /// What accepted sockets are set to one by one: a Unix listener hands nothing on.
    tuning: Tuning,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd, endpoint: Endpoint, transport: Transport) -> Self {
        Listener { claim: None, fd, endpoint, transport, tls: None, tuning: Tuning::default() }
    }

    pub(crate) fn with_claim(self, claim: Claim) -> Self {
        Listener { claim: Some(claim), ..self }
    }

    pub(crate) fn with_tls(self, tls: Arc<ServerConfig>) -> Self {
        Listener { tls: Some(tls), ..self }
    }

    pub(crate) fn tuning_each(self, tuning: Tuning) -> Self {
        Listener { tuning, ..self }
    }

    /// Where it really listens: port 0 has become the port that the kernel chose, a host name an address.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes the next connection, which blocks whether or not the listener does. A TLS handshake is left to the
    /// stream's first reads and writes: a client that never starts it holds up nobody else.
    ///
    /// # Errors
    /// `WouldBlock` when nobody waits at a nonblocking listener; EMFILE; ECONNABORTED when the client is gone again.
    pub fn accept(&self) -> io::Result<Stream> {
        self.accepted(SocketFlags::CLOEXEC)
    }

    /// Takes the next connection with its stream nonblocking from the start, which saves a call.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_nonblocking(&self) -> io::Result<Stream> {
        self.accepted(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn accepted(&self, flags: SocketFlags) -> io::Result<Stream> {
        let fd = retry_on_intr(|| accept_with(&self.fd, flags))?;
        if !self.tuning.is_none() {
            self.tuning.apply(&fd).map_err(io::Error::other)?;
        }
        match &self.tls {
            None => Ok(Stream::from_fd(fd, self.transport)),
            Some(config) => {
                let server = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
                Ok(Stream::tls(TlsSession::new(server.into(), fd)))
            }
        }
    }

    /// Makes [`accept`](Self::accept) return `WouldBlock` in place of waiting, or wait again.
    ///
    /// # Errors
    /// What ioctl(2) says.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, nonblocking)?)
    }

    /// The parts that async code needs: the socket, and what must live as long as it.
    #[cfg(feature = "tokio")]
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<Claim>, Endpoint, Tuning) {
        (self.fd, self.claim, self.endpoint, self.tuning)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.claim.as_ref().map(Claim::path);
        f.debug_struct("Listener")
            .field("endpoint", &self.endpoint)
            .field("path", &path)
            .finish_non_exhaustive()
    }
}
