//! Serves all connections in one thread with epoll, as event-driven servers do. Bytes that a peer does not
//! take yet wait in the connection's buffer; until they are sent, nothing more is read from it. Replies are
//! sent at once, or all at the end of a round as Redis does.

use std::io::{self, ErrorKind, Read, Write};

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use samehost_transport::{Listener, Stream};

use super::listeners::{Listening, is_passing};
use super::responder::Responder;
use crate::error::BenchError;

const BUFFER: usize = 64 * 1024;
const EVENTS: usize = 256;

struct Peer<R> {
    stream: Stream,
    responder: R,
    unsent: Vec<u8>,
    waits_to_write: bool,
    /// No more reads; the connection closes when everything is sent.
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replies {
    AtOnce,
    /// When all ready connections have been read (Redis: `handleClientsWithPendingWrites` before it sleeps).
    AfterTheRound,
}

pub(super) fn serve<R: Responder>(listening: &Listening, replies: Replies) -> Result<(), BenchError> {
    let listeners = &listening.listeners;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(BenchError::during("epoll"))?;
    for (index, listener) in listeners.iter().enumerate() {
        listener.set_nonblocking(true).map_err(BenchError::during("epoll"))?;
        add(&epoll, listener, index).map_err(BenchError::during("epoll"))?;
    }
    let mut peers: Vec<Option<Peer<R>>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut buffer = vec![0; BUFFER];
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(BenchError::io("epoll", error)),
        }
        for event in &events {
            let token = event.data.u64() as usize;
            if let Some(listener) = listeners.get(token) {
                let accepted = accept(listener, &epoll, &mut peers, &mut free, listeners.len());
                // A Unix listener that was shut down returns EAGAIN where TCP returns EINVAL, and stays ready.
                if listening.is_stopped() {
                    return Ok(());
                }
                accepted.map_err(BenchError::during("epoll"))?;
                continue;
            }
            let index = token - listeners.len();
            let Some(peer) = peers[index].as_mut() else { continue };
            let stepped = match replies {
                Replies::AtOnce => step(peer, &epoll, event, &mut buffer),
                Replies::AfterTheRound => take(peer, &mut buffer),
            };
            if !matches!(stepped, Ok(true)) {
                peers[index] = None;
                free.push(index);
            }
        }
        if replies == Replies::AfterTheRound {
            for event in &events {
                let Some(index) = (event.data.u64() as usize).checked_sub(listeners.len()) else { continue };
                let Some(peer) = peers[index].as_mut() else { continue };
                if !matches!(answer(peer, &epoll, event.data), Ok(true)) {
                    peers[index] = None;
                    free.push(index);
                }
            }
        }
    }
}

fn add(epoll: &OwnedFd, source: &impl rustix::fd::AsFd, token: usize) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token as u64);
    Ok(epoll::add(epoll, source, data, epoll::EventFlags::IN)?)
}

fn accept<R: Responder>(
    listener: &Listener,
    epoll: &OwnedFd,
    peers: &mut Vec<Option<Peer<R>>>,
    free: &mut Vec<usize>,
    first: usize,
) -> io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_passing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        let index = free.pop().unwrap_or_else(|| {
            peers.push(None);
            peers.len() - 1
        });
        add(epoll, &stream, first + index)?;
        peers[index] = Some(Peer {
            stream,
            responder: R::default(),
            unsent: Vec::new(),
            waits_to_write: false,
            ends: false,
        });
    }
}

/// Writes unsent bytes, then reads and responds; false when the connection has ended.
fn step<R: Responder>(
    peer: &mut Peer<R>,
    epoll: &OwnedFd,
    event: &epoll::Event,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let flags = event.flags;
    if flags.contains(epoll::EventFlags::OUT) {
        send_unsent(peer)?;
    }
    while peer.unsent.is_empty() {
        if peer.ends {
            return Ok(false);
        }
        match peer.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                let (reply, goes_on) = peer.responder.respond(&buffer[..read]);
                peer.ends = !goes_on;
                send(&mut peer.stream, &mut peer.unsent, reply)?;
                if peer.ends {
                    continue;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
        if !peer.stream.has_buffered() {
            break;
        }
    }
    watch(peer, epoll, event.data)?;
    Ok(true)
}

/// Reads once and stores the reply, unless an earlier one is unsent; false when the connection has ended.
fn take<R: Responder>(peer: &mut Peer<R>, buffer: &mut [u8]) -> io::Result<bool> {
    if !peer.unsent.is_empty() || peer.ends {
        return Ok(true);
    }
    match peer.stream.read(buffer) {
        Ok(0) => Ok(false),
        Ok(read) => {
            let (reply, goes_on) = peer.responder.respond(&buffer[..read]);
            peer.ends = !goes_on;
            peer.unsent.extend_from_slice(reply);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Sends the replies of a round; false when the connection has ended.
fn answer<R: Responder>(peer: &mut Peer<R>, epoll: &OwnedFd, token: epoll::EventData) -> io::Result<bool> {
    send_unsent(peer)?;
    watch(peer, epoll, token)?;
    Ok(!(peer.ends && peer.unsent.is_empty()))
}

fn send_unsent<R>(peer: &mut Peer<R>) -> io::Result<()> {
    let mut waiting = std::mem::take(&mut peer.unsent);
    send(&mut peer.stream, &mut peer.unsent, &waiting)?;
    if peer.unsent.is_empty() {
        waiting.clear();
        peer.unsent = waiting;
    }
    Ok(())
}

fn watch<R>(peer: &mut Peer<R>, epoll: &OwnedFd, token: epoll::EventData) -> io::Result<()> {
    let blocked = !peer.unsent.is_empty() || peer.stream.wants_write();
    if blocked != peer.waits_to_write {
        peer.waits_to_write = blocked;
        let flags = if blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        epoll::modify(epoll, &peer.stream, token, flags)?;
    }
    Ok(())
}

fn send(stream: &mut Stream, unsent: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                unsent.extend_from_slice(&bytes[sent..]);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    match stream.flush() {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
