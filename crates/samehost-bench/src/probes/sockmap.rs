//! Probes of sockmap: two TCP sockets of our own, the program that hands what one sends to the other's queue, and whether
//! what TCP promises still holds. Nothing outside of the two sockets is attached to.
//!
//! The program decides for each direction before its first byte, by a key of network namespace, both addresses and both
//! ports, and never goes back: what it leaves to TCP stays with TCP. It cannot look at the receiver's buffer: a program of its
//! type may look a socket up, but not give it back (`bpf_sk_release`), and the verifier demands that.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustix::pipe::{SpliceFlags, pipe, splice};
use samehost_bpf::function::{LOOK_UP, NETWORK, REDIRECT, UPDATE};
use samehost_bpf::instruction::Register::{R0, R1, R2, R3, R4, R6, R10};
use samehost_bpf::instruction::{
    add, call, copy, end, load, map, network_order, set, skip_if, skip_unless, store, store_long,
};
use samehost_bpf::{Instruction, Kind, Map, Program, Purpose, network};

use crate::error::BenchError;

/// Bytes of a key: network namespace, both addresses in network order, both ports.
const KEY: usize = 24;
const VALUE: usize = 8;
const MOST: u32 = 16;
/// How long a probe waits for bytes that TCP delivers in microseconds.
const PATIENCE: Duration = Duration::from_millis(300);
/// Size of both buffers, and what a stopped reader may be sent at most: TCP's own two buffers, doubled by the kernel, hold
/// less than a tenth of it.
const BUFFER: usize = 64 * 1024;
const TOO_MUCH: usize = 8 * 1024 * 1024;

/// Why sockmap is not measured here.
///
/// # Errors
/// Without the rights for it.
pub(super) fn refusal() -> Result<String, BenchError> {
    let failed = match Sockmap::load().and_then(|sockmap| failures(Some(&sockmap))) {
        Ok(failed) => failed,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(BenchError::NotPermitted {
                what: "tcp+sockmap",
                reason: error.to_string(),
                try_next: "run this as root, whose programs the kernel takes (CAP_BPF and CAP_NET_ADMIN), or leave it out",
            });
        }
        Err(error) => return Ok(format!("its program cannot be tried on this kernel: {error}")),
    };
    Ok(if failed.is_empty() {
        "its probes pass on this kernel, which none did that samehost was tried on: please report the kernel's version".into()
    } else {
        format!(
            "on this kernel {} of its {} probes failed: {}",
            failed.len(),
            PROBES.len(),
            failed.join("; ")
        )
    })
}

/// The probes that failed, each with what was seen.
fn failures(sockmap: Option<&Sockmap>) -> io::Result<Vec<String>> {
    let mut failed = Vec::new();
    for (name, probe) in PROBES {
        if let Some(seen) = probe(sockmap)? {
            failed.push(format!("{name} ({seen})"));
        }
    }
    Ok(failed)
}

/// What was seen, where it is not as with TCP. Without a sockmap it tries TCP itself.
type Probe = fn(Option<&Sockmap>) -> io::Result<Option<String>>;

const PROBES: [(&str, Probe); 6] = [
    ("order", order),
    ("flow control", flow_control),
    ("splice", spliced),
    ("FIONREAD", counted),
    ("urgent data", urgent),
    ("detaching", detached),
];

/// The maps with their program.
struct Sockmap {
    sockets: Map,
    /// Directions that stay with TCP.
    _native: Map,
    _program: Program,
}

impl Sockmap {
    fn load() -> io::Result<Self> {
        let sockets = Map::new(Kind::Sockets, KEY, VALUE, MOST)?;
        let native = Map::new(Kind::Hash, KEY, 4, MOST)?;
        let program = Program::load(Purpose::Messages, &instructions(&sockets, &native))?;
        program.attach(&sockets)?;
        Ok(Sockmap { sockets, _native: native, _program: program })
    }
}

// Fields of `sk_msg_md`, as linux/bpf.h has them.
const REMOTE_ADDRESS: i16 = 20;
const LOCAL_ADDRESS: i16 = 24;
const REMOTE_PORT: i16 = 60;
const LOCAL_PORT: i16 = 64;
/// `SK_PASS`.
const PASS: i32 = 1;
/// `BPF_F_INGRESS`: into the queue of what was received.
const INGRESS: i32 = 1;
/// Places on the stack: the key of the sender, that of the other end, and a value.
const OWN: i16 = -24;
const OTHER: i16 = -48;
const MARK: i16 = -56;

