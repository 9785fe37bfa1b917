//! How bytes travel between two programs on one machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A way to carry bytes between two local programs; the name on the command line and in JSON is [`Self::name`].
// JSON, help and options need the name, and connecting needs sockets. So a transport is named here and
// implemented in a file of `samehost-transport`, with one line in its registry. One line only, over
// there, was rejected: the model would have to depend on sockets to read a stored report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP over IPv4 loopback.
    Tcp,
    /// TCP over IPv6 loopback.
    Tcp6,
    /// A Unix stream socket named by a path.
    Unix,
    /// A Unix stream socket in Linux' abstract namespace.
    Abstract,
    /// TLS over TCP over IPv4 loopback.
    #[serde(rename = "tcp+tls")]
    TcpTls,
    /// A Unix socket that keeps message boundaries (`SOCK_SEQPACKET`), named by a path.
    Seqpacket,
    /// An unnamed, already connected pair of Unix stream sockets; one end is inherited by the server.
    Socketpair,
    /// Two pipes, one each way, inherited by the server.
    Pipe,
    /// UDP on loopback: the end of a datagram, which is seen and not measured; older reports measured it.
    Udp,
    /// A Unix datagram socket named by a path.
    Unixgram,
    /// A client that asks for TCP, connected over the Unix socket by `samehost run`.
    #[serde(rename = "tcp+run")]
    TcpRun,
    /// No transport: the harness alone.
    None,
    /// Whatever an arm's own command uses; samehost neither connects nor knows.
    Command,
}

impl Transport {
    /// Transports with connections that a user can request, in the order in which help lists them.
    pub const ALL: [Transport; 8] = [
        Transport::Tcp,
        Transport::Tcp6,
        Transport::Unix,
        Transport::Abstract,
        Transport::TcpTls,
        Transport::Seqpacket,
        Transport::Socketpair,
        Transport::Pipe,
    ];

    /// Transports of single datagrams: nothing is accepted, and nothing is acknowledged.
    pub const DATAGRAM: [Transport; 2] = [Transport::Udp, Transport::Unixgram];

    /// Name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tcp6 => "tcp6",
            Transport::Unix => "unix",
            Transport::Abstract => "abstract",
            Transport::TcpTls => "tcp+tls",
            Transport::Seqpacket => "seqpacket",
            Transport::Socketpair => "socketpair",
            Transport::Pipe => "pipe",
            Transport::Udp => "udp",
            Transport::Unixgram => "unixgram",
            Transport::TcpRun => "tcp+run",
            Transport::None => "none",
            Transport::Command => "command",
        }
    }

    /// Every transport that a user can request.
    pub fn named() -> impl Iterator<Item = Transport> {
        Transport::ALL.into_iter().chain([Transport::TcpRun])
    }

    /// Whether a server can listen on it and unrelated processes can connect; other transports are inherited
    /// from a parent, or are ways past TCP, on which nobody listens.
    #[must_use]
    pub fn is_named(self) -> bool {
        let is_inherited = matches!(self, Transport::Socketpair | Transport::Pipe);
        let is_none = matches!(self, Transport::None | Transport::Command) || self.is_datagram();
        !is_inherited && !is_none && self != Transport::TcpRun
    }

    /// Whether it carries single datagrams.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        Transport::DATAGRAM.contains(&self)
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(self) -> bool {
        self == Transport::TcpTls
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for an unknown transport name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown transport `{name}`; known are {}", Transport::named().map(Transport::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownTransport {
    /// The name as given.
    pub name: String,
}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Transport::named()
            .find(|transport| transport.name() == name)
            .ok_or_else(|| UnknownTransport { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for transport in Transport::named() {
            assert_eq!(transport.name().parse(), Ok(transport));
            assert_eq!(serde_json::to_value(transport).unwrap(), transport.name());
        }
        let error = "sctp".parse::<Transport>().unwrap_err();
        assert!(error.to_string().contains("tcp+tls"), "{error}");
    }
}
