//! `seqpacket`: a Unix socket with a path that preserves message boundaries. `Stream` documents the effects
//! on reads, writes and the end of the stream.

use rustix::net::SocketType;
use samehost_model::Transport;

use super::Carrier;
use super::unix::{connect_to, listen_at, path_address, start_to};
use crate::observed::{Family, Kind};

pub(crate) const CARRIER: Carrier = Carrier {
    transport: Transport::Seqpacket,
    connect: |endpoint, options| {
        connect_to(endpoint, options, &path_address(endpoint)?, SocketType::SEQPACKET)
    },
    start: |endpoint, options| start_to(endpoint, options, &path_address(endpoint)?, SocketType::SEQPACKET),
    listen: |endpoint, options| listen_at(endpoint, options, SocketType::SEQPACKET),
    carries: |seen| seen.family == Family::Unix && seen.kind == Kind::Seqpacket,
};
