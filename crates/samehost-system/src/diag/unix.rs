//! `unix_diag`: the request for Unix sockets, and its replies (`linux/unix_diag.h`). Pure.

use samehost_model::scan::{Address, FileId, Queues, Socket, SocketKind, SocketState};

use super::frame::{attributes, u32_at};

const AF_UNIX: u8 = 1;
/// Bytes of `struct unix_diag_msg`.
pub const FIXED: usize = 16;
const SOCK_STREAM: u8 = 1;
const SOCK_DGRAM: u8 = 2;
const SOCK_SEQPACKET: u8 = 5;
const NAME: u16 = 0;
const VFS: u16 = 1;
const PEER: u16 = 2;
const RQLEN: u16 = 4;
const UID: u16 = 7;
/// `UDIAG_SHOW_NAME | _VFS | _PEER | _RQLEN | _UID`, and `_MEMINFO`.
const SHOW: u32 = 0x01 | 0x02 | 0x04 | 0x10 | 0x40;
const SHOW_MEMORY: u32 = 0x20;

/// Payload of a request for all Unix sockets.
pub fn request() -> Vec<u8> {
    request_for(0, SHOW, 0)
}

/// Payload of a request for the socket with this inode; `None` if the listing cannot represent the inode.
pub fn exact(inode: u64) -> Option<Vec<u8>> {
    // Any cookie.
    Some(request_for(u32::try_from(inode).ok()?, SHOW | SHOW_MEMORY, 0xff))
}

/// `struct unix_diag_req`, of sockets in any state.
fn request_for(inode: u32, show: u32, cookie: u8) -> Vec<u8> {
    let mut request = vec![AF_UNIX, 0, 0, 0];
    for word in [u32::MAX, inode, show] {
        request.extend(word.to_ne_bytes());
    }
    request.extend([cookie; 8]);
    request
}

/// Parses one reply; `None` if it is truncated or of an unknown type.
pub fn parse(payload: &[u8], namespace: u64) -> Option<Socket> {
    let fixed = payload.get(..FIXED)?;
    let state = SocketState::from_raw(fixed[2]);
    let kind = match fixed[1] {
        SOCK_STREAM => SocketKind::UnixStream,
        SOCK_DGRAM => SocketKind::UnixDgram,
        SOCK_SEQPACKET => SocketKind::UnixSeqpacket,
        _ => return None,
    };
    let mut socket = Socket::new(kind, state, u64::from(u32_at(fixed, 4)?), namespace);
    socket.cookie = u64::from(u32_at(fixed, 12)?) << 32 | u64::from(u32_at(fixed, 8)?);
    for (kind, value) in attributes(&payload[FIXED..]) {
        match kind {
            NAME => socket.local = Address::from_sun_path(value),
            VFS => socket.file = file(value),
            PEER => socket.peer_inode = u32_at(value, 0).filter(|inode| *inode != 0).map(u64::from),
            UID => socket.uid = u32_at(value, 0),
            RQLEN => socket.queues = queues(value, state).unwrap_or(socket.queues),
            _ => {}
        }
    }
    Some(socket)
}

fn file(value: &[u8]) -> Option<FileId> {
    let (inode, device) = (u32_at(value, 0)?, u32_at(value, 4)?);
    Some(FileId { device: device_of(device), inode: u64::from(inode) })
}

/// Converts the kernel's internal device number (12 bits of major, 20 of minor) to that of stat(2).
fn device_of(kernel: u32) -> u64 {
    rustix::fs::makedev(kernel >> 20, kernel & 0xf_ffff)
}

fn queues(value: &[u8], state: SocketState) -> Option<Queues> {
    let (receive, send) = (u32_at(value, 0)?, u32_at(value, 4)?);
    Some(if state == SocketState::Listen {
        Queues::Listening { waiting: receive, backlog: Some(send) }
    } else {
        Queues::Bytes { received_bytes: receive, unsent_bytes: send }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::attribute;
    use super::*;

    #[test]
    fn a_listener_with_a_path() {
        let mut bytes = vec![AF_UNIX, SOCK_STREAM, 10, 0];
        bytes.extend(4711u32.to_ne_bytes());
        bytes.extend([7, 0, 0, 0, 1, 0, 0, 0]);
        bytes.extend(attribute(NAME, b"/run/app.sock\0"));
        bytes.extend(attribute(RQLEN, &[2, 0, 0, 0, 5, 0, 0, 0]));
        bytes.extend(attribute(VFS, &[9, 0, 0, 0, 1, 0, 0x80, 0]));
        let socket = parse(&bytes, 7).unwrap();
        assert_eq!(socket.local.to_string(), "/run/app.sock");
        assert!(socket.is_listening());
        if cfg!(target_endian = "little") {
            assert_eq!(socket.queues, Queues::Listening { waiting: 2, backlog: Some(5) });
            assert_eq!(socket.file, Some(FileId { device: 0x801, inode: 9 }));
            assert_eq!(socket.cookie, 1 << 32 | 7);
        }
        assert_eq!(request().len(), 24);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes, 7);
        }
    }
}
