//! What the kernel says of a connection, asked once before a trial's window: which transport it is, and how both its
//! ends are set.

use std::os::fd::AsFd;

use samehost_model::{ConnectionSettings, Trial};
use samehost_system::diag::{Diag, both_ends};
use samehost_transport::{Observed, Stream};

/// A connection as the kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Which transport it is, such as `AF_UNIX stream /run/app.sock, peer pid 4711`.
    pub observed: Option<String>,
    /// TLS version and cipher, where there is one.
    pub cipher: Option<String>,
    /// How its ends are set.
    pub connection: Option<ConnectionSettings>,
}

impl Seen {
    /// Looks at a stream.
    #[must_use]
    pub fn of(stream: &Stream) -> Self {
        Seen { cipher: stream.cipher(), ..Seen::of_socket(stream) }
    }

    /// Looks at a socket of another library's.
    #[must_use]
    pub fn of_socket(socket: impl AsFd) -> Self {
        Seen {
            observed: Observed::of(socket.as_fd()).ok().map(|observed| observed.to_string()),
            cipher: None,
            connection: both_ends(socket),
        }
    }

    /// What another program says of its connection; its ends are looked at where the words name both addresses.
    #[must_use]
    pub fn of_words(observed: &str) -> Self {
        Seen { observed: Some(observed.to_owned()), cipher: None, connection: between(observed) }
    }

    /// The same with more words on which transport it is.
    #[must_use]
    pub fn saying(mut self, more: &str) -> Self {
        if let Some(observed) = &mut self.observed {
            observed.push_str(more);
        }
        self
    }

    /// Writes it into a trial.
    pub fn tell(self, trial: &mut Trial) {
        trial.transport_observed = self.observed;
        trial.cipher = self.cipher;
        trial.connection = self.connection;
    }
}

/// How both ends are set of `AF_INET stream tcp, 127.0.0.1:39218 → 127.0.0.1:7000`.
fn between(observed: &str) -> Option<ConnectionSettings> {
    let (own, peer) = observed.split_once(", ")?.1.split_once(" → ")?;
    let (own, peer) = (own.parse().ok()?, peer.parse().ok()?);
    let mut diag = Diag::open().ok()?;
    let client = diag.tcp_end(own, peer).ok()?;
    let server = diag.tcp_end(peer, own).ok()?;
    (client.is_some() || server.is_some()).then_some(ConnectionSettings { client, server })
}
