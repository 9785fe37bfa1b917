//! One sender: a socket, and a metric that it sends over and over.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, send, sendto, socket_with,
};
use samehost_model::{Endpoint, Transport};
use samehost_transport::{ConnectOptions, Stream, connect};

use super::fates::Sent;
use super::{Naming, Sending};
use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;
use crate::workloads::connecting::prove;

/// Whom each datagram is for.
enum To {
    /// Whoever the socket is connected to.
    Peer,
    Udp(SocketAddr),
    Unix(SocketAddrUnix),
}

/// A thread's socket.
pub(super) struct Sender {
    socket: Stream,
    to: To,
    flags: SendFlags,
    metric: Arc<[u8]>,
    sent: Arc<Sent>,
}

impl Sender {
    pub(super) fn new(
        endpoint: &Endpoint,
        sending: Sending,
        naming: Naming,
        metric: Arc<[u8]>,
        sent: Arc<Sent>,
    ) -> Result<Self, BenchError> {
        let flags = match sending {
            Sending::Blocking => SendFlags::empty(),
            Sending::Nonblocking => SendFlags::DONTWAIT,
        };
        let (socket, to) = match naming {
            Naming::Connected => (connect(endpoint, &ConnectOptions::default())?, To::Peer),
            Naming::Unconnected => unconnected(endpoint)?,
        };
        prove(&socket, endpoint.transport())?;
        Ok(Sender { socket, to, flags, metric, sent })
    }
}

/// A socket that is not connected, and the address for each of its datagrams.
fn unconnected(endpoint: &Endpoint) -> Result<(Stream, To), BenchError> {
    let failed = |errno: Errno| BenchError::io(format!("a socket for {endpoint}"), errno);
    let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed);
    match endpoint {
        Endpoint::Unixgram(path) => {
            let to = SocketAddrUnix::new(path).map_err(failed)?;
            Ok((Stream::from_fd(open(AddressFamily::UNIX)?, Transport::Unixgram), To::Unix(to)))
        }
        Endpoint::Udp { host, port } => {
            let ip = host.parse().map_err(|_| failed(Errno::AFNOSUPPORT))?;
            let to = SocketAddr::new(ip, *port);
            let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
            Ok((Stream::from_fd(open(family)?, Transport::Udp), To::Udp(to)))
        }
        _ => Err(failed(Errno::AFNOSUPPORT)),
    }
}

impl Caller for Sender {
    fn call(&mut self) -> Result<(), Bad> {
        let (fd, metric, flags) = (self.socket.as_fd(), &self.metric[..], self.flags);
        let sent = retry_on_intr(|| match &self.to {
            To::Peer => send(fd, metric, flags),
            To::Udp(address) => sendto(fd, metric, flags, address),
            To::Unix(address) => sendto(fd, metric, flags, address),
        });
        match sent {
            Ok(_) => self.sent.taken.add_one(),
            // The metric is gone, as with a client that cannot wait. The workload counts it; it is not a failure of the
            // measurement.
            Err(Errno::AGAIN) => self.sent.full.add_one(),
            Err(Errno::NOBUFS) => self.sent.no_memory.add_one(),
            Err(errno) => return Err(Bad::new(kind(errno), errno.to_string())),
        }
        Ok(())
    }

    fn seen(&self) -> Option<Seen> {
        Some(Seen::of_socket(&self.socket))
    }
}

/// Kind of a failure, for the error counts.
fn kind(errno: Errno) -> &'static str {
    match errno {
        Errno::CONNREFUSED => "connection refused (no receiver)",
        Errno::MSGSIZE => "EMSGSIZE (too large for a datagram)",
        _ => "send failed",
    }
}
