//! What the command and the preloaded library agree on: the maps, which the command writes into its copy of the library, and the
//! page in which the library counts: plain bytes at fixed places. And which port stands for one that there is not.

/// By it the command finds the place in the library.
pub const MAGIC: &[u8; 32] = b"samehost preload, layout 1 ->\0\0\0";
/// The network namespace (SO_NETNS_COOKIE) whose sockets are meant; 0 where the kernel does not tell.
pub const NETWORK: usize = 32;
/// The path of the file with the page of counters, ended by a zero.
pub const COUNTERS: usize = 40;
pub const LONGEST_PATH: usize = 256;
/// The maps, of which the first that fits counts.
pub const ENTRIES: usize = COUNTERS + LONGEST_PATH;
pub const MOST_ENTRIES: usize = 32;
pub const ENTRY: usize = 136;
pub const SIZE: usize = ENTRIES + MOST_ENTRIES * ENTRY;

// Layout of an entry. A first byte of 0 ends the list.
pub const DIRECTION: usize = 0;
pub const HAS_ADDRESS: usize = 1;
/// In the order of the network.
pub const PORT: usize = 2;
/// As an IPv6 address; those of IPv4 are mapped.
pub const ADDRESS: usize = 4;
pub const SOCKET_LENGTH: usize = 20;
/// As it stands in `sun_path`.
pub const SOCKET: usize = 21;
/// Bytes in `sun_path`.
pub const LONGEST_SOCKET: usize = 108;

pub const CONNECTS: u8 = 1;
pub const LISTENS: u8 = 2;

/// Numbers of 8 bytes for each map.
pub const NUMBERS: usize = 16;
pub const PAGE: usize = MOST_ENTRIES * NUMBERS * 8;
pub const OVER_UNIX: usize = 0;
/// The last error of a socket that did not answer.
pub const ERROR: usize = 1;
/// From here on: what stayed with TCP, by reason.
pub const STAYED: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    NoAnswer,
    Network,
    Signals,
    Bound,
    Option,
    Epoll,
    Duplicate,
    NotReplaced,
    /// The process may open no Unix socket.
    Forbidden,
}

impl Stay {
    pub const ALL: [Stay; 9] = [
        Stay::NoAnswer,
        Stay::Network,
        Stay::Signals,
        Stay::Bound,
        Stay::Option,
        Stay::Epoll,
        Stay::Duplicate,
        Stay::NotReplaced,
        Stay::Forbidden,
    ];

    /// Its place among a map's numbers.
    pub fn number(self) -> usize {
        STAYED + self as usize
    }
}

/// A port for the side of a connection that has none, by the socket's cookie: outside of the range that servers use, and never the
/// other side's own: Go takes that for a connection to itself.
pub fn port_of(cookie: u64, other: u16) -> u16 {
    let port = 32_768 + (cookie % 28_232) as u16;
    if port == other { port - 1 } else { port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_never_leads_to_itself() {
        for cookie in [0, 1, 28_231, u64::MAX] {
            let port = 32_768 + (cookie % 28_232) as u16;
            assert_ne!(port_of(cookie, port), port);
            assert_ne!(port_of(cookie, 80), 0);
        }
    }
}
