//! Names and options of a socket that was replaced, as TCP has them.

use super::calls::{self, Errno};
use super::exchange::Owned;
use super::label::Label;
use super::numbers::*;

/// The first byte of `struct tcp_info`.
const ESTABLISHED: u8 = 1;
const LISTENING: u8 = 10;

/// What is done with an option of a socket that was replaced.
pub enum Asked {
    /// The Unix socket has it.
    OfEvery,
    /// It is this number.
    Number(u32),
    /// A fresh TCP socket knows what it takes and gives.
    OfTcp,
    /// The same, and the first byte is this.
    State(u8),
}

/// Whether one of these levels is asked about at all.
pub fn is_of_interest(level: i32, name: i32) -> bool {
    let of_socket = [SO_DOMAIN, SO_PROTOCOL, SO_PRIORITY, SO_MAX_PACING_RATE, SO_REUSEPORT];
    [IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6].contains(&level)
        || level == SOL_SOCKET && of_socket.contains(&name)
}

pub fn asked(fd: i32, label: Label, level: i32, name: i32) -> Asked {
    match (level, name) {
        (SOL_SOCKET, SO_DOMAIN) => Asked::Number(if label.kind.is_v4() { AF_INET } else { AF_INET6 } as u32),
        (SOL_SOCKET, SO_PROTOCOL) => Asked::Number(IPPROTO_TCP as u32),
        // A Unix socket never waits to send.
        (IPPROTO_TCP, TCP_NODELAY) => Asked::Number(1),
        (IPPROTO_TCP, TCP_INFO) => {
            let listens = calls::number(fd, SO_ACCEPTCONN).is_ok_and(|value| value != 0);
            Asked::State(if listens { LISTENING } else { ESTABLISHED })
        }
        (SOL_SOCKET, SO_PRIORITY | SO_MAX_PACING_RATE) => Asked::OfTcp,
        (SOL_SOCKET, _) => Asked::OfEvery,
        _ => Asked::OfTcp,
    }
}

/// A TCP socket of the family that the program believes it has.
pub fn stand_in(label: Label) -> Result<Owned, Errno> {
    let family = if label.kind.is_v4() { AF_INET } else { AF_INET6 };
    calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP).map(Owned)
}