/// Redirects a message to the other end of its connection where that is in the map, and leaves a direction to TCP for
/// good where it was not.
fn instructions(sockets: &Map, native: &Map) -> Vec<Instruction> {
    let own = |to| [copy(to, R10), add(to, i32::from(OWN))];
    let keys = [
        copy(R6, R1),
        call(NETWORK),
        store_long(R10, OWN, R0),
        store_long(R10, OTHER, R0),
        load(R1, R6, LOCAL_ADDRESS),
        store(R10, OWN + 8, R1),
        store(R10, OTHER + 12, R1),
        load(R1, R6, REMOTE_ADDRESS),
        store(R10, OWN + 12, R1),
        store(R10, OTHER + 8, R1),
        load(R1, R6, LOCAL_PORT),
        store(R10, OWN + 16, R1),
        store(R10, OTHER + 20, R1),
        load(R1, R6, REMOTE_PORT),
        network_order(R1),
        store(R10, OWN + 20, R1),
        store(R10, OTHER + 16, R1),
    ];
    let redirect = [
        &[copy(R1, R6)][..],
        &map(R2, sockets),
        &[copy(R3, R10), add(R3, i32::from(OTHER)), set(R4, INGRESS), call(REDIRECT)],
    ]
    .concat();
    let leave_to_tcp = [
        &[set(R1, 1), store(R10, MARK, R1)][..],
        &map(R1, native),
        &own(R2),
        &[copy(R3, R10), add(R3, i32::from(MARK)), set(R4, 0), call(UPDATE)],
    ]
    .concat();
    let past = (redirect.len() + 1 + leave_to_tcp.len()) as i16;
    [
        &keys[..],
        &map(R1, native),
        &own(R2),
        &[call(LOOK_UP), skip_unless(R0, 0, past)],
        &redirect,
        &[skip_if(R0, PASS, leave_to_tcp.len() as i16)],
        &leave_to_tcp,
        &[set(R0, PASS), end()],
    ]
    .concat()
}

/// Both ends of a connection on 127.0.0.1.
struct Ends<'a> {
    sender: TcpStream,
    receiver: TcpStream,
    sockmap: Option<&'a Sockmap>,
}

impl<'a> Ends<'a> {
    /// A connection that the map does not have yet.
    fn apart(sockmap: Option<&'a Sockmap>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sender = TcpStream::connect(listener.local_addr()?)?;
        let (receiver, _) = listener.accept()?;
        sender.set_nodelay(true)?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        Ok(Ends { sender, receiver, sockmap })
    }

    /// A connection whose ends are both in the map, where there is one.
    fn new(sockmap: Option<&'a Sockmap>) -> io::Result<Self> {
        let ends = Ends::apart(sockmap)?;
        ends.insert(&ends.sender)?;
        ends.insert(&ends.receiver)?;
        Ok(ends)
    }

    fn insert(&self, end: &TcpStream) -> io::Result<()> {
        self.sockmap.map_or(Ok(()), |sockmap| sockmap.sockets.set_socket(&key(end)?, end.as_fd()))
    }

    fn remove(&self, end: &TcpStream) -> io::Result<()> {
        self.sockmap.map_or(Ok(()), |sockmap| sockmap.sockets.remove(&key(end)?))
    }

    fn send(&self, text: &[u8]) -> io::Result<()> {
        (&self.sender).write_all(text)
    }

