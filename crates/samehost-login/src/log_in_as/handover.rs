//! Sends and receives single messages with descriptors, over a Unix socket that preserves message boundaries.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use samehost_system::interrupt;

/// Longest message.
const LONGEST: usize = 64 * 1024;
/// Most descriptors in a message.
const MOST: usize = 3;
/// How often a wait checks for a signal.
const GLANCE: Duration = Duration::from_millis(100);

pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message, until a deadline if there is one.
pub(super) fn receive(socket: impl AsFd, ends: Option<Instant>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    if let Some(ends) = ends {
        wait(&socket, ends)?;
    }
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

/// Reads a message from an input that is not a socket.
pub(super) fn read(input: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut bytes = vec![0; LONGEST];
    let mut length = 0;
    loop {
        match rustix::io::read(&input, &mut bytes[length..]) {
            Err(Errno::INTR) => {}
            Ok(0) => break,
            Ok(read) => length += read,
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(length);
    Ok((bytes, Vec::new()))
}

fn wait(socket: &impl AsFd, ends: Instant) -> Result<(), Errno> {
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        if interrupt::is_requested() {
            return Err(Errno::CANCELED);
        }
        let glance = Timespec::try_from(left.min(GLANCE)).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&glance)) {
            Ok(0) | Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn descriptors_travel_with_their_message() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        send(&here, b"one", &[file.as_fd()]).unwrap();
        let ends = Instant::now() + Duration::from_secs(60);
        let (bytes, descriptors) = receive(&there, Some(ends)).unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"one"[..], 1));
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(descriptors[0].as_fd()), inode(file.as_fd()));
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(receive(&there, Some(soon)).unwrap_err(), Errno::TIMEDOUT);
    }
}
