//! Endpoints for async programs: `tcp`, `unix` and `abstract` as tokio streams. Only an adapter: addresses,
//! safe listening and errors are those of the blocking API.
//!
//! Does not support TLS (wrap the [`Stream`] of a `tcp:` endpoint in tokio-rustls) or seqpacket, which tokio does
//! not have. For a time limit use `tokio::time::timeout` around [`connect`]. A Unix socket with a full backlog fails
//! immediately ([`ConnectError::BacklogFull`]), because the kernel offers no way to wait for space except blocking.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use samehost_transport::{ListenOptions, tokio as transport};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let listener = transport::listen(&"tcp:127.0.0.1:0".parse()?, &ListenOptions::default()).await?;
//! let mut client = transport::connect(listener.endpoint()).await?;
//! let mut server = listener.accept().await?;
//! client.write_all(b"ping").await?;
//! let mut got = [0; 4];
//! server.read_exact(&mut got).await?;
//! assert_eq!(&got, b"ping");
//! # Ok(()) })
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};
use rustix::io::Errno;
use samehost_model::{Endpoint, Transport};

use crate::claim::Claim;
use crate::error::{ConnectError, ListenError, StartError};
use crate::observed::Observed;
use crate::tuning::{ConnectOptions, ListenOptions, Tuning};

const NOT_ASYNC: &str = "async connections are tcp, tcp6, unix and abstract; use the blocking side, or wrap a tcp stream in tokio-rustls for TLS";

/// An async connection.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Connects. Must be called inside a tokio runtime with I/O enabled.
///
/// # Errors
/// [`ConnectError`], as in the blocking API.
pub async fn connect(endpoint: &Endpoint) -> Result<Stream, ConnectError> {
    match endpoint {
        Endpoint::Tcp { host, port } => connect_tcp(endpoint, host, *port).await,
        Endpoint::Unix(_) | Endpoint::Abstract(_) => connect_unix(endpoint),
        _ => Err(ConnectError::Unsupported(endpoint.clone(), NOT_ASYNC)),
    }
}

async fn connect_tcp(endpoint: &Endpoint, host: &str, port: u16) -> Result<Stream, ConnectError> {
    let mut addresses: Vec<_> = lookup_host((host, port))
        .await
        .map_err(|source| ConnectError::Lookup(endpoint.clone(), source))?
        .collect();
    addresses.sort_by_key(|address| address.is_ipv6() != (endpoint.transport() == Transport::Tcp6));
    let mut last = io::Error::from(Errno::ADDRNOTAVAIL);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // As in the blocking API, for the reason given in `socket::open`.
                stream.set_nodelay(true).map_err(|error| failed(endpoint, error))?;
                return Ok(Stream(Inner::Tcp(stream)));
            }
            Err(error) => last = error,
        }
    }
    Err(failed(endpoint, last))
}

/// A Unix socket connects or fails immediately, so there is nothing to await.
fn connect_unix(endpoint: &Endpoint) -> Result<Stream, ConnectError> {
    let (stream, _) =
        crate::connect_nonblocking(endpoint, &ConnectOptions::default()).map_err(|error| match error {
            StartError::Os(_, errno) => ConnectError::from_errno(endpoint, errno, None),
            StartError::Address(error) => ConnectError::Address(error),
            StartError::Tuning(endpoint, source) => ConnectError::Tuning(endpoint, source),
            other => failed(endpoint, io::Error::other(other)),
        })?;
    let stream = stream
        .into_fds()
        .and_then(|(fd, _)| UnixStream::from_std(fd.into()))
        .map_err(|error| failed(endpoint, error))?;
    Ok(Stream(Inner::Unix(stream)))
}

fn failed(endpoint: &Endpoint, error: io::Error) -> ConnectError {
    match Errno::from_io_error(&error) {
        Some(errno) => ConnectError::from_errno(endpoint, errno, None),
        None => ConnectError::Other(endpoint.clone(), error),
    }
}

impl Stream {
    /// What the kernel reports about the descriptor.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub fn observed(&self) -> io::Result<Observed> {
        Observed::of(self.as_fd())
    }
}

impl TryFrom<crate::Stream> for Stream {
    type Error = io::Error;

    /// Converts a blocking connection. Must be called inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// Unsupported for transports other than `tcp`, `tcp6`, `unix` and `abstract`; errors of the kernel.
    fn try_from(stream: crate::Stream) -> io::Result<Stream> {
        let transport = stream.transport();
        stream.set_nonblocking(true)?;
        match (transport, stream.into_fds()?) {
            (Transport::Tcp | Transport::Tcp6, (fd, None)) => {
                TcpStream::from_std(fd.into()).map(|stream| Stream(Inner::Tcp(stream)))
            }
            (Transport::Unix | Transport::Abstract, (fd, None)) => {
                UnixStream::from_std(fd.into()).map(|stream| Stream(Inner::Unix(stream)))
            }
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, NOT_ASYNC)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Inner::Tcp(stream) => stream.as_fd(),
            Inner::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Inner::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Inner::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Inner::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Inner::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Inner::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// An async listener. Dropping it removes its socket file, as for the blocking one.
#[derive(Debug)]
pub struct Listener {
    // Dropped first, as in the blocking listener.
    _claim: Option<Claim>,
    socket: Socket,
    endpoint: Endpoint,
    /// Options set on each accepted socket.
    tuning: Tuning,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Listens as safely as the blocking [`listen`](crate::listen). Must be called inside a tokio runtime with
/// I/O enabled.
///
/// # Errors
/// [`ListenError`], as in the blocking API.
pub async fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    if !matches!(endpoint, Endpoint::Tcp { .. } | Endpoint::Unix(_) | Endpoint::Abstract(_)) {
        return Err(ListenError::Unsupported(endpoint.clone(), NOT_ASYNC));
    }
    let listener = crate::listen(endpoint, options)?;
    let failed = |source| ListenError::Other(endpoint.clone(), source);
    listener.set_nonblocking(true).map_err(failed)?;
    let crate::Listener { claim, fd, endpoint: actual, tuning, .. } = listener;
    let socket = match actual {
        Endpoint::Tcp { .. } => TcpListener::from_std(fd.into()).map(Socket::Tcp),
        _ => UnixListener::from_std(fd.into()).map(Socket::Unix),
    };
    Ok(Listener { _claim: claim, socket: socket.map_err(failed)?, endpoint: actual, tuning })
}

impl Listener {
    /// The actual endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Errors of accept(2), such as too many open files.
    pub async fn accept(&self) -> io::Result<Stream> {
        let stream = Stream(match &self.socket {
            Socket::Tcp(listener) => Inner::Tcp(listener.accept().await?.0),
            Socket::Unix(listener) => Inner::Unix(listener.accept().await?.0),
        });
        if !self.tuning.is_none() {
            self.tuning.apply(&stream).map_err(io::Error::other)?;
        }
        Ok(stream)
    }
}
