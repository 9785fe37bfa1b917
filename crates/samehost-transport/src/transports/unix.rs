//! `unix`: a stream socket with a path; `claim.rs` takes the path. Also the basis of `seqpacket` (another
//! type) and `abstract` (another name). `socketpair` is two connected ones without a name; a parent passes one to its child.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use samehost_model::{Endpoint, Transport};

use super::{Carrier, WITHOUT_NAME};
use crate::claim::Claim;
use crate::error::{ConnectError, ListenError, StartError};
use crate::observed::{Family, Kind, Name};
use crate::socket::{self, AddressError, Blocking, Connecting};
use crate::stream::{Listener, Stream};
use crate::tuning::{ConnectOptions, ListenOptions};

pub(crate) const CARRIER: Carrier = Carrier {
    transport: Transport::Unix,
    connect,
    start,
    listen: listen_at_path,
    carries: |seen| {
        seen.family == Family::Unix
            && seen.kind == Kind::Stream
            && seen.either(|name| matches!(name, Name::Path(_)))
    },
};

fn address(endpoint: &Endpoint) -> Result<SocketAddrUnix, AddressError> {
    match endpoint {
        Endpoint::Abstract(name) => socket::abstract_name(name),
        _ => socket::unix_path(endpoint.path().unwrap_or(Path::new(""))),
    }
}

fn open(endpoint: &Endpoint, blocking: Blocking) -> Result<OwnedFd, Errno> {
    let kind = match endpoint.transport() {
        Transport::Seqpacket => SocketType::SEQPACKET,
        _ => SocketType::STREAM,
    };
    socket::open(AddressFamily::UNIX, kind, blocking)
}

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let address = address(endpoint)?;
    let deadline = socket::deadline(options.timeout);
    let fd = open(endpoint, Blocking::Yes).map_err(ConnectError::at(endpoint, options.timeout))?;
    options.tuning.apply(&fd).map_err(|source| ConnectError::Tuning(endpoint.clone(), source))?;
    socket::connect(&fd, &address, deadline).map_err(ConnectError::at(endpoint, options.timeout))?;
    Ok(Stream::from_fd(fd, endpoint.transport()))
}

fn start(endpoint: &Endpoint, options: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    let address = address(endpoint)?;
    let fd = open(endpoint, Blocking::No).map_err(StartError::at(endpoint))?;
    options.tuning.apply(&fd).map_err(|source| StartError::Tuning(endpoint.clone(), source))?;
    let connecting = socket::start(&fd, &address).map_err(StartError::at(endpoint))?;
    Ok((Stream::from_fd(fd, endpoint.transport()), connecting))
}

fn listen_at_path(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address = address(endpoint)?;
    let fd = open(endpoint, Blocking::Yes).map_err(ListenError::at(endpoint))?;
    // Linux creates the file with the socket's mode minus the umask, so it never has more permissions than
    // requested.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(options.mode)).map_err(ListenError::at(endpoint))?;
    let claim = Claim::take(endpoint, options, |_| net::bind(&fd, &address))?;
    // The umask may have removed permissions, and another owner may be requested. Both are set between bind
    // and listen, while connecting is still refused, so nobody can connect with temporary permissions.
    claim.set_rights(endpoint, options)?;
    Ok(Listener { claim: Some(claim), ..listen_on(endpoint, options, fd)? })
}

fn listen_on(endpoint: &Endpoint, options: &ListenOptions, fd: OwnedFd) -> Result<Listener, ListenError> {
    net::listen(&fd, options.backlog).map_err(ListenError::at(endpoint))?;
    // Detects now what would fail when accepting.
    options.tuning.apply(&fd).map_err(|source| ListenError::Tuning(endpoint.clone(), source))?;
    let listener = Listener::new(fd, endpoint.clone(), endpoint.transport());
    Ok(Listener { tuning: options.tuning.clone(), ..listener })
}

// `abstract`: a stream socket with a Linux abstract name. Without a file there are no permissions and nothing to
// remove. It is visible in one network namespace only. Any local user may connect, and may take an unused name.

pub(crate) const ABSTRACT: Carrier = Carrier {
    transport: Transport::Abstract,
    listen: listen_by_name,
    carries: |seen| {
        seen.family == Family::Unix
            && seen.kind == Kind::Stream
            && seen.either(|name| matches!(name, Name::Abstract(_)))
    },
    ..CARRIER
};

fn listen_by_name(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    let address = address(endpoint)?;
    let fd = open(endpoint, Blocking::Yes).map_err(ListenError::at(endpoint))?;
    net::bind(&fd, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => ListenError::InUse(endpoint.clone(), crate::claim::listening_pid(&address)),
        errno => ListenError::from_errno(endpoint, errno),
    })?;
    listen_on(endpoint, options, fd)
}

// `seqpacket`: a Unix socket with a path that preserves message boundaries. `Stream` documents the effects
// on reads, writes and the end of the stream.

pub(crate) const SEQPACKET: Carrier = Carrier {
    transport: Transport::Seqpacket,
    carries: |seen| seen.family == Family::Unix && seen.kind == Kind::Seqpacket,
    ..CARRIER
};

pub(crate) const SOCKETPAIR: Carrier = Carrier {
    transport: Transport::Socketpair,
    carries: |seen| {
        seen.family == Family::Unix
            && seen.kind == Kind::Stream
            && !seen.either(|name| !matches!(name, Name::Unnamed))
    },
    ..WITHOUT_NAME
};

/// Two connected Unix stream sockets: what one writes, the other reads.
///
/// Both are close-on-exec. To pass one to a child, use [`Stream::into_fds`], then `std::process::Stdio::from`.
///
/// # Errors
/// Errors of socketpair(2), such as too many open files.
pub fn pair() -> io::Result<(Stream, Stream)> {
    let (one, other) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((Stream::from_fd(one, Transport::Socketpair), Stream::from_fd(other, Transport::Socketpair)))
}

// `pipe`: two pipes, one for each direction; a parent passes the ends of one side to its child.

pub(crate) const PIPE: Carrier =
    Carrier { transport: Transport::Pipe, carries: |seen| seen.family == Family::Pipe, ..WITHOUT_NAME };

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// `listen_at` relies on this. It is not documented in unix(7), but implemented by the kernel (`unix_bind_bsd`).
    #[test]
    fn the_mode_of_the_socket_becomes_that_of_the_file_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        let fd = socket::open(AddressFamily::UNIX, SocketType::STREAM, Blocking::Yes).unwrap();
        rustix::fs::fchmod(&fd, Mode::RUSR).unwrap();
        net::bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o400);
    }
}
