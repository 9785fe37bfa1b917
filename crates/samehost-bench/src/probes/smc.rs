//! Probe of SMC over loopback (Linux 6.10 and later, where its builder switched it on): whether the kernel opens its sockets.

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

/// `IPPROTO_SMC`, since Linux 6.11.
const SMC: u32 = 256;
/// `AF_SMC`, whose protocol 0 is SMC over IPv4.
const FAMILY: u16 = 43;

/// Why it is not measured here.
pub(super) fn refusal() -> String {
    let protocol = std::num::NonZeroU32::new(SMC).map(Protocol::from_raw);
    let ways = [
        ("socket(AF_INET, SOCK_STREAM, IPPROTO_SMC)", AddressFamily::INET, protocol),
        ("socket(AF_SMC, SOCK_STREAM, 0)", AddressFamily::from_raw(FAMILY), None),
    ];
    let mut seen = Vec::new();
    for (call, family, protocol) in ways {
        match socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol) {
            Err(errno) => seen.push(format!("{call}: {}", std::io::Error::from(errno))),
            // No kernel with it was at hand: neither flow control nor what happens to a listener of TCP could be tried.
            Ok(_) => {
                return format!(
                    "this kernel opens its sockets ({call}), but samehost has been tried on no such kernel and does not measure what it has not seen work; smc_run (package smc-tools) starts a server and a client of yours with it, and --tcp and --unix name them"
                );
            }
        }
    }
    format!("the probe of its sockets failed, this kernel has none: {}", seen.join("; "))
}
