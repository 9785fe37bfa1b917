//! What the kernel reports about a connection, read once before a trial's window: its transport and the
//! settings of both ends.

use std::os::fd::AsFd;

use samehost_model::{ConnectionSettings, Transport, Trial};
use samehost_system::diag::{Diag, both_ends};
use samehost_transport::{Observed, Stream};

/// What the kernel cannot know. That the client sees an address of TCP was checked as it connected.
const BY_RUN: &str = ", for a client that asked for TCP and sees that";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Transport, such as `AF_UNIX stream /run/app.sock, peer pid 4711`.
    pub observed: Option<String>,
    /// TLS version and cipher, if TLS is in use.
    pub cipher: Option<String>,
    /// Settings of both ends.
    pub connection: Option<ConnectionSettings>,
}

impl Seen {
    /// Reads a stream.
    #[must_use]
    pub fn of(stream: &Stream) -> Self {
        let seen = Seen { cipher: stream.cipher(), ..Seen::of_socket(stream) };
        if stream.transport() == Transport::TcpRun { seen.saying(BY_RUN) } else { seen }
    }

    /// Reads a socket that another library owns.
    #[must_use]
    pub fn of_socket(socket: impl AsFd) -> Self {
        Seen {
            observed: Observed::of(socket.as_fd()).ok().map(|observed| observed.to_string()),
            cipher: None,
            connection: both_ends(socket),
        }
    }

    /// Takes another program's description of its connection; reads the settings if it names both addresses.
    #[must_use]
    pub fn of_words(observed: &str) -> Self {
        Seen { observed: Some(observed.to_owned()), cipher: None, connection: between(observed) }
    }

    /// Appends to the description of the transport.
    #[must_use]
    pub fn saying(mut self, more: &str) -> Self {
        if let Some(observed) = &mut self.observed {
            observed.push_str(more);
        }
        self
    }

    /// Writes the evidence into a trial.
    pub fn tell(self, trial: &mut Trial) {
        trial.transport_observed = self.observed;
        trial.cipher = self.cipher;
        trial.connection = self.connection;
    }
}

/// Settings of both ends of a connection described as `AF_INET stream tcp, 127.0.0.1:39218 → 127.0.0.1:7000`.
fn between(observed: &str) -> Option<ConnectionSettings> {
    let (own, peer) = observed.split_once(", ")?.1.split_once(" → ")?;
    let (own, peer) = (own.parse().ok()?, peer.parse().ok()?);
    let mut diag = Diag::open().ok()?;
    let client = diag.tcp_end(own, peer).ok()?;
    let server = diag.tcp_end(peer, own).ok()?;
    (client.is_some() || server.is_some()).then_some(ConnectionSettings { client, server })
}
