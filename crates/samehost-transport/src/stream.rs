//! `Stream` and `Listener`: one type each for all transports, so that code using them does not depend on the transport.
//! `claim.rs` takes a listener's path.
//!
//! Reads and writes without TLS are the hot path of a benchmark: one system call behind an inlined match,
//! repeated only after a signal. This code must not lock, allocate or read a clock.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{Shutdown, SocketFlags, accept_with};
use rustls::{ServerConfig, ServerConnection};
use samehost_model::{Endpoint, Transport};

use crate::claim::Claim;
use crate::observed::Observed;
use crate::tls::TlsSession;
use crate::tuning::Tuning;

/// A connection over any transport.
///
/// * Over `seqpacket` one `read` returns one message; the part that exceeds the buffer is lost. A write is one
///   message, and fails with EMSGSIZE when it exceeds the send buffer (`net.core.wmem_default`, 208 KiB by default,
///   of which the kernel reserves some). An empty message cannot be distinguished from the end of the stream.
/// * Over `tcp+tls` decrypted bytes may be buffered ([`has_buffered`](Self::has_buffered)), and accepted
///   bytes may not be sent yet ([`wants_write`](Self::wants_write)); an epoll loop must check both.
/// * A write to a closed peer raises SIGPIPE, which Rust programs ignore by default.
pub struct Stream {
    inner: Inner,
    transport: Transport,
}

enum Inner {
    /// One descriptor for both directions.
    Socket(OwnedFd),
    /// One descriptor for each direction; writing is ended by closing its descriptor.
    Pipe { read: OwnedFd, write: Option<OwnedFd> },
    /// A socket with its TLS session.
    Tls(Box<TlsSession>),
}

impl Stream {
    /// Wraps a connected socket, such as an inherited one. Bytes are passed unchanged: a TLS session cannot
    /// be taken over.
    #[must_use]
    pub fn from_fd(fd: OwnedFd, transport: Transport) -> Stream {
        Stream { inner: Inner::Socket(fd), transport }
    }

    /// Wraps the ends of two pipes.
    #[must_use]
    pub fn pipe(read: OwnedFd, write: OwnedFd) -> Stream {
        Stream { inner: Inner::Pipe { read, write: Some(write) }, transport: Transport::Pipe }
    }

    pub(crate) fn tls(session: TlsSession) -> Stream {
        Stream { inner: Inner::Tls(Box::new(session)), transport: Transport::TcpTls }
    }

    /// The transport as configured; [`observed`](Self::observed) asks the kernel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The descriptors, for a child process' standard input and output: one for a socket, read and write side
    /// for pipes. Only the read side for a pipe whose write side was shut down.
    ///
    /// # Errors
    /// Unsupported for TLS, because the descriptor does not contain the keys.
    pub fn into_fds(self) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        match self.inner {
            Inner::Socket(fd) => Ok((fd, None)),
            Inner::Pipe { read, write } => Ok((read, write)),
            Inner::Tls(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a TLS session's keys do not travel with its descriptor; hand over a plain socket",
            )),
        }
    }

    /// Makes reads and writes return `WouldBlock` instead of waiting, or wait again.
    ///
    /// # Errors
    /// Errors of ioctl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(self.as_fd(), nonblocking)?;
        if let Inner::Pipe { write: Some(write), .. } = &self.inner {
            rustix::io::ioctl_fionbio(write, nonblocking)?;
        }
        Ok(())
    }

    /// Whether a read would return data or the end although the descriptor may not be readable: decrypted
    /// bytes, or the peer's close. Always false without TLS.
    #[inline]
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        match &self.inner {
            Inner::Tls(session) => session.has_buffered(),
            _ => false,
        }
    }

    /// Whether accepted bytes are not sent yet, so that [`flush`](Write::flush) must be called when the
    /// descriptor is writable. Always false without TLS.
    #[inline]
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match &self.inner {
            Inner::Tls(session) => session.wants_write(),
            _ => false,
        }
    }

    /// Waits in poll(2) until a read would return something, up to the time limit. Returns immediately over
    /// TLS, where decrypted bytes may be buffered.
    ///
    /// A thread that sleeps in `read` of a Unix socket is also woken when the peer receives what was sent
    /// (`unix_write_space` in net/unix/af_unix.c wakes all sleepers on the socket). A thread in poll is woken
    /// only by the requested events. TCP has no such difference.
    ///
    /// # Errors
    /// `TimedOut`; errors of poll(2).
    #[inline]
    pub fn wait_readable(&self, patience: Option<Duration>) -> io::Result<()> {
        if let Inner::Tls(_) = &self.inner {
            return Ok(());
        }
        let limit = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut asked = [PollFd::new(self, PollFlags::IN)];
        match retry_on_intr(|| poll(&mut asked, limit.as_ref()))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Until when reads may go on over TLS, where one takes several reads of the socket: `TimedOut` after it. Each of those
    /// waits as long as the socket's own limit (SO_RCVTIMEO) allows. No effect on other transports.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        if let Inner::Tls(session) = &mut self.inner {
            session.set_deadline(deadline);
        }
    }

    /// Ends writing: the peer reads until the end, and reading continues on this side. Shuts down a socket,
    /// sends close_notify over TLS, closes the write side of a pipe.
    ///
    /// # Errors
    /// `WouldBlock` on a nonblocking TLS stream that could not send everything: call it again when the stream
    /// is writable.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Socket(fd) => Ok(rustix::net::shutdown(fd, Shutdown::Write)?),
            Inner::Pipe { write, .. } => {
                *write = None;
                Ok(())
            }
            Inner::Tls(session) => session.shutdown_write(),
        }
    }

    /// Result of a connection that was in progress; also clears the socket's error.
    ///
    /// # Errors
    /// The connection's error, such as ECONNREFUSED.
    pub fn take_error(&self) -> io::Result<()> {
        match &self.inner {
            Inner::Pipe { .. } => Ok(()),
            _ => Ok(rustix::net::sockopt::socket_error(self.as_fd())??),
        }
    }

    /// What the kernel reports about the descriptor.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub fn observed(&self) -> io::Result<Observed> {
        Observed::of(self.as_fd())
    }

    /// Protocol version and cipher suite, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`; `None` without TLS or
    /// before the handshake.
    #[must_use]
    pub fn cipher(&self) -> Option<String> {
        match &self.inner {
            Inner::Tls(session) => session.cipher(),
            _ => None,
        }
    }
}

