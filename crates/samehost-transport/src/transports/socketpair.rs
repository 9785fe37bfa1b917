//! `socketpair`: two connected Unix stream sockets without a name; a parent passes one to its child.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use samehost_model::Transport;

use super::{Carrier, connect_needs_parent, listen_needs_parent, start_needs_parent};
use crate::observed::{Family, Kind, Name};
use crate::stream::Stream;

pub(crate) const CARRIER: Carrier = Carrier {
    transport: Transport::Socketpair,
    connect: connect_needs_parent,
    start: start_needs_parent,
    listen: listen_needs_parent,
    carries: |seen| {
        seen.family == Family::Unix
            && seen.kind == Kind::Stream
            && !seen.either(|name| !matches!(name, Name::Unnamed))
    },
};

/// Two connected Unix stream sockets: what one writes, the other reads.
///
/// Both are close-on-exec. To pass one to a child, use [`Stream::into_fds`], then `std::process::Stdio::from`.
///
/// # Errors
/// Errors of socketpair(2), such as too many open files.
pub fn pair() -> io::Result<(Stream, Stream)> {
    let (one, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((Stream::from_fd(one, Transport::Socketpair), Stream::from_fd(other, Transport::Socketpair)))
}
