//! Parses `/proc/PID/net/{tcp,tcp6,udp,udp6,unix}`: the sockets of another network namespace that may not be entered.
//! Pure, except [`read`]. The table of Unix sockets has no peers, so its connections lack their other end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use samehost_model::scan::{Address, Queues, Socket, SocketKind, SocketState};

use crate::diag::KINDS;

/// The sockets in `/proc/PID/net`, of the network namespace with this inode; `None` if none of its tables may be read.
pub fn read(pid: u32, namespace: u64) -> Option<Vec<Socket>> {
    let mut sockets = Vec::new();
    let mut any = false;
    for kind in KINDS {
        if let Ok(bytes) = std::fs::read(format!("/proc/{pid}/net/{}", kind.label())) {
            any = true;
            sockets.extend(inet(&bytes, kind, namespace));
        }
    }
    if let Ok(bytes) = std::fs::read(format!("/proc/{pid}/net/unix")) {
        any = true;
        sockets.extend(unix(&bytes, namespace));
    }
    any.then_some(sockets)
}

fn inet(bytes: &[u8], kind: SocketKind, namespace: u64) -> Vec<Socket> {
    let mut sockets = Vec::new();
    for line in String::from_utf8_lossy(bytes).lines().skip(1) {
        sockets.extend(inet_line(line, kind, namespace));
    }
    sockets
}

fn inet_line(line: &str, kind: SocketKind, namespace: u64) -> Option<Socket> {
    // sl local remote st tx:rx tr:when retrnsmt uid timeout inode
    let fields: Vec<&str> = line.split_whitespace().collect();
    let state = SocketState::from_raw(u8::from_str_radix(fields.get(3)?, 16).ok()?);
    if kind.is_tcp() && state == SocketState::TimeWait {
        return None;
    }
    let (sent, received) = fields.get(4)?.split_once(':')?;
    let sent = u32::from_str_radix(sent, 16).ok()?;
    let received = u32::from_str_radix(received, 16).ok()?;
    let mut socket = Socket::new(kind, state, fields.get(9)?.parse().ok()?, namespace);
    socket.local = Address::Inet(address(fields.get(1)?)?);
    socket.peer = Address::Inet(address(fields.get(2)?)?);
    socket.uid = fields.get(7)?.parse().ok();
    socket.queues = if state == SocketState::Listen {
        Queues::Listening { waiting: received, backlog: None }
    } else {
        Queues::Bytes { received_bytes: received, unsent_bytes: sent }
    };
    Some(socket)
}

/// `0100007F:1F90`: each group of eight digits is a number in native byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(ip, 0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(ip, at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

fn word(ip: &str, at: usize) -> Option<[u8; 4]> {
    let digits = ip.get(at * 8..at * 8 + 8)?;
    Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
}

fn unix(bytes: &[u8], namespace: u64) -> Vec<Socket> {
    let mut sockets = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').skip(1) {
        sockets.extend(unix_line(line, namespace));
    }
    sockets
}

/// Flag of a listening socket (`__SO_ACCEPTCON`).
const LISTENING: u32 = 1 << 16;

fn unix_line(line: &[u8], namespace: u64) -> Option<Socket> {
    // Num: RefCount Protocol Flags Type St Inode Path; a path may contain blanks, so it is the rest of the line.
    let mut rest = line;
    let mut fields = [&[][..]; 7];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        (*field, rest) = rest.split_at(end);
    }
    let listens = hex(fields[3])? & LISTENING != 0;
    let kind = match hex(fields[4])? {
        1 => SocketKind::UnixStream,
        2 => SocketKind::UnixDgram,
        5 => SocketKind::UnixSeqpacket,
        _ => return None,
    };
    // SS_CONNECTED of `linux/net.h` is 3.
    let state = match (listens, hex(fields[5])?) {
        (true, _) => SocketState::Listen,
        (false, 3) => SocketState::Established,
        _ => SocketState::Close,
    };
    let inode = std::str::from_utf8(fields[6]).ok()?.parse().ok()?;
    let mut socket = Socket::new(kind, state, inode, namespace);
    socket.local = match rest.strip_prefix(b" ").unwrap_or(rest) {
        [] => Address::Unnamed,
        [b'@', name @ ..] => Address::Abstract(name.to_vec()),
        path => Address::from_sun_path(path),
    };
    Some(socket)
}

fn hex(field: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok()
}

/// Parses bytes as each of the tables.
#[cfg(test)]
pub fn fuzzed(bytes: &[u8]) -> Vec<Vec<Socket>> {
    let mut tables: Vec<Vec<Socket>> = KINDS.into_iter().map(|kind| inet(bytes, kind, 1)).collect();
    tables.push(unix(bytes, 1));
    tables
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tables_of_a_real_kernel() {
        let tcp = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000002 00:00000000 00000000   110        0 4711 1 0 100 0 0 10 0\n";
        if cfg!(target_endian = "little") {
            let sockets = inet(tcp, SocketKind::Tcp, 5);
            assert_eq!(sockets[0].local.to_string(), "127.0.0.1:3306");
            assert_eq!((sockets[0].inode, sockets[0].uid), (4711, Some(110)));
            assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
        }
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 12 /run/a b.sock\n0000000000000000: 00000003 00000000 00000000 0001 03 13\n0000000000000000: 00000002 00000000 00000000 0002 01 14 @abc\n";
        let sockets = unix(table, 5);
        assert_eq!(sockets[0].local.to_string(), "/run/a b.sock");
        assert!(sockets[0].is_listening());
        assert_eq!(sockets[1].state, SocketState::Established);
        assert_eq!(sockets[2].local.to_string(), "@abc");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            bytes.insert(0, b'\n');
            inet(&bytes, SocketKind::Tcp, 5);
            unix(&bytes, 5);
        }

        #[test]
        fn no_fields_panic(line in "[0-9A-F: @/é]{0,120}") {
            inet_line(&line, SocketKind::Tcp6, 5);
            unix_line(line.as_bytes(), 5);
        }
    }
}
