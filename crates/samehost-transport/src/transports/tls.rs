//! `tcp+tls`: TLS 1.3 or 1.2 over TCP, over whichever family the host has. The client's `connect` performs
//! the handshake; in all other cases the first reads and writes do.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::net::sockopt::{self, Timeout};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use samehost_model::{Endpoint, Transport};

use super::{Carrier, tcp};
use crate::error::{ConnectError, ListenError, StartError};
use crate::socket::{self, Connecting, remaining};
use crate::stream::{Listener, Stream};
use crate::tls::{TlsSession, TlsTrust};
use crate::tuning::{ConnectOptions, ListenOptions};

pub(crate) const CARRIER: Carrier =
    Carrier { transport: Transport::TcpTls, connect, start, listen, carries: tcp::is_tcp };

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let deadline = socket::deadline(options.timeout);
    let (fd, address) = tcp::connect_socket(endpoint, options, deadline)?;
    let session = session(endpoint, &options.tls, fd, address)
        .map_err(|source| ConnectError::Tls(endpoint.clone(), source))?;
    finish(session, endpoint, options, deadline)
}

fn finish(
    mut session: TlsSession,
    endpoint: &Endpoint,
    options: &ConnectOptions,
    deadline: Option<Instant>,
) -> Result<Stream, ConnectError> {
    match handshake(&mut session, deadline) {
        Ok(()) => Ok(Stream::tls(session)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(ConnectError::TimedOut(endpoint.clone(), options.timeout.unwrap_or_default()))
        }
        Err(source) => Err(ConnectError::Tls(endpoint.clone(), source)),
    }
}

/// Upgrades a plain TCP connection to TLS, for protocols that negotiate it first (MySQL, PostgreSQL).
/// `endpoint` is the `tcp+tls` endpoint with the same host and port. No byte of the peer's handshake may have
/// been read yet. The stream is blocking.
///
/// # Errors
/// [`ConnectError`] if the stream is not a plain TCP connection, the certificate is rejected, or the
/// handshake fails or takes too long.
pub fn start_tls(
    stream: Stream,
    endpoint: &Endpoint,
    options: &ConnectOptions,
) -> Result<Stream, ConnectError> {
    let deadline = socket::deadline(options.timeout);
    let failed = |source| ConnectError::Tls(endpoint.clone(), source);
    let (fd, _) = stream.into_fds().map_err(failed)?;
    let peer = rustix::net::getpeername(&fd).map_err(|error| failed(error.into()))?;
    let address = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let address = address.ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))?;
    let session = session(endpoint, &options.tls, fd, address).map_err(failed)?;
    finish(session, endpoint, options, deadline)
}

/// Performs the handshake on a blocking socket; `WouldBlock` after the deadline.
fn handshake(session: &mut TlsSession, deadline: Option<Instant>) -> io::Result<()> {
    while session.is_handshaking() {
        if let Some(deadline) = deadline {
            if deadline <= Instant::now() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            limit(session, Some(deadline))?;
        }
        session.handshake_once()?;
    }
    session.flush()?;
    if deadline.is_some() {
        limit(session, None)?;
    }
    Ok(())
}

fn limit(session: &TlsSession, deadline: Option<Instant>) -> io::Result<()> {
    let time = deadline.map(remaining);
    sockopt::set_socket_timeout(session.as_fd(), Timeout::Recv, time)?;
    Ok(sockopt::set_socket_timeout(session.as_fd(), Timeout::Send, time)?)
}

fn session(
    endpoint: &Endpoint,
    trust: &TlsTrust,
    fd: OwnedFd,
    address: SocketAddr,
) -> io::Result<TlsSession> {
    if trust.loopback_only && !address.ip().is_loopback() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "any certificate is accepted on loopback only, and {address} is not; pin the certificate"
            ),
        ));
    }
    let Endpoint::TcpTls { host, .. } = endpoint else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    let client = ClientConnection::new(trust.config.clone(), name).map_err(io::Error::other)?;
    Ok(TlsSession::new(client.into(), fd))
}

fn start(endpoint: &Endpoint, options: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    let (fd, address, connecting) = tcp::start_socket(endpoint, options)?;
    let session = session(endpoint, &options.tls, fd, address)
        .map_err(|source| StartError::Tls(endpoint.clone(), source))?;
    Ok((Stream::tls(session), connecting))
}

fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let Some(tls) = &options.tls else {
        return Err(ListenError::NoCertificate(endpoint.clone()));
    };
    let (fd, address) = tcp::listen_socket(endpoint, options)?;
    let actual = Endpoint::TcpTls { host: address.ip().to_string(), port: address.port() };
    Ok(Listener { tls: Some(tls.config.clone()), ..Listener::new(fd, actual, Transport::TcpTls) })
}
