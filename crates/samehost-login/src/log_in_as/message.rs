//! Messages between the two processes of a login as another user: one JSON object in each direction, with
//! descriptors beside it. Neither contains the password: this process sends it to no other process of this
//! machine than the server.
//!
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
use samehost_model::Endpoint;
use samehost_system::interrupt;
use serde::{Deserialize, Serialize};

use super::As;
use crate::error::{LoginError, LoginErrorKind};

/// Why the process that should have become another user sent no connection and no answer.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    #[error("standard input: {0}")]
    Input(Errno),
    #[error("no request for a login: line {line}, column {column}")]
    Request { line: usize, column: usize },
    #[error("no request for a login: other descriptors came than it names")]
    Descriptors,
    #[error("standard output: {0}")]
    Output(Errno),
}

/// The user to become, and the endpoint to connect to. Descriptors come with it as listed, in this order: a
/// root directory, a network namespace, a user namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    #[serde(flatten)]
    pub(super) who: As,
    pub(super) endpoint: String,
    /// Time limit of connecting, in seconds.
    pub(super) patience_s: Option<f64>,
    /// Capabilities over file permissions that the user to become has.
    #[serde(default)]
    pub(super) capabilities: u64,
    #[serde(default)]
    pub(super) doors: Which,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Which {
    pub(super) root: bool,
    pub(super) network: bool,
    pub(super) user: bool,
}

impl Request {
    pub(super) fn to_json(&self) -> Vec<u8> {
        // Numbers and texts only: serializing cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// [`SwitchError::Request`], without any part of the text.
    pub(super) fn from_json(bytes: &[u8]) -> Result<Self, SwitchError> {
        serde_json::from_slice(bytes)
            .map_err(|error| SwitchError::Request { line: error.line(), column: error.column() })
    }

    /// Endpoint to connect to. Host names are refused: nothing is resolved in another root directory, where
    /// the C library would load modules that it finds there.
    pub(super) fn endpoint(&self) -> Result<Endpoint, LoginError> {
        let endpoint = self.endpoint.parse().map_err(|error| LoginError::Unsayable(format!("{error}")))?;
        if let Endpoint::Tcp { host, .. } | Endpoint::TcpTls { host, .. } = &endpoint
            && host.parse::<std::net::IpAddr>().is_err()
        {
            return Err(LoginError::Unsayable(format!("`{}` is a name and no address", host.escape_debug())));
        }
        Ok(endpoint)
    }

    pub(super) fn patience(&self) -> Duration {
        let seconds = self.patience_s.unwrap_or(5.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(5))
    }
}

/// The result: a connection, whose descriptor is beside the message, or an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    ok: bool,
    kind: Option<LoginErrorKind>,
    code: Option<String>,
    message: Option<String>,
}

impl Answer {
    pub(super) fn from_json(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn from_error(error: Option<&LoginError>) -> Self {
        Answer {
            ok: error.is_none(),
            kind: error.map(LoginError::kind),
            code: error.and_then(LoginError::code).map(str::to_owned),
            message: error.map(ToString::to_string),
        }
    }

    pub(super) fn into_result(self) -> Result<(), LoginError> {
        if self.ok {
            return Ok(());
        }
        Err(LoginError::Elsewhere {
            kind: self.kind.unwrap_or(LoginErrorKind::Become),
            code: self.code,
            message: self.message.unwrap_or_default(),
        })
    }
}

const LONGEST: usize = 64 * 1024;
const MOST: usize = 3;
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

/// Receives a message and its descriptors, until a deadline if there is one.
///
/// # Errors
/// `TIMEDOUT` at the deadline, `CANCELED` after an interrupt, `MSGSIZE` for a message that was cut.
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

/// Reads a message from an input that is not a socket, up to its end; no descriptors come with it.
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
    fn what_is_told_arrives() {
        fn there(error: Option<&LoginError>) -> Answer {
            Answer::from_json(Answer::from_error(error).to_json().as_bytes()).unwrap()
        }
        let error = LoginError::TimedOut { endpoint: "unix:/s".into(), after: Duration::from_secs(1) };
        there(None).into_result().unwrap();
        let error = there(Some(&error)).into_result().unwrap_err();
        assert_eq!(error.kind(), LoginErrorKind::Timeout);
        assert!(error.to_string().contains("unix:/s"), "{error}");
    }

    #[test]
    fn a_request_is_read_and_nothing_is_looked_up() {
        let text =
            r#"{ "uid": 33, "gid": 33, "groups": [33], "endpoint": "unix:/s", "password": "hunter2" }"#;
        let request = Request::from_json(text.as_bytes()).unwrap();
        assert_eq!((request.who.uid, request.patience()), (33, Duration::from_secs(5)));
        assert_eq!((request.doors, request.capabilities), (Which::default(), 0));
        assert!(!format!("{request:?}").contains("hunter2"));
        let error = Request::from_json(text.replace("33,", "\"hunter2\",").as_bytes()).err().unwrap();
        let error = error.to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let named = Request::from_json(text.replace("unix:/s", "tcp:db:1").as_bytes()).unwrap();
        assert!(named.endpoint().unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn descriptors_travel_with_their_message() {
        fn inode(fd: BorrowedFd<'_>) -> u64 {
            rustix::fs::fstat(fd).unwrap().st_ino
        }
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        send(&here, b"one", &[file.as_fd()]).unwrap();
        let ends = Instant::now() + Duration::from_secs(60);
        let (bytes, descriptors) = receive(&there, Some(ends)).unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"one"[..], 1));
        assert_eq!(inode(descriptors[0].as_fd()), inode(file.as_fd()));
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(receive(&there, Some(soon)).unwrap_err(), Errno::TIMEDOUT);
    }
}
