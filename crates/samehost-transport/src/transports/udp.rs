//! `udp`: single datagrams. A listener has one socket for all senders and accepts nobody. Connecting fixes the address that
//! is sent to; nobody need be there.

use std::net::SocketAddr;

use rustix::net::{self, SocketType};
use samehost_model::{Endpoint, Transport};

use super::Carrier;
use crate::error::{ConnectError, ListenError, StartError};
use crate::observed::{Kind, Protocol};
use crate::socket::{self, Blocking, Connecting, look_up};
use crate::stream::{Listener, Stream};
use crate::tuning::{ConnectOptions, ListenOptions};

pub(crate) const UDP: Carrier = Carrier {
    transport: Transport::Udp,
    connect,
    start,
    listen,
    carries: |seen| seen.kind == Kind::Datagram && seen.protocol == Some(Protocol::Udp),
};

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let address = look_up(endpoint).map_err(|source| ConnectError::Lookup(endpoint.clone(), source))?[0];
    let fd = socket::open_for(address, SocketType::DGRAM, Blocking::Yes)
        .map_err(ConnectError::at(endpoint, options.timeout))?;
    options.tuning.apply(&fd).map_err(|source| ConnectError::Tuning(endpoint.clone(), source))?;
    net::connect(&fd, &address).map_err(ConnectError::at(endpoint, options.timeout))?;
    Ok(Stream::from_fd(fd, Transport::Udp))
}

fn start(endpoint: &Endpoint, options: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    let address = look_up(endpoint).map_err(|source| StartError::Lookup(endpoint.clone(), source))?[0];
    let fd = socket::open_for(address, SocketType::DGRAM, Blocking::No).map_err(StartError::at(endpoint))?;
    options.tuning.apply(&fd).map_err(|source| StartError::Tuning(endpoint.clone(), source))?;
    net::connect(&fd, &address).map_err(StartError::at(endpoint))?;
    Ok((Stream::from_fd(fd, Transport::Udp), Connecting::Done))
}

fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address = look_up(endpoint).map_err(|source| ListenError::Lookup(endpoint.clone(), source))?[0];
    let fd =
        socket::open_for(address, SocketType::DGRAM, Blocking::Yes).map_err(ListenError::at(endpoint))?;
    options.tuning.apply(&fd).map_err(|source| ListenError::Tuning(endpoint.clone(), source))?;
    net::bind(&fd, &address).map_err(ListenError::at(endpoint))?;
    let actual = net::getsockname(&fd).and_then(SocketAddr::try_from).map_err(ListenError::at(endpoint))?;
    let actual = Endpoint::Udp { host: actual.ip().to_string(), port: actual.port() };
    Ok(Listener::new(fd, actual, Transport::Udp))
}
