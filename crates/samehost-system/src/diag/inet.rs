//! `inet_diag`: the request for TCP and UDP sockets, and its replies (`linux/inet_diag.h`). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use samehost_model::scan::{Address, Queues, Socket, SocketKind, SocketState};

use super::frame::{attributes, u32_at, u64_at};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// Bytes of `struct inet_diag_req_v2`.
///
/// Two message formats of fixed layout are written and parsed here. The three netlink crates that could
/// do it were rejected: they would add more than they save, and bytes would be copied twice. The parsers
/// are pure, and are tested with recorded and mutated bytes. The sockets themselves are rustix'.
const REQUEST: usize = 56;
/// Bytes of `struct inet_diag_msg`.
pub const FIXED: usize = 72;
pub const INET_DIAG_INFO: u16 = 2;
pub const INET_DIAG_SKMEMINFO: u16 = 7;
/// `SK_MEMINFO_DROPS`: place of the datagrams that found no room.
const DROPS: usize = 8;
const INET_DIAG_SKV6ONLY: u16 = 11;
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_DIAG_CGROUP_ID: u16 = 21;
const INET_ULP_INFO_NAME: u16 = 1;
/// Every state but TIME_WAIT, whose sockets belong to no process.
const STATES: u32 = !(1 << 6);
const CONNECTED: u32 = 1 << 1;
const TIME_WAIT: u32 = 1 << 6;
/// Connected, or closing with data in flight. Those in TIME_WAIT have no traffic, and are tens of thousands beside a site with short
/// connections.
const STATES_WITH_TRAFFIC: u32 = 1 << 1 | 1 << 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Sockets,
    Connected,
    /// Connected sockets with their traffic counters.
    Traffic,
    TimeWait,
    Memory,
}

pub const KINDS: [SocketKind; 4] = [SocketKind::Tcp, SocketKind::Tcp6, SocketKind::Udp, SocketKind::Udp6];

/// Payload of a request for all sockets of a kind; `None` for Unix sockets.
pub fn request(kind: SocketKind, wanted: Wanted) -> Option<Vec<u8>> {
    let (family, protocol) = match kind {
        SocketKind::Tcp => (AF_INET, IPPROTO_TCP),
        SocketKind::Tcp6 => (AF_INET6, IPPROTO_TCP),
        SocketKind::Udp => (AF_INET, IPPROTO_UDP),
        SocketKind::Udp6 => (AF_INET6, IPPROTO_UDP),
        _ => return None,
    };
    let (extensions, states) = match wanted {
        Wanted::Sockets => (0, STATES),
        Wanted::Connected => (0, CONNECTED),
        Wanted::Traffic => (1 << (INET_DIAG_INFO - 1), STATES_WITH_TRAFFIC),
        Wanted::TimeWait => (0, TIME_WAIT),
        Wanted::Memory => (1 << (INET_DIAG_SKMEMINFO - 1), STATES),
    };
    let mut request = vec![family, protocol, extensions, 0];
    request.extend(states.to_ne_bytes());
    request.resize(REQUEST, 0);
    Some(request)
}

/// Payload of a request for the TCP socket with this local address and this peer; `None` if they are of
/// different families.
pub fn exact(local: SocketAddr, peer: SocketAddr) -> Option<Vec<u8>> {
    let (family, local_ip, peer_ip) = match (local.ip().to_canonical(), peer.ip().to_canonical()) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => (AF_INET, local.octets().to_vec(), peer.octets().to_vec()),
        (IpAddr::V6(local), IpAddr::V6(peer)) => (AF_INET6, local.octets().to_vec(), peer.octets().to_vec()),
        _ => return None,
    };
    let mut request = vec![family, IPPROTO_TCP, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(local.port().to_be_bytes());
    request.extend(peer.port().to_be_bytes());
    for ip in [local_ip, peer_ip] {
        request.extend(&ip);
        request.resize(request.len() + 16 - ip.len(), 0);
    }
    // Any interface.
    request.extend(0u32.to_ne_bytes());
    // INET_DIAG_NOCOOKIE, in both halves.
    request.resize(REQUEST, 0xff);
    Some(request)
}

/// Parses one reply; `None` if it is truncated or of another family.
pub fn parse(payload: &[u8], kind: SocketKind, namespace: u64) -> Option<Socket> {
    if payload.len() < FIXED {
        return None;
    }
    let state = SocketState::from_raw(payload[1]);
    let (receive_queue, send_queue) = (u32_at(payload, 56)?, u32_at(payload, 60)?);
    let mut socket = Socket {
        local: Address::Inet(address(payload, 4, 8)?),
        peer: Address::Inet(address(payload, 6, 24)?),
        uid: Some(u32_at(payload, 64)?),
        queues: if state == SocketState::Listen {
            Queues::Listening { waiting: receive_queue, backlog: Some(send_queue) }
        } else {
            Queues::Bytes { received_bytes: receive_queue, unsent_bytes: send_queue }
        },
        cookie: cookie(payload),
        ..Socket::new(kind, state, u64::from(u32_at(payload, 68)?), namespace)
    };
    for (attribute, value) in attributes(&payload[FIXED..]) {
        match attribute {
            INET_DIAG_SKV6ONLY => socket.v6only = value.first().map(|only| *only != 0),
            INET_DIAG_ULP_INFO => {
                socket.kernel_tls |= attributes(value)
                    .any(|(kind, name)| kind == INET_ULP_INFO_NAME && name.starts_with(b"tls"));
            }
            INET_DIAG_CGROUP_ID => socket.control_group = u64_at(value, 0),
            _ => {}
        }
    }
    Some(socket)
}

