//! The program at the other end of `tcp+run`: it connects as it is ordered to, and hands its sockets over. It asks for TCP;
//! `samehost run`, above it, makes Unix sockets of that.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use samehost_model::Endpoint;

use crate::transports::connect;
use crate::transports::run::ANSWER;
use crate::tuning::ConnectOptions;

/// Connects to `endpoint` whenever the other end of `asker` orders it, and hands the socket over, with the address that the
/// socket is connected to as this program sees it. Returns when the other end is closed.
///
/// # Errors
/// Errors of the socket `asker`; those of connecting are told to the other end.
pub fn hand_over(endpoint: &Endpoint, asker: BorrowedFd<'_>) -> io::Result<()> {
    let mut order = [0; 16];
    while retry_on_intr(|| rustix::net::recv(asker, &mut order, RecvFlags::empty()))?.0 > 0 {
        match connect(endpoint, &ConnectOptions::default()) {
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
    use crate::transports::run::offer;
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
