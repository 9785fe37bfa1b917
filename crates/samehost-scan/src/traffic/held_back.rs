//! Finds connections whose small pieces wait for an acknowledgement: without TCP_NODELAY a second small write is held back
//! until the peer has acknowledged the first, and the peer delays that by up to 40 ms (Nagle's algorithm, RFC 896, and
//! delayed acknowledgements, RFC 1122). On loopback an acknowledgement takes microseconds, so bytes that wait for
//! milliseconds behind others show it. The option itself is asked of the process, by a caller.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use samehost_model::scan::{Finding, Found, Scan, Socket, SocketState};

use crate::diag::{Diag, Unsent};

/// Sockets that are looked at more closely in one look.
const MOST: usize = 16;
/// Bytes that wait to be sent or acknowledged; with more it is a stream.
const MOST_BYTES: u32 = 16 * 1024;
/// Bytes of a segment on average; with more it is a stream.
const SMALL: u64 = 2048;
/// Segments with data in each direction, from which on a connection is chatty.
const CHATTY: u32 = 20;
/// Time between two looks at the same bytes: more than any acknowledgement takes that is not delayed.
const BETWEEN: Duration = Duration::from_millis(6);

/// Connections that were seen to hold bytes back, as positions in those of the scan, with the position of the sender's
/// socket and the bytes that waited.
#[derive(Clone, Debug, Default)]
pub struct HeldBack(BTreeMap<usize, (usize, u32)>);

/// A sender whose TCP_NODELAY is to be asked for.
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
    /// Looks again, at the sockets as they are now.
    pub(crate) fn look_now(&mut self, scan: &Scan) {
        let own = scan.network_namespaces.first().map_or(0, |space| space.inode);
        if let Ok(mut diag) = Diag::open()
            && let Ok(sockets) = diag.connected(own)
        {
            self.look(scan, &mut diag, &sockets);
        }
    }

    fn look(&mut self, scan: &Scan, diag: &mut Diag, now: &[Socket]) {
        let own = scan.network_namespaces.first().map_or(0, |space| space.inode);
        let suspects: Vec<&Socket> =
            now.iter().filter(|one| one.network_namespace == own && may_wait(one)).take(MOST).collect();
        if suspects.is_empty() {
            return;
        }
        let mut ask = |socket: &Socket| diag.unsent(socket.local.inet()?, socket.peer.inet()?).ok()?;
        let first: Vec<(&Socket, Unsent)> =
            suspects.into_iter().filter_map(|one| Some((one, ask(one).filter(is_held)?))).collect();
        if first.is_empty() {
            return;
        }
        std::thread::sleep(BETWEEN);
        let ends: HashMap<u64, (usize, usize)> = scan
            .connections
            .iter()
            .enumerate()
            .filter(|(_, connection)| connection.kind.is_tcp() && connection.service.is_some())
            .flat_map(|(at, connection)| [(connection.client, at), (connection.server, at)])
            .filter_map(|(end, at)| Some((scan.sockets.get(end)?.inode, (at, end))))
            .collect();
        for (socket, before) in first {
            if let Some(unsent) = ask(socket)
                && unsent.segments_out == before.segments_out
                && is_held(&unsent)
                && let Some((connection, end)) = ends.get(&socket.inode)
            {
                self.0.insert(*connection, (*end, unsent.not_sent));
            }
        }
    }

    /// The senders, one for each program and service.
    #[must_use]
    pub fn senders(&self, scan: &Scan) -> Vec<Sender> {
        self.by_program(scan).into_values().map(|(sender, _)| sender).collect()
    }

    /// One sender of each program and service, with what to say of it.
    fn by_program(&self, scan: &Scan) -> BTreeMap<(String, String), (Sender, Found)> {
        let mut found = BTreeMap::new();
        for (connection, (end, bytes)) in &self.0 {
            let Some(connection) = scan.connections.get(*connection) else { continue };
            let service = connection.service.and_then(|at| scan.services.get(at));
            let (Some(service), Some(socket), Some(process), Some(server)) =
                (service, scan.sockets.get(*end), scan.holder(*end), scan.sockets.get(connection.server))
            else {
                continue;
            };
            let client = scan.holder(connection.client).map_or("a client", |client| client.name.as_str());
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
        let all = self.by_program(scan).into_iter().zip(sends_at_once);
        let off = all.filter(|(_, answer)| **answer == Some(false));
        off.map(|(((pair, sender), (_, found)), _)| Finding {
            code: "small-writes-wait",
            subject: format!("{pair}: {sender}"),
            found,
            remedy: "Set TCP_NODELAY first, or send each request in one write: that may save more than a Unix socket does, which has no such wait".to_owned(),
        })
        .collect()
    }
}

/// Whether a few bytes wait at an open connection.
fn may_wait(socket: &Socket) -> bool {
    let waiting = match socket.queues {
        samehost_model::scan::Queues::Bytes { unsent_bytes, .. } => unsent_bytes,
        samehost_model::scan::Queues::Listening { .. } => 0,
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
        let waiting = Unsent {
            unacknowledged: 1,
            not_sent: 10,
            segment_size: 65_483,
            segments_out: 60,
            counters: chatty,
        };
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
