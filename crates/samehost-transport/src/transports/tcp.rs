//! `tcp` and `tcp6`: TCP by host and port. Also the basis of `tcp+tls`, but independent of TLS.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{self, SocketType, sockopt};
use samehost_model::{Endpoint, Transport};

use super::Carrier;
use crate::error::{ConnectError, ListenError, StartError};
use crate::observed::{Family, Kind, Observed, Protocol};
use crate::socket::{self, Blocking, Connecting, look_up};
use crate::stream::{Listener, Stream};
use crate::tuning::{ConnectOptions, ListenOptions};

pub(crate) const TCP: Carrier = Carrier {
    transport: Transport::Tcp,
    connect,
    start,
    listen,
    carries: |seen| seen.family == Family::Inet && is_tcp(seen),
};

pub(crate) const TCP6: Carrier = Carrier {
    transport: Transport::Tcp6,
    carries: |seen| seen.family == Family::Inet6 && is_tcp(seen),
    ..TCP
};

pub(super) fn is_tcp(seen: &Observed) -> bool {
    matches!(seen.family, Family::Inet | Family::Inet6)
        && seen.kind == Kind::Stream
        && seen.protocol == Some(Protocol::Tcp)
}

/// Transport of an address, because `localhost` may resolve to either family.
fn transport(address: SocketAddr) -> Transport {
    if address.is_ipv6() { Transport::Tcp6 } else { Transport::Tcp }
}

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let deadline = socket::deadline(options.timeout);
    let (fd, address) = connect_socket(endpoint, options, deadline)?;
    Ok(Stream::from_fd(fd, transport(address)))
}

/// Tries the host's addresses in turn, within one deadline; returns the last one's error.
pub(super) fn connect_socket(
    endpoint: &Endpoint,
    options: &ConnectOptions,
    deadline: Option<Instant>,
) -> Result<(OwnedFd, SocketAddr), ConnectError> {
    let addresses = look_up(endpoint).map_err(|source| ConnectError::Lookup(endpoint.clone(), source))?;
    let mut last = Errno::ADDRNOTAVAIL;
    for address in addresses {
        let fd = socket::open_for(address, SocketType::STREAM, Blocking::Yes)
            .map_err(ConnectError::at(endpoint, options.timeout))?;
        options.tuning.apply(&fd).map_err(|source| ConnectError::Tuning(endpoint.clone(), source))?;
        match socket::connect(&fd, &address, deadline) {
            Ok(()) => return Ok((fd, address)),
            Err(errno) => last = errno,
        }
    }
    Err(ConnectError::from_errno(endpoint, last, options.timeout))
}

fn start(endpoint: &Endpoint, options: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    let (fd, address, connecting) = start_socket(endpoint, options)?;
    Ok((Stream::from_fd(fd, transport(address)), connecting))
}

/// Starts with the first address only; trying the next would require waiting.
pub(super) fn start_socket(
    endpoint: &Endpoint,
    options: &ConnectOptions,
) -> Result<(OwnedFd, SocketAddr, Connecting), StartError> {
    let address = look_up(endpoint).map_err(|source| StartError::Lookup(endpoint.clone(), source))?[0];
    let fd = socket::open_for(address, SocketType::STREAM, Blocking::No).map_err(StartError::at(endpoint))?;
    options.tuning.apply(&fd).map_err(|source| StartError::Tuning(endpoint.clone(), source))?;
    let connecting = socket::start(&fd, &address).map_err(StartError::at(endpoint))?;
    Ok((fd, address, connecting))
}

fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let (fd, address) = listen_socket(endpoint, options)?;
    let actual = Endpoint::Tcp { host: address.ip().to_string(), port: address.port() };
    Ok(Listener::new(fd, actual, transport(address)))
}

pub(super) fn listen_socket(
    endpoint: &Endpoint,
    options: &ListenOptions,
) -> Result<(OwnedFd, SocketAddr), ListenError> {
    let address = look_up(endpoint).map_err(|source| ListenError::Lookup(endpoint.clone(), source))?[0];
    // Accepted sockets inherit TCP_NODELAY from this one, so both ends have it without further system calls.
    let fd =
        socket::open_for(address, SocketType::STREAM, Blocking::Yes).map_err(ListenError::at(endpoint))?;
    // Allows reusing a port with connections in TIME_WAIT; a live listener still prevents it.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(ListenError::at(endpoint))?;
    if address.is_ipv6() {
        // `[::]` must not take the IPv4 port as well: tcp6 means IPv6 only.
        sockopt::set_ipv6_v6only(&fd, true).map_err(ListenError::at(endpoint))?;
    }
    // Inherited like TCP_NODELAY; a connection's window is fixed before it is accepted.
    options.tuning.apply(&fd).map_err(|source| ListenError::Tuning(endpoint.clone(), source))?;
    net::bind(&fd, &address).map_err(ListenError::at(endpoint))?;
    net::listen(&fd, options.backlog).map_err(ListenError::at(endpoint))?;
    let actual = net::getsockname(&fd).map_err(ListenError::at(endpoint))?;
    let actual = SocketAddr::try_from(actual).map_err(ListenError::at(endpoint))?;
    Ok((fd, actual))
}
