//! A socket as listed by the kernel: kind, state, both addresses, queues, and the processes that hold it.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// What kind of socket it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SocketKind {
    /// TCP over IPv4.
    #[default]
    Tcp,
    /// TCP on an IPv6 socket, which may carry IPv4 (`::ffff:127.0.0.1`).
    Tcp6,
    /// UDP over IPv4.
    Udp,
    /// UDP on an IPv6 socket.
    Udp6,
    /// A Unix stream socket.
    UnixStream,
    /// A Unix datagram socket.
    UnixDgram,
    /// A Unix socket that keeps message boundaries.
    UnixSeqpacket,
}

impl SocketKind {
    /// Whether it is TCP, over either version of IP.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(self, SocketKind::Tcp | SocketKind::Tcp6)
    }

    /// Whether it is UDP, over either version of IP.
    #[must_use]
    pub fn is_udp(self) -> bool {
        matches!(self, SocketKind::Udp | SocketKind::Udp6)
    }

    /// Whether it is a Unix socket of any type.
    #[must_use]
    pub fn is_unix(self) -> bool {
        matches!(self, SocketKind::UnixStream | SocketKind::UnixDgram | SocketKind::UnixSeqpacket)
    }

    /// Display name: `tcp`, `tcp6`, `udp`, `udp6`, `unix`, `unix dgram`, `unix seqpacket`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            SocketKind::Tcp => "tcp",
            SocketKind::Tcp6 => "tcp6",
            SocketKind::Udp => "udp",
            SocketKind::Udp6 => "udp6",
            SocketKind::UnixStream => "unix",
            SocketKind::UnixDgram => "unix dgram",
            SocketKind::UnixSeqpacket => "unix seqpacket",
        }
    }
}

/// The state of a socket; Unix sockets use three of these words (`net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SocketState {
    /// Connected. Datagram sockets with a peer are in it as well.
    Established,
    /// Connecting.
    SynSent,
    /// Being accepted by the kernel.
    SynReceived,
    /// Closed on this side, not yet acknowledged.
    FinWait1,
    /// Closed on this side, acknowledged.
    FinWait2,
    /// Kept for late packets.
    TimeWait,
    /// Neither connected nor listening.
    Close,
    /// Closed by the peer, this side has not.
    CloseWait,
    /// Closed by both, waiting for the last acknowledgement.
    LastAck,
    /// Waiting for connections.
    Listen,
    /// Closed by both at once.
    Closing,
    /// A number that this version does not know.
    Unknown,
}

impl SocketState {
    /// State from its number in `net/tcp_states.h`.
    #[must_use]
    pub fn from_raw(raw: u8) -> Self {
        match raw {
            1 => SocketState::Established,
            2 => SocketState::SynSent,
            3 | 12 => SocketState::SynReceived,
            4 => SocketState::FinWait1,
            5 => SocketState::FinWait2,
            6 => SocketState::TimeWait,
            7 => SocketState::Close,
            8 => SocketState::CloseWait,
            9 => SocketState::LastAck,
            10 => SocketState::Listen,
            11 => SocketState::Closing,
            _ => SocketState::Unknown,
        }
    }
}

/// The address of one end of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// No address: an unbound Unix socket, or a socket without a peer.
    #[default]
    Unnamed,
    /// IP address and port. IPv4 on an IPv6 socket is `::ffff:a.b.c.d`.
    Inet(SocketAddr),
    /// Path to which a Unix socket was bound, as passed to bind(2): it may be relative.
    Path(PathBuf),
    /// Name of an abstract Unix socket, without its leading NUL byte.
    Abstract(Vec<u8>),
}

impl Address {
    /// Address of a Unix socket from the bytes of `sun_path`; a leading NUL byte marks an abstract name.
    #[must_use]
    pub fn from_sun_path(bytes: &[u8]) -> Self {
        match bytes {
            [] => Address::Unnamed,
            [0, name @ ..] => Address::Abstract(name.to_vec()),
            path => {
                let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                Address::Path(PathBuf::from(std::ffi::OsString::from_vec(path[..end].to_vec())))
            }
        }
    }

    /// Path of a Unix socket that has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Path(path) => Some(path),
            _ => None,
        }
    }

    /// IP address and port, with IPv4-mapped addresses converted to IPv4.
    #[must_use]
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Address::Inet(address) => Some(SocketAddr::new(address.ip().to_canonical(), address.port())),
            _ => None,
        }
    }
}

/// Converts bytes to text: valid UTF-8 unchanged, other bytes as `\xNN`. Keeps control characters, which must
/// be removed before display.
#[must_use]
pub fn text_of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

