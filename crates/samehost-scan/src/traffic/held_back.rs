//! Finds connections whose small pieces wait for an acknowledgement: without TCP_NODELAY a second small write is held back
//! until the peer has acknowledged the first, and the peer delays that by up to 40 ms (Nagle's algorithm, RFC 896, and
//! delayed acknowledgements, RFC 1122). On loopback an acknowledgement takes microseconds, so bytes that wait for
//! milliseconds behind others show it. The option itself is asked of the process, by a caller.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use samehost_model::FindingCode;
use samehost_model::scan::{Finding, Found, Queues, Scan, Socket, SocketState};

use crate::diag::{Diag, Unsent};

const MOST: usize = 16;
/// Bytes that wait to be sent or acknowledged; with more it is a stream.
const MOST_BYTES: u32 = 16 * 1024;
/// Bytes of a segment on average; with more it is a stream.
const SMALL: u64 = 2048;
/// Segments with data in each direction, from which on a connection is chatty.
const CHATTY: u32 = 20;
/// Time between two looks at the same bytes: more than any acknowledgement takes that is not delayed.
const BETWEEN: Duration = Duration::from_millis(6);

/// Connections that were seen to hold bytes back, by their position in the scan. The kernel's listing does not say whether
/// TCP_NODELAY is set: a caller asks the process of each of the [`senders`](Self::senders) for it, and gives the answers to
/// [`findings`](Self::findings).
#[derive(Clone, Debug, Default)]
pub struct HeldBack(BTreeMap<usize, Waiting>);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Position of the socket in the scan.
    sender: usize,
    bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub pid: u32,
    pub inode: u64,
}

/// The connections that hold bytes back at the moment of a scan, in this program's network namespace.
#[must_use]
pub fn held_back(scan: &Scan) -> HeldBack {
    let mut waiting = HeldBack::default();
    if let Ok(mut diag) = Diag::open() {
        waiting.look(scan, &mut diag, &scan.sockets);
    }
    waiting
}

impl HeldBack {
    pub(crate) fn look_now(&mut self, scan: &Scan) {
        if let Some(own) = scan.own_namespace()
            && let Ok(mut diag) = Diag::open()
            && let Ok(sockets) = diag.connected(own)
        {
            self.look(scan, &mut diag, &sockets);
        }
    }

    /// Asks twice for the bytes that wait at each suspect: those that have not moved in between are held back.
    fn look(&mut self, scan: &Scan, diag: &mut Diag, now: &[Socket]) {
        let Some(own) = scan.own_namespace() else { return };
        let suspects = now.iter().filter(|one| one.network_namespace == own && may_wait(one)).take(MOST);
        let mut first: Vec<(&Socket, Unsent)> = Vec::new();
        for socket in suspects {
            if let Some(unsent) = unsent(diag, socket)
                && is_held(&unsent)
            {
                first.push((socket, unsent));
            }
        }
        if first.is_empty() {
            return;
        }
        std::thread::sleep(BETWEEN);
        let ends = tcp_ends(scan);
        for (socket, before) in first {
            if let Some(unsent) = unsent(diag, socket)
                && unsent.counters.segments_out == before.counters.segments_out
                && is_held(&unsent)
                && let Some((connection, sender)) = ends.get(&socket.inode)
            {
                self.0.insert(*connection, Waiting { sender: *sender, bytes: unsent.not_sent });
            }
        }
    }

    /// The senders, one for each program and service, whose TCP_NODELAY is to be asked for. In the order of [`Self::findings`].
    #[must_use]
    pub fn senders(&self, scan: &Scan) -> Vec<Sender> {
        self.by_program(scan).into_values().map(|(sender, _)| sender).collect()
    }