    /// What arrives, up to `most` bytes, until nothing more does.
    fn receive(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut received = vec![0; most];
        let mut length = 0;
        while length < most {
            match (&self.receiver).read(&mut received[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        received.truncate(length);
        Ok(received)
    }

    /// Waits until the receiver is told of something.
    fn told(&self, of: PollFlags) -> io::Result<PollFlags> {
        let limit = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.receiver, of)];
        rustix::io::retry_on_intr(|| poll(&mut polled, Some(&limit)))?;
        Ok(polled[0].revents())
    }
}

fn key(end: &TcpStream) -> io::Result<Vec<u8>> {
    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (end.local_addr()?, end.peer_addr()?) else {
        return Err(ErrorKind::Unsupported.into());
    };
    let ports = [local.port(), remote.port()].map(|port| u32::from(port).to_ne_bytes()).concat();
    let addresses = [local.ip().octets(), remote.ip().octets()].concat();
    Ok([network(end.as_fd())?.to_ne_bytes().to_vec(), addresses, ports].concat())
}

fn text(bytes: &[u8]) -> String {
    format!("`{}`", bytes.escape_ascii())
}

/// Bytes arrive in the order in which they were sent, also where the other end comes into the map between them.
fn order(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    let ends = Ends::apart(sockmap)?;
    ends.insert(&ends.sender)?;
    ends.send(b"first,")?;
    ends.insert(&ends.receiver)?;
    ends.send(b"second")?;
    let received = ends.receive(12)?;
    Ok((received != b"first,second").then(|| format!("`first,second` came as {}", text(&received))))
}

/// A reader that stops stops the writer.
fn flow_control(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    let ends = Ends::new(sockmap)?;
    sockopt::set_socket_send_buffer_size(&ends.sender, BUFFER)?;
    sockopt::set_socket_recv_buffer_size(&ends.receiver, BUFFER)?;
    ends.sender.set_nonblocking(true)?;
    let (chunk, mut sent) = (vec![0; BUFFER], 0);
    while sent < TOO_MUCH {
        match (&ends.sender).write(&chunk) {
            Ok(length) => sent += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Ok(Some(format!("after {sent} bytes to a stopped reader: {error}"))),
        }
    }
    Ok(Some(format!(
        "{} MiB went to a stopped reader whose buffer was set to {} KiB, and the writer was not held up: the kernel keeps them",
        sent >> 20,
        BUFFER >> 10
    )))
}

/// splice(2), with which proxies pass bytes on, takes what arrived.
fn spliced(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    let ends = Ends::new(sockmap)?;
    ends.send(b"for a pipe")?;
    ends.told(PollFlags::IN)?;
    // Where splice(2) sees nothing, it would wait for ever.
    ends.receiver.set_nonblocking(true)?;
    let (_read, write) = pipe()?;
    let seen = match splice(&ends.receiver, None, &write, None, 10, SpliceFlags::NONBLOCK) {
        Ok(10) => return Ok(None),
        Ok(0) => "the end of the stream".to_owned(),
        Ok(length) => format!("{length} bytes"),
        Err(errno) => io::Error::from(errno).to_string(),
    };
    Ok(Some(format!("of 10 bytes that wait there, splice(2) sees {seen}")))
}

/// FIONREAD, by which servers learn how much they may read, counts what arrived on either way.
fn counted(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    for by_tcp in [false, true] {
        let ends = Ends::new(sockmap)?;
        if by_tcp {
            ends.remove(&ends.sender)?;
        }
        ends.send(b"0123456789")?;
        ends.told(PollFlags::IN)?;
        let length = rustix::io::ioctl_fionread(&ends.receiver)?;
        if length != 10 {
            let way = if by_tcp { "over TCP to a socket in the map" } else { "past TCP" };
            return Ok(Some(format!("of 10 bytes that came {way}, FIONREAD counts {length}")));
        }
    }
    Ok(None)
}

/// Urgent data is announced, and comes apart.
fn urgent(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    let ends = Ends::new(sockmap)?;
    send(&ends.sender, b"!", SendFlags::OOB)?;
    if ends.told(PollFlags::PRI)?.contains(PollFlags::PRI) {
        let mut byte = [0];
        let taken = recv(&ends.receiver, &mut byte, RecvFlags::OOB).is_ok() && byte == *b"!";
        return Ok((!taken).then(|| "it is announced, and not there".to_owned()));
    }
    Ok(Some("it is not announced (no POLLPRI), and comes as an ordinary byte".into()))
}

/// A connection that is taken out of the map goes on, with what had arrived.
fn detached(sockmap: Option<&Sockmap>) -> io::Result<Option<String>> {
    let ends = Ends::new(sockmap)?;
    ends.send(b"before")?;
    ends.told(PollFlags::IN)?;
    ends.remove(&ends.sender)?;
    ends.remove(&ends.receiver)?;
    ends.send(b",after")?;
    let received = ends.receive(12)?;
    Ok((received != b"before,after").then(|| {
        format!(
            "of `before,after`, with the socket taken out of the map at the comma, {} came",
            text(&received)
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_itself_passes_every_probe() {
        assert_eq!(failures(None).expect("probes"), Vec::<String>::new());
    }

    #[test]
    fn a_sockmap_carries_bytes_and_is_refused_with_the_probes_that_failed_as_root() {
        let sockmap = Sockmap::load().expect("bpf(2) needs root");
        let ends = Ends::new(Some(&sockmap)).expect("a connection");
        ends.send(b"past TCP").expect("sent");
        assert_eq!(ends.receive(8).expect("received"), b"past TCP");
        // That they did not go over TCP: it counts no segment with data.
        let failed = failures(Some(&sockmap)).expect("probes");
        assert!(!failed.iter().any(|failed| failed.starts_with("order")), "{failed:?}");
        // No kernel has splice(2) for what a sockmap redirected (`tcp_bpf_prots` has no `splice_read`).
        assert!(failed.iter().any(|failed| failed.starts_with("splice (of 10 bytes")), "{failed:?}");
        assert!(failed.iter().any(|failed| failed.starts_with("flow control (8 MiB")), "{failed:?}");
        let refusal = refusal().expect("root may");
        assert!(
            failed.iter().all(|one| refusal.contains(one.split(" (").next().unwrap_or_default())),
            "{refusal}"
        );
    }
}
