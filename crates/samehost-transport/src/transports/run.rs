//! `tcp+run`: a client that asks for TCP, and is connected over a Unix socket by `samehost run`. The client is a program of
//! its own, below that; it hands its sockets over to us ([`offer`], `hand_over`). Once connected, they are Unix sockets.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use samehost_model::{Endpoint, Transport};

use super::{Carrier, listen_needs_parent, unix};
use crate::error::{ConnectError, StartError};
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::tuning::ConnectOptions;

/// `tcp+run`: a client of our own connects by host and port below the real `samehost run`, and hands its
/// sockets over. The load is driven by the same client as the other arms, which take turns in one thread.
/// The whole client below `run` was rejected, because two processes differ by more than the effect, and
/// so was the measuring process itself: the supervisor would have to stop the calls of its own parent. A
/// plain Unix socket by that name is the same afterwards, which is what is to be shown
/// (docs/decisions/0120).
pub(crate) const CARRIER: Carrier = Carrier {
    transport: Transport::TcpRun,
    connect,
    start: start_is_asked_for,
    listen: listen_needs_parent,
    carries: unix::CARRIER.carries,
};

const NO_CLIENT: &str = "no client of ours runs under `samehost run` for it; `samehost bench --transports tcp,tcp+run` starts one";
const NO_BURST: &str = "its client connects one after the other; leave tcp+run out of a burst";

/// Order to connect; the message has no other contents.
const CONNECT: &[u8] = b"connect";
/// Most bytes of an answer.
pub(crate) const ANSWER: usize = 1024;

/// Sockets to the clients, by what they connect to.
static OFFERS: Mutex<BTreeMap<String, Arc<Mutex<OwnedFd>>>> = Mutex::new(BTreeMap::new());

fn offers() -> MutexGuard<'static, BTreeMap<String, Arc<Mutex<OwnedFd>>>> {
    OFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that connects for us; gone when this is dropped.
#[derive(Debug)]
pub struct Offer {
    endpoint: String,
}

impl Drop for Offer {
    fn drop(&mut self) {
        offers().remove(&self.endpoint);
    }
}

/// Has [`connect`](crate::connect) to a `tcp+run` endpoint ask the program at the other end of `client`, a seqpacket socket,
/// which calls [`hand_over`](crate::hand_over).
#[must_use]
pub fn offer(endpoint: &Endpoint, client: OwnedFd) -> Offer {
    let endpoint = endpoint.to_string();
    offers().insert(endpoint.clone(), Arc::new(Mutex::new(client)));
    Offer { endpoint }
}

fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let client = offers().get(&endpoint.to_string()).cloned();
    let Some(client) = client else {
        return Err(ConnectError::Unsupported { endpoint: endpoint.clone(), reason: NO_CLIENT });
    };
    let client = client.lock().unwrap_or_else(PoisonError::into_inner);
    let other = |source| ConnectError::Other { endpoint: endpoint.clone(), source };
    let (fd, said) = ask(&client).map_err(other)?;
    let asked = match endpoint {
        Endpoint::TcpRun { host, port, .. } => format!("{host}:{port}"),
        _ => String::new(),
    };
    let Some(fd) = fd else { return Err(other(io::Error::other(said))) };
    if said != asked {
        return Err(other(io::Error::other(format!("the client asked for {asked} and was told {said}"))));
    }
    let set = options.tuning.apply(&fd);
    set.map_err(|source| ConnectError::Tuning { endpoint: endpoint.clone(), source })?;
    Ok(Stream::from_fd(fd, Transport::TcpRun))
}

/// Orders a connection. Returns the socket and where the client sees it connected, or the client's error.
fn ask(client: &OwnedFd) -> io::Result<(Option<OwnedFd>, String)> {
    retry_on_intr(|| rustix::net::send(client, CONNECT, SendFlags::NOSIGNAL))?;
    let mut text = [0; ANSWER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(client, &mut [IoSliceMut::new(&mut text)], &mut with, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Err(io::Error::other("the client under `samehost run` has ended"));
    }
    let fd = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((fd, String::from_utf8_lossy(&text[..received.bytes]).into_owned()))
}

fn start_is_asked_for(endpoint: &Endpoint, _: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    Err(StartError::Unsupported { endpoint: endpoint.clone(), reason: NO_BURST })
}