impl fmt::Display for Address {
    /// Formats as `127.0.0.1:3306`, `[::1]:3306`, `/run/app.sock`, `@name`, or an empty string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unnamed => Ok(()),
            Address::Inet(address) => write!(f, "{address}"),
            Address::Path(path) => f.write_str(&text_of_bytes(path.as_os_str().as_bytes())),
            Address::Abstract(name) => write!(f, "@{}", text_of_bytes(name)),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "null"],
            "description": "`127.0.0.1:3306`, `[::1]:3306`, `/run/app.sock`, `@name`; null where there is none."
        })
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Address::Unnamed => serializer.serialize_none(),
            other => serializer.collect_str(other),
        }
    }
}

/// What waits at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Queues {
    /// Of a listening socket.
    Listening {
        /// Connections that wait to be accepted.
        waiting: u32,
        /// How many may wait, where the kernel was asked and not a table.
        backlog: Option<u32>,
    },
    /// Of any other.
    Bytes {
        /// Bytes received and not yet read.
        received_bytes: u32,
        /// Bytes sent and not yet acknowledged (TCP) or read (Unix).
        unsent_bytes: u32,
    },
}

/// A file as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileId {
    /// Device number, as `st_dev` of stat(2) has it.
    pub device: u64,
    /// Inode number; the kernel's socket listing keeps the lower 32 bits.
    pub inode: u64,
}

impl FileId {
    /// Whether a number of stat(2) is this inode's, as far as the kernel's listing tells.
    #[must_use]
    pub fn has_inode(self, number: u64) -> bool {
        /// sock_diag reports the lower 32 bits.
        const LISTED_BITS: u64 = 0xffff_ffff;
        self.inode == number & LISTED_BITS
    }
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Socket {
    /// Its kind.
    pub kind: SocketKind,
    /// Its state.
    pub state: SocketState,
    /// Its inode; 0 when no process holds it any more.
    pub inode: u64,
    /// Inode of the network namespace that it belongs to.
    pub network_namespace: u64,
    /// Its own address.
    pub local: Address,
    /// The peer's address: for TCP always, for a Unix socket once it is joined with its peer.
    pub peer: Address,
    /// Inode of the peer, for a connected Unix socket whose peer was accepted.
    pub peer_inode: Option<u64>,
    /// The socket file that a Unix socket was bound to.
    pub file: Option<FileId>,
    /// What waits at it.
    pub queues: Queues,
    /// The user who made it.
    pub uid: Option<u32>,
    /// The kernel encrypts it (kTLS).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kernel_tls: bool,
    /// Of a listener on an IPv6 socket: whether it takes IPv6 only. None of others, and where the kernel was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v6only: Option<bool>,
    /// The control group (cgroup v2) that made it, by the kernel's number; none of Unix sockets and of old kernels.
    #[serde(skip)]
    pub control_group: Option<u64>,
    /// The kernel's number for it, which no other socket has since the machine started; 0 where it was not read.
    #[serde(skip)]
    pub cookie: u64,
    /// The unit or the container that made it, of a connection's client that no process here holds any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_in: Option<String>,
    /// The processes that hold it, as far as they may be seen, in ascending order.
    pub pids: Vec<u32>,
}

impl Socket {
    /// A socket of which nothing else is known yet: without addresses, owner and processes. A listener has nobody waiting.
    #[must_use]
    pub fn new(kind: SocketKind, state: SocketState, inode: u64, network_namespace: u64) -> Self {
        Socket {
            kind,
            state,
            inode,
            network_namespace,
            local: Address::Unnamed,
            peer: Address::Unnamed,
            peer_inode: None,
            file: None,
            queues: match state {
                SocketState::Listen => Queues::Listening { waiting: 0, backlog: None },
                _ => Queues::Bytes { received_bytes: 0, unsent_bytes: 0 },
            },
            uid: None,
            kernel_tls: false,
            v6only: None,
            control_group: None,
            cookie: 0,
            made_in: None,
            pids: Vec::new(),
        }
    }

    /// Whether it waits for connections or, as a UDP socket, for datagrams.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        match self.kind {
            SocketKind::Udp | SocketKind::Udp6 => self.state == SocketState::Close,
            SocketKind::UnixDgram => self.local != Address::Unnamed && self.peer_inode.is_none(),
            _ => self.state == SocketState::Listen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_unix_sockets_are_told_apart() {
        assert_eq!(Address::from_sun_path(b""), Address::Unnamed);
        assert_eq!(Address::from_sun_path(b"/run/a\0").to_string(), "/run/a");
        assert_eq!(Address::from_sun_path(b"\0bus").to_string(), "@bus");
        assert_eq!(Address::from_sun_path(b"/run/\xff\x1b").to_string(), "/run/\\xff\u{1b}");
    }

    #[test]
    fn carried_ipv4_is_ipv4() {
        let address = Address::Inet("[::ffff:127.0.0.1]:80".parse().unwrap());
        assert_eq!(address.inet(), Some("127.0.0.1:80".parse().unwrap()));
    }
}
