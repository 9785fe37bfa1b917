//! The list of transports. Each is implemented in its own file under `transports/`. No other code may depend
//! on which transport it has, except for the async adapter, which supports two families itself.

use samehost_model::{Endpoint, Transport};

use crate::connect::ConnectOptions;
use crate::connect_error::{ConnectError, StartError};
use crate::listen::{ListenOptions, Listener};
use crate::listen_error::ListenError;
use crate::observed::Observed;
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::transports::{abstract_name, datagram, pipe, run, seqpacket, socketpair, tcp, tls, unix};

/// See [`connect_nonblocking`](crate::connect_nonblocking).
type Start = fn(&Endpoint, &ConnectOptions) -> Result<(Stream, Connecting), StartError>;

/// Implementation of a transport.
pub(crate) struct Carrier {
    /// The implemented transport.
    pub(crate) transport: Transport,
    /// Connects and waits for completion.
    pub(crate) connect: fn(&Endpoint, &ConnectOptions) -> Result<Stream, ConnectError>,
    /// Calls connect(2) on a nonblocking socket, without waiting.
    pub(crate) start: Start,
    /// Starts listening.
    pub(crate) listen: fn(&Endpoint, &ListenOptions) -> Result<Listener, ListenError>,
    /// Whether the kernel's view of a descriptor matches this transport.
    pub(crate) carries: fn(&Observed) -> bool,
}

/// All transports.
pub(crate) const CARRIERS: [Carrier; 11] = [
    tcp::TCP,
    tcp::TCP6,
    unix::CARRIER,
    abstract_name::CARRIER,
    tls::CARRIER,
    seqpacket::CARRIER,
    socketpair::CARRIER,
    pipe::CARRIER,
    datagram::UDP,
    datagram::UNIXGRAM,
    run::CARRIER,
];

/// Implementation of a transport; `None` for those without a connection (`none`, `command`).
pub(crate) fn carrier(transport: Transport) -> Option<&'static Carrier> {
    const { &CARRIERS }.iter().find(|carrier| carrier.transport == transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_of_the_model_is_listed_once() {
        for transport in Transport::named() {
            let lines = CARRIERS.iter().filter(|carrier| carrier.transport == transport).count();
            assert_eq!(lines, 1, "{transport}");
        }
        assert_eq!(CARRIERS.len(), Transport::named().count());
        assert!(carrier(Transport::None).is_none());
    }
}