fn address(payload: &[u8], port_at: usize, ip_at: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(payload.get(port_at..port_at + 2)?.try_into().ok()?);
    let ip = payload.get(ip_at..ip_at + 16)?;
    let ip = match payload[0] {
        AF_INET => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Milliseconds until the socket's timer expires; 0 without a timer.
pub fn expires_ms(payload: &[u8]) -> u32 {
    u32_at(payload, 52).unwrap_or(0)
}

pub fn cookie(payload: &[u8]) -> u64 {
    let (low, high) = (u32_at(payload, 44).unwrap_or(0), u32_at(payload, 48).unwrap_or(0));
    u64::from(high) << 32 | u64::from(low)
}

/// Traffic of a TCP socket since it was connected (`struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub bytes_acked: u64,
    pub bytes_received: u64,
    /// In both directions with acknowledgements.
    pub segments_out: u32,
    pub segments_in: u32,
    pub data_segments_out: u32,
    pub data_segments_in: u32,
}

/// What a connected TCP socket has not sent yet, and why it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Segments in flight.
    pub unacknowledged: u32,
    /// In bytes.
    pub not_sent: u32,
    /// In bytes.
    pub segment_size: u32,
    pub counters: Counters,
}

fn attribute(payload: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(payload.get(FIXED..)?);
    all.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

pub fn unsent(payload: &[u8]) -> Option<Unsent> {
    let info = attribute(payload, INET_DIAG_INFO)?;
    Some(Unsent {
        unacknowledged: u32_at(info, 24)?,
        not_sent: u32_at(info, 144)?,
        segment_size: u32_at(info, 16)?,
        counters: counters(payload)?,
    })
}

/// Parses the counters of a reply to [`Wanted::Traffic`]; `None` if the kernel sent none.
pub fn counters(payload: &[u8]) -> Option<Counters> {
    let info = attribute(payload, INET_DIAG_INFO)?;
    Some(Counters {
        bytes_acked: u64_at(info, 120)?,
        bytes_received: u64_at(info, 128)?,
        segments_out: u32_at(info, 136)?,
        segments_in: u32_at(info, 140)?,
        data_segments_in: u32_at(info, 152)?,
        data_segments_out: u32_at(info, 156)?,
    })
}

/// Datagrams that a socket dropped because its queue was full, modulo 2³²; `None` if the kernel does not say.
pub fn drops(payload: &[u8]) -> Option<u32> {
    u32_at(attribute(payload, INET_DIAG_SKMEMINFO)?, 4 * DROPS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A listener on 127.0.0.1:2024 with a backlog of 128, as kernel 6.18 replied.
    fn captured() -> Vec<u8> {
        let mut bytes = vec![AF_INET, 10, 0, 0, 0x07, 0xe8, 0, 0, 127, 0, 0, 1];
        bytes.resize(52, 0);
        for number in [0u32, 0, 128, 1000, 4711] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_listener() {
        let socket = parse(&captured(), SocketKind::Tcp, 1).unwrap();
        assert_eq!(socket.local.to_string(), "127.0.0.1:2024");
        assert_eq!(socket.state, SocketState::Listen);
        assert_eq!(socket.queues, Queues::Listening { waiting: 0, backlog: Some(128) });
        assert_eq!((socket.uid, socket.inode), (Some(1000), 4711));
        assert!(parse(&captured()[..71], SocketKind::Tcp, 1).is_none());
    }

    #[test]
    fn a_request_for_one_socket_names_both_ends() {
        let request = exact("127.0.0.1:3306".parse().unwrap(), "[::ffff:127.0.0.1]:4711".parse().unwrap());
        let request = request.unwrap();
        assert_eq!((request.len(), request[0]), (56, AF_INET));
        assert_eq!(request[8..12], [0x0c, 0xea, 0x12, 0x67]);
        assert_eq!((&request[12..16], &request[28..32]), (&[127, 0, 0, 1][..], &[127, 0, 0, 1][..]));
        assert_eq!(request[48..], [0xff; 8]);
        assert!(exact("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()).is_none());
    }

    #[test]
    fn a_listener_may_take_ipv6_only() {
        let v6only = |only: u8| {
            let mut bytes = captured();
            bytes[0] = AF_INET6;
            bytes.extend(5u16.to_ne_bytes());
            bytes.extend(INET_DIAG_SKV6ONLY.to_ne_bytes());
            bytes.extend([only, 0, 0, 0]);
            parse(&bytes, SocketKind::Tcp6, 1).unwrap().v6only
        };
        assert_eq!((v6only(1), v6only(0)), (Some(true), Some(false)));
        assert_eq!(parse(&captured(), SocketKind::Tcp, 1).unwrap().v6only, None);
    }

    #[test]
    fn a_control_group_is_a_number_of_64_bits() {
        let mut bytes = captured();
        bytes.extend(12u16.to_ne_bytes());
        bytes.extend(INET_DIAG_CGROUP_ID.to_ne_bytes());
        bytes.extend((1u64 << 40 | 7).to_ne_bytes());
        assert_eq!(parse(&bytes, SocketKind::Tcp, 1).unwrap().control_group, Some(1 << 40 | 7));
        assert_eq!(parse(&captured(), SocketKind::Tcp, 1).unwrap().control_group, None);
    }

    #[test]
    fn requests_have_the_size_that_the_kernel_wants() {
        for kind in KINDS {
            assert_eq!(request(kind, Wanted::Traffic).unwrap().len(), 56);
        }
        assert!(request(SocketKind::UnixStream, Wanted::Sockets).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes, SocketKind::Tcp, 1);
            let _ = (counters(&bytes), unsent(&bytes), drops(&bytes));
        }
    }
}
