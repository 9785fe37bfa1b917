//! `tcp+run`: a client that asks for TCP, and is connected over a Unix socket by `samehost run`. The client is a program of
//! its own, below that; it hands its sockets over to us. Once connected, they are Unix sockets.
//!
//! Both ends are here: [`offer`] has [`connect`](crate::connect) ask the client, and the client calls [`hand_over`]: it
//! connects as it is ordered to, asks for TCP, and `samehost run`, above it, makes Unix sockets of that.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use samehost_model::{Endpoint, Transport};

use super::{Carrier, WITHOUT_NAME, unix};
use crate::error::{ConnectError, StartError};
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
    start: |endpoint, _| Err(StartError::Unsupported(endpoint.clone(), NO_BURST)),
    carries: unix::CARRIER.carries,
    ..WITHOUT_NAME
};

const NO_CLIENT: &str = "no client of ours runs under `samehost run` for it; `samehost bench --transports tcp,tcp+run` starts one";
const NO_BURST: &str = "its client connects one after the other; leave tcp+run out of a burst";

/// The order to connect, a message of its own. The answer is the socket with the address that the client sees, or the text
/// of an error.
const CONNECT: &[u8] = b"connect";
/// Most bytes of an answer.
const ANSWER: usize = 1024;

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
        return Err(ConnectError::Unsupported(endpoint.clone(), NO_CLIENT));
    };
    let client = client.lock().unwrap_or_else(PoisonError::into_inner);
    let other = |source| ConnectError::Other(endpoint.clone(), source);
    let (fd, said) = ask(&client).map_err(other)?;
    let asked = match endpoint {
        Endpoint::TcpRun { host, port, .. } => format!("{host}:{port}"),
        _ => String::new(),
    };
    let Some(fd) = fd else { return Err(other(io::Error::other(said))) };
    if said != asked {
        return Err(other(io::Error::other(format!("the client asked for {asked} and was told {said}"))));
    }
    options.tuning.apply(&fd).map_err(|source| ConnectError::Tuning(endpoint.clone(), source))?;
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

/// Connects to `endpoint` whenever the other end of `asker` orders it, and hands the socket over, with the address that the
/// socket is connected to as this program sees it. Returns when the other end is closed.
///
/// # Errors
/// Errors of the socket `asker`; those of connecting are told to the other end.
pub fn hand_over(endpoint: &Endpoint, asker: BorrowedFd<'_>) -> io::Result<()> {
    let mut order = [0; 16];
    while retry_on_intr(|| rustix::net::recv(asker, &mut order, RecvFlags::empty()))?.0 > 0 {
        match super::connect(endpoint, &ConnectOptions::default()) {
            Ok(stream) => {
                let peer = stream.observed()?.peer.map(|peer| peer.to_string()).unwrap_or_default();
                let fds = [stream.as_fd()];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut with = SendAncillaryBuffer::new(&mut space);
                with.push(SendAncillaryMessage::ScmRights(&fds));
                send(asker, &peer, &mut with)?;
            }
            Err(error) => send(asker, &error.to_string(), &mut SendAncillaryBuffer::default())?,
        }
    }
    Ok(())
}

fn send(to: BorrowedFd<'_>, text: &str, with: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
    let text = &text.as_bytes()[..text.len().min(ANSWER)];
    retry_on_intr(|| sendmsg(to, &[IoSlice::new(text)], with, SendFlags::NOSIGNAL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use samehost_model::Transport;

    use super::*;
    use crate::transports::listen;
    use crate::tuning::ListenOptions;

    fn run(listener: &Endpoint) -> Endpoint {
        let Endpoint::Tcp { host, port } = listener else { panic!("{listener}") };
        Endpoint::TcpRun { host: host.clone(), port: *port, path: "/run/x.sock".into() }
    }

    #[test]
    fn a_client_hands_its_sockets_over_and_its_errors() {
        let listener = listen(&"tcp:127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let endpoint = run(listener.endpoint());
        let options = ConnectOptions::default();
        let error = connect(&endpoint, &options).unwrap_err();
        assert!(error.to_string().contains("no client of ours"), "{error}");

        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let to = listener.endpoint().clone();
        let client = std::thread::spawn(move || hand_over(&to, theirs.as_fd()));
        let offer = offer(&endpoint, ours);
        let mut stream = connect(&endpoint, &options).unwrap();
        let mut accepted = listener.accept().unwrap();
        stream.write_all(b"x").unwrap();
        let mut received = [0];
        accepted.read_exact(&mut received).unwrap();
        assert_eq!(received, *b"x");
        // Without a supervisor it stays TCP, and the kernel's word is against it.
        assert!(!stream.observed().unwrap().matches(Transport::TcpRun));

        drop((listener, accepted, stream));
        let error = connect(&endpoint, &options).unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        drop(offer);
        client.join().unwrap().unwrap();
        assert!(connect(&endpoint, &options).is_err());
    }
}
