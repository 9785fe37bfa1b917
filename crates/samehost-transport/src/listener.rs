//! The listener that every transport returns; `claim.rs` takes its path.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{fmt, io};

use rustix::io::retry_on_intr;
use rustix::net::{SocketFlags, accept_with};
use rustls::{ServerConfig, ServerConnection};
use samehost_model::{Endpoint, Transport};

use crate::claim::Claim;
use crate::stream::Stream;
use crate::tls::TlsSession;
use crate::tuning::Tuning;

/// A listening socket. Dropping it closes it, and removes the socket file if it is still the one that it created.
pub struct Listener {
    // Dropped first: the file is removed while the socket still listens, so that no client gets a refusal
    // from a leftover file.
    claim: Option<Claim>,
    fd: OwnedFd,
    endpoint: Endpoint,
    transport: Transport,
    tls: Option<Arc<ServerConfig>>,
    /// Options set on each accepted socket, because Unix sockets do not inherit them from the listener.
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

    /// The actual endpoint: with the port that the kernel chose instead of 0, and an address instead of a host name.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Accepts the next connection; the stream is blocking even if the listener is not. The TLS handshake
    /// takes place in the stream's first reads and writes, so a client that does not start it does not block
    /// other clients.
    ///
    /// # Errors
    /// `WouldBlock` if a nonblocking listener has no waiting connection; EMFILE; ECONNABORTED if the client
    /// has gone.
    pub fn accept(&self) -> io::Result<Stream> {
        self.accepted(SocketFlags::CLOEXEC)
    }

    /// Accepts the next connection as a nonblocking stream, with one system call less than setting it afterwards.
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

    /// Makes [`accept`](Self::accept) return `WouldBlock` instead of waiting, or wait again.
    ///
    /// # Errors
    /// Errors of ioctl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, nonblocking)?)
    }

    /// Parts for async code: the socket, and values that must live as long as the socket.
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
