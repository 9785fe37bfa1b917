//! Datagrams that a service lost.

/// What a UDP socket of a service dropped since it was made, because its receive buffer was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The service, as a position in the list of services.
    pub service: usize,
    /// The socket, as a position in the list of sockets.
    pub socket: usize,
    /// How many datagrams, modulo 2³²; often 0.
    pub datagrams: u32,
}
