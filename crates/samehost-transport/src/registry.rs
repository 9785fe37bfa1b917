//! The list of transports: one line each. What a transport does is in its own file under `transports/`; nothing
//! above may ask which transport it has, but for the async adapter, which has two families of its own.

use samehost_model::{Endpoint, Transport};

use crate::connect::ConnectOptions;
use crate::connect_error::{ConnectError, StartError};
use crate::listen::{ListenOptions, Listener};
use crate::listen_error::ListenError;
use crate::observed::Observed;
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::transports::{abstract_name, pipe, seqpacket, socketpair, tcp, tls, unix};

/// See [`connect_nonblocking`](crate::connect_nonblocking).
type Start = fn(&Endpoint, &ConnectOptions) -> Result<(Stream, Connecting), StartError>;

/// What a transport's file provides.
pub(crate) struct Carrier {
    /// The transport that it carries.
    pub(crate) transport: Transport,
    /// Connects and waits until it is done.
    pub(crate) connect: fn(&Endpoint, &ConnectOptions) -> Result<Stream, ConnectError>,
    /// Sends connect(2) on a nonblocking socket and waits for nothing.
    pub(crate) start: Start,
    /// Starts to listen.
    pub(crate) listen: fn(&Endpoint, &ListenOptions) -> Result<Listener, ListenError>,
    /// Whether what the kernel says of a descriptor fits this transport.
    pub(crate) carries: fn(&Observed) -> bool,
}

/// Every transport.
pub(crate) const CARRIERS: [Carrier; 8] = [
    tcp::TCP,
    tcp::TCP6,
    unix::CARRIER,
    abstract_name::CARRIER,
    tls::CARRIER,
    seqpacket::CARRIER,
    socketpair::CARRIER,
    pipe::CARRIER,
];

/// The carrier of a transport; none where no bytes travel (`none`, `command`).
pub(crate) fn carrier(transport: Transport) -> Option<&'static Carrier> {
    const { &CARRIERS }.iter().find(|carrier| carrier.transport == transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_of_the_model_is_listed_once() {
        for transport in Transport::ALL {
            let lines = CARRIERS.iter().filter(|carrier| carrier.transport == transport).count();
            assert_eq!(lines, 1, "{transport}");
        }
        assert_eq!(CARRIERS.len(), Transport::ALL.len());
        assert!(carrier(Transport::None).is_none());
    }
}