#[cold]
fn write_side_is_shut() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the write side was shut down")
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Socket(fd) => Ok(retry_on_intr(|| rustix::io::read(&*fd, &mut *buffer))?),
            Inner::Pipe { read, .. } => Ok(retry_on_intr(|| rustix::io::read(&*read, &mut *buffer))?),
            Inner::Tls(session) => session.read(buffer),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Socket(fd) => Ok(retry_on_intr(|| rustix::io::write(&*fd, bytes))?),
            Inner::Pipe { write: Some(write), .. } => {
                Ok(retry_on_intr(|| rustix::io::write(&*write, bytes))?)
            }
            Inner::Pipe { write: None, .. } => Err(write_side_is_shut()),
            Inner::Tls(session) => session.write(bytes),
        }
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Socket(fd) => Ok(retry_on_intr(|| rustix::io::writev(&*fd, slices))?),
            Inner::Pipe { write: Some(write), .. } => {
                Ok(retry_on_intr(|| rustix::io::writev(&*write, slices))?)
            }
            Inner::Pipe { write: None, .. } => Err(write_side_is_shut()),
            Inner::Tls(session) => match slices.iter().find(|slice| !slice.is_empty()) {
                Some(slice) => session.write(slice),
                None => Ok(0),
            },
        }
    }

    /// Sends bytes that TLS has buffered; nothing is buffered without TLS.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Tls(session) => session.flush(),
            _ => Ok(()),
        }
    }
}

impl AsFd for Stream {
    /// The descriptor for reading.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.inner {
            Inner::Socket(fd) | Inner::Pipe { read: fd, .. } => fd.as_fd(),
            Inner::Tls(session) => session.as_fd(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("transport", &self.transport).field("fd", &self.as_fd()).finish()
    }
}

/// A listening socket. Dropping it closes it, and removes the socket file if it is still the one that it created.
pub struct Listener {
    // Dropped first: the file is removed while the socket still listens, so that no client gets a refusal
    // from a leftover file.
    pub(crate) claim: Option<Claim>,
    pub(crate) fd: OwnedFd,
    pub(crate) endpoint: Endpoint,
    pub(crate) transport: Transport,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Options set on each accepted socket, because Unix sockets do not inherit them from the listener.
    pub(crate) tuning: Tuning,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd, endpoint: Endpoint, transport: Transport) -> Self {
        Listener { claim: None, fd, endpoint, transport, tls: None, tuning: Tuning::default() }
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
        let fd = retry_on_intr(|| accept_with(&self.fd, SocketFlags::CLOEXEC))?;
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
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.claim.as_ref().map(|claim| &claim.path);
        f.debug_struct("Listener")
            .field("endpoint", &self.endpoint)
            .field("path", &path)
            .finish_non_exhaustive()
    }
}
