//! A TLS session on a socket, for client or server, blocking or not. Makes no decisions about certificates,
//! and never waits silently: bytes that do not fit into the socket are buffered and reported.
//!
//! In either mode the first reads and writes perform the handshake, so accepting a connection never waits for
//! its client.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use rustls::{Connection, ProtocolVersion};

/// Two maximum-size records. rustls itself reads 4 KiB at a time; four reads per record would not be
/// comparable with other TLS servers and clients.
const READ_AHEAD: usize = 32 * 1024;

pub(crate) struct TlsSession {
    connection: Connection,
    fd: OwnedFd,
    /// Encrypted bytes read ahead; those in `start..end` were not yet passed to the connection.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// Number of decrypted bytes not yet read.
    decrypted: usize,
    /// Whether the peer ended its side and the reader has not seen it yet.
    unread_end: bool,
    /// Whether the socket is at its end.
    socket_ended: bool,
    closing: Closing,
    /// When a read gives up, however many reads of the socket it takes.
    deadline: Option<Instant>,
}

/// State of our own close_notify.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    /// Requested during the handshake; sent after the written data.
    Asked,
    Sent,
}

impl TlsSession {
    pub(crate) fn new(connection: Connection, fd: OwnedFd) -> Self {
        TlsSession {
            connection,
            fd,
            ahead: vec![0; READ_AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            decrypted: 0,
            unread_end: false,
            socket_ended: false,
            closing: Closing::Open,
            deadline: None,
        }
    }

    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    pub(crate) fn has_buffered(&self) -> bool {
        self.decrypted > 0 || self.start < self.end || self.unread_end
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn cipher(&self) -> Option<String> {
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
            ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        Some(format!("{version} {:?}", self.connection.negotiated_cipher_suite()?.suite()))
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => {
                    self.unread_end = false;
                    return Ok(0);
                }
                Ok(count) => {
                    self.decrypted = self.decrypted.saturating_sub(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.advance()?,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.closing != Closing::Open {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the write side was shut down"));
        }
        // A blocking socket completes its handshake here. A nonblocking one may have to wait for the peer:
        // the bytes are then buffered, up to rustls' limit of 64 KiB, and sent after the handshake.
        unless_blocked(self.handshake())?;
        // Buffered bytes must be sent first; otherwise the buffer would grow unnoticed by the caller.
        self.flush()?;
        let accepted = self.connection.writer().write(bytes)?;
        if accepted == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Accepted bytes stay accepted: those that do not fit into the socket are buffered, as `wants_write`
        // reports. Returning WouldBlock would make the caller send them twice.
        unless_blocked(self.flush())?;
        Ok(accepted)
    }

    /// Sends encrypted bytes that were not sent yet.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Socket(&self.fd))?;
        }
        Ok(())
    }

    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if self.closing == Closing::Open {
            self.closing = Closing::Asked;
        }
        self.handshake()?;
        self.close_when_asked();
        self.flush()
    }

    /// Performs the handshake as far as the socket allows.
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.handshake_once()?;
        }
        Ok(())
    }

    /// One step of the handshake: sends pending data, then reads once.
    pub(crate) fn handshake_once(&mut self) -> io::Result<()> {
        self.flush()?;
        if !self.connection.is_handshaking() {
            return Ok(());
        }
        if self.socket_ended {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer closed the connection during the TLS handshake",
            ));
        }
        self.advance()?;
        unless_blocked(self.flush())
    }

    /// Processes more encrypted bytes: those read ahead, else one read of the socket.
    fn advance(&mut self) -> io::Result<()> {
        // Replies of the handshake must be sent before waiting for the answer. If they cannot be, reading
        // continues: the peer may be waiting for us to read, and a broken connection is also detected there.
        let _ = self.flush();
        if self.start == self.end {
            self.end = 0;
            self.start = 0;
            // A peer that sends a record byte by byte would keep within any limit for one read of the socket.
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.end = retry_on_intr(|| rustix::io::read(&self.fd, &mut *self.ahead))?;
            self.socket_ended = self.end == 0;
        }
        let taken = self.connection.read_tls(&mut &self.ahead[self.start..self.end])?;
        self.start += taken;
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.decrypted = state.plaintext_bytes_to_read();
                self.unread_end = state.peer_has_closed();
            }
            Err(error) => {
                // Sends the alert that informs the peer of the reason.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        if self.unread_end {
            // Data after close_notify are ignored.
            self.start = self.end;
        }
        if !self.connection.is_handshaking() {
            self.close_when_asked();
            let _ = self.flush();
        }
        Ok(())
    }

    fn close_when_asked(&mut self) {
        if self.closing == Closing::Asked {
            self.connection.send_close_notify();
            self.closing = Closing::Sent;
        }
    }
}

impl AsFd for TlsSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for TlsSession {
    /// Sends close_notify if this does not block, so that the peer sees an end and not a truncation.
    fn drop(&mut self) {
        if self.connection.is_handshaking() {
            return;
        }
        if self.closing != Closing::Sent {
            self.connection.send_close_notify();
        }
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut WithoutWaiting(&self.fd)).is_err() {
                break;
            }
        }
    }
}

fn unless_blocked(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// The socket as a writer for rustls.
struct Socket<'a>(&'a OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::write(self.0, bytes))?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::writev(self.0, slices))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket as a nonblocking writer, even if it is blocking.
struct WithoutWaiting<'a>(&'a OwnedFd);

impl Write for WithoutWaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(retry_on_intr(|| rustix::net::send(self.0, bytes, flags))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