    fn by_program(&self, scan: &Scan) -> BTreeMap<(String, String), (Sender, Found)> {
        let mut found = BTreeMap::new();
        for (connection, Waiting { sender, bytes }) in &self.0 {
            let Some(connection) = scan.connections.get(*connection) else { continue };
            let (Some(service), Some((_, server))) = (scan.service_of(connection), scan.ends(connection))
            else {
                continue;
            };
            let (Some(socket), Some(process)) = (scan.sockets.get(*sender), scan.holder(*sender)) else {
                continue;
            };
            let client = match scan.holder(connection.client) {
                Some(client) => client.name.as_str(),
                None => "a client",
            };
            let pair = format!("{client} → {} tcp:{}", service.name, server.local);
            let text = Found::with(
                format!(
                    "{pair}: {bytes} bytes of {} {} waited for an acknowledgement, because it sends small pieces without TCP_NODELAY",
                    process.name, process.pid
                ),
                "each such wait takes up to 40 ms (Nagle's algorithm)",
            );
            let sender = Sender { pid: process.pid, inode: socket.inode };
            found.entry((pair, process.name.clone())).or_insert((sender, text));
        }
        found
    }

    /// A finding for each sender whose socket says that TCP_NODELAY is off: `Some(false)` in `sends_at_once`, which has
    /// an answer for each of [`Self::senders`].
    #[must_use]
    pub fn findings(&self, scan: &Scan, sends_at_once: &[Option<bool>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (((pair, program), (_, found)), answer) in self.by_program(scan).into_iter().zip(sends_at_once) {
            if *answer != Some(false) {
                continue;
            }
            findings.push(Finding {
                code: FindingCode::SmallWritesWait,
                subject: format!("{pair}: {program}"),
                found,
                remedy: "Set TCP_NODELAY first, or send each request in one write: that may save more than a Unix socket does, which has no such wait".to_owned(),
            });
        }
        findings
    }
}

fn unsent(diag: &mut Diag, socket: &Socket) -> Option<Unsent> {
    diag.unsent(socket.local.inet()?, socket.peer.inet()?).ok()?
}

/// The connection and the end, as positions in the scan, of each socket of the TCP connections to a service, by its inode.
fn tcp_ends(scan: &Scan) -> HashMap<u64, (usize, usize)> {
    let mut ends = HashMap::new();
    for (at, connection) in scan.connections.iter().enumerate() {
        if !connection.kind.is_tcp() || connection.service.is_none() {
            continue;
        }
        for end in [connection.client, connection.server] {
            ends.insert(scan.sockets[end].inode, (at, end));
        }
    }
    ends
}

fn may_wait(socket: &Socket) -> bool {
    let waiting = match socket.queues {
        Queues::Bytes { unsent_bytes, .. } => unsent_bytes,
        Queues::Listening { .. } => 0,
    };
    socket.kind.is_tcp()
        && socket.state == SocketState::Established
        && socket.inode != 0
        && (1..=MOST_BYTES).contains(&waiting)
}

/// Whether a small piece waits behind one that is not acknowledged, on a connection that sends small pieces to and fro.
fn is_held(unsent: &Unsent) -> bool {
    let counters = unsent.counters;
    let is_chatty = counters.data_segments_in.min(counters.data_segments_out) >= CHATTY
        && counters.bytes_acked / u64::from(counters.data_segments_out.max(1)) < SMALL;
    unsent.unacknowledged > 0 && (1..unsent.segment_size).contains(&unsent.not_sent) && is_chatty
}

#[cfg(test)]
mod tests {
    use crate::diag::Counters;

    use super::*;

    #[test]
    fn only_small_pieces_of_a_chatty_connection_are_held() {
        let chatty = Counters {
            bytes_acked: 4000,
            data_segments_in: 20,
            data_segments_out: 40,
            ..Counters::default()
        };
        let waiting = Unsent { unacknowledged: 1, not_sent: 10, segment_size: 65_483, counters: chatty };
        assert!(is_held(&waiting));
        assert!(!is_held(&Unsent { not_sent: 0, ..waiting }), "all is sent");
        assert!(!is_held(&Unsent { unacknowledged: 0, ..waiting }), "it waits for something else");
        assert!(!is_held(&Unsent { not_sent: 65_483, ..waiting }), "a whole segment waits for the window");
        let bulk = Counters { bytes_acked: 40 << 20, ..chatty };
        assert!(!is_held(&Unsent { counters: bulk, ..waiting }));
        let young = Counters { data_segments_in: 3, ..chatty };
        assert!(!is_held(&Unsent { counters: young, ..waiting }));
    }
}
