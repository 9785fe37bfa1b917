//! `udp` and `unixgram`: single datagrams. A listener has one socket for all senders and accepts nobody. Connecting
//! fixes the address that is sent to; over UDP nobody need be there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType};
use samehost_model::{Endpoint, Transport};

use super::Carrier;
use super::unix::{connect_to, path_address, start_to};
use crate::claim::Claim;
use crate::error::{ConnectError, ListenError, StartError};
use crate::observed::{Family, Kind, Protocol};
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

pub(crate) const UNIXGRAM: Carrier = Carrier {
    transport: Transport::Unixgram,
    connect: |endpoint, options| connect_to(endpoint, options, &path_address(endpoint)?, SocketType::DGRAM),
    start: |endpoint, options| start_to(endpoint, options, &path_address(endpoint)?, SocketType::DGRAM),
    listen: listen_at,
    carries: |seen| seen.family == Family::Unix && seen.kind == Kind::Datagram,
};

/// The first address of the host.
fn address(endpoint: &Endpoint) -> io::Result<SocketAddr> {
    match endpoint {
        Endpoint::Udp { host, port } => Ok(look_up(endpoint.transport(), host, *port)?[0]),
        _ => Err(Errno::AFNOSUPPORT.into()),
    }
}

fn open(address: SocketAddr, blocking: Blocking) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    socket::open(family, SocketType::DGRAM, blocking)
}

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let address =
        address(endpoint).map_err(|source| ConnectError::Lookup { endpoint: endpoint.clone(), source })?;
    let fd = open(address, Blocking::Yes).map_err(ConnectError::at(endpoint, options.timeout))?;
    let set = options.tuning.apply(&fd);
    set.map_err(|source| ConnectError::Tuning { endpoint: endpoint.clone(), source })?;
    net::connect(&fd, &address).map_err(ConnectError::at(endpoint, options.timeout))?;
    Ok(Stream::from_fd(fd, Transport::Udp))
}

fn start(endpoint: &Endpoint, options: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    let address =
        address(endpoint).map_err(|source| StartError::Lookup { endpoint: endpoint.clone(), source })?;
    let fd = open(address, Blocking::No).map_err(StartError::at(endpoint))?;
    let set = options.tuning.apply(&fd);
    set.map_err(|source| StartError::Tuning { endpoint: endpoint.clone(), source })?;
    net::connect(&fd, &address).map_err(StartError::at(endpoint))?;
    Ok((Stream::from_fd(fd, Transport::Udp), Connecting::Done))
}

fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address =
        address(endpoint).map_err(|source| ListenError::Lookup { endpoint: endpoint.clone(), source })?;
    let fd = open(address, Blocking::Yes).map_err(ListenError::at(endpoint))?;
    let set = options.tuning.apply(&fd);
    set.map_err(|source| ListenError::Tuning { endpoint: endpoint.clone(), source })?;
    net::bind(&fd, &address).map_err(ListenError::at(endpoint))?;
    let actual = net::getsockname(&fd).and_then(SocketAddr::try_from).map_err(ListenError::at(endpoint))?;
    let actual = Endpoint::Udp { host: actual.ip().to_string(), port: actual.port() };
    Ok(Listener::new(fd, actual, Transport::Udp))
}

fn listen_at(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address = path_address(endpoint)?;
    let fd = socket::open(AddressFamily::UNIX, SocketType::DGRAM, Blocking::Yes)
        .map_err(ListenError::at(endpoint))?;
    let set = options.tuning.apply(&fd);
    set.map_err(|source| ListenError::Tuning { endpoint: endpoint.clone(), source })?;
    // The file has these permissions at once, as that of a stream socket.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(options.mode)).map_err(ListenError::at(endpoint))?;
    let claim = Claim::take(endpoint, options, |_| net::bind(&fd, &address))?;
    claim.set_rights(endpoint, options)?;
    Ok(Listener::new(fd, endpoint.clone(), Transport::Unixgram).with_claim(claim))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{RecvFlags, SendFlags, recv, send};

    use super::*;

    #[test]
    fn a_datagram_arrives_whole_and_the_kernel_confirms_the_transport() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        for (endpoint, transport, begins) in [
            ("udp:127.0.0.1:0".parse().unwrap(), Transport::Udp, "AF_INET datagram udp, 127.0.0.1:"),
            (Endpoint::Unixgram(path.clone()), Transport::Unixgram, "AF_UNIX datagram "),
        ] {
            let listener = crate::transports::listen(&endpoint, &ListenOptions::default()).unwrap();
            let sender = crate::transports::connect(listener.endpoint(), &ConnectOptions::default()).unwrap();
            let seen = sender.observed().unwrap();
            assert!(seen.matches(transport) && !seen.matches(Transport::Tcp), "{seen}");
            assert!(seen.to_string().starts_with(begins), "{seen}");
            for message in [&b"one"[..], b"", b"three"] {
                send(sender.as_fd(), message, SendFlags::empty()).unwrap();
                let mut buffer = [0; 64];
                let (read, _) = recv(listener.as_fd(), &mut buffer, RecvFlags::empty()).unwrap();
                assert_eq!(&buffer[..read], message);
            }
        }
        assert!(!path.exists(), "the listener takes its file away");
        let nobody = crate::transports::connect(&Endpoint::Unixgram(path), &ConnectOptions::default());
        assert!(matches!(nobody, Err(ConnectError::NotFound { .. })), "{nobody:?}");
    }
}
