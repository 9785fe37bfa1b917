//! `socketpair`: two connected Unix stream sockets without a name; a parent passes one to its child.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
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

// `pipe`: two pipes, one for each direction; a parent passes the ends of one side to its child.

pub(crate) const PIPE: Carrier = Carrier {
    transport: Transport::Pipe,
    connect: connect_needs_parent,
    start: start_needs_parent,
    listen: listen_needs_parent,
    carries: |seen| seen.family == Family::Pipe,
};

/// Two streams connected by two pipes: what one writes, the other reads.
///
/// All four ends are close-on-exec. To pass one side to a child, use [`Stream::into_fds`], then
/// `std::process::Stdio::from` for its standard input and output.
///
/// # Errors
/// Errors of pipe(2), such as too many open files.
pub fn pipe_pair() -> io::Result<(Stream, Stream)> {
    let (here_reads, there_writes) = pipe_with(PipeFlags::CLOEXEC)?;
    let (there_reads, here_writes) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Stream::pipe(here_reads, here_writes), Stream::pipe(there_reads, there_writes)))
}
