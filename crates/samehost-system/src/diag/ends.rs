//! Settings of one end of a connection, whoever owns it: congestion control and buffers, from the kernel's listing.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, getpeername, getsockname, ipproto, sockopt};
use samehost_model::scan::SocketKind;
use samehost_model::{ConnectionSettings, SocketEnd};

use super::frame::{attributes, u32_at};
use super::{Diag, inet, is_between, unix};

const INET_DIAG_CONG: u16 = 4;
const UNIX_DIAG_MEMINFO: u16 = 5;

/// Extensions to request, as in `inet_diag_req_v2`.
const ASKED: u8 = 1 << (INET_DIAG_CONG - 1) | 1 << (inet::INET_DIAG_SKMEMINFO - 1);

/// How often a server's end is looked up until it is accepted, and the time between: 20 ms in all.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_micros(200);

/// Settings of both ends of a client's connection: its own from getsockopt(2), the server's from
/// sock_diag(7). `None` if it is not a socket.
pub fn both_ends(client: impl AsFd) -> Option<ConnectionSettings> {
    let own = own_end(&client).ok()?;
    let mut server = None;
    if let Ok(mut diag) = Diag::open() {
        for look in 1..=LOOKS {
            match diag.other_end(&client) {
                Ok(None) if look < LOOKS => std::thread::sleep(BETWEEN),
                found => {
                    server = found.ok().flatten();
                    break;
                }
            }
        }
    }
    Some(ConnectionSettings { client: Some(own), server })
}

fn own_end(socket: impl AsFd) -> Result<SocketEnd, Errno> {
    let inet = matches!(sockopt::socket_domain(&socket)?, AddressFamily::INET | AddressFamily::INET6);
    let tcp = inet && matches!(sockopt::socket_protocol(&socket)?, Some(ipproto::TCP));
    Ok(SocketEnd {
        congestion: if tcp { Some(sockopt::tcp_congestion(&socket)?) } else { None },
        send_buffer_bytes: Some(sockopt::socket_send_buffer_size(&socket)? as u64),
        receive_buffer_bytes: Some(sockopt::socket_recv_buffer_size(&socket)? as u64),
        nodelay: if tcp { Some(sockopt::tcp_nodelay(&socket)?) } else { None },
    })
}

impl Diag {
    /// The other end of a connection of this process; `None` if the kernel does not list it, because the
    /// server has not accepted it yet, or it leads to another machine or namespace.
    pub fn other_end(&mut self, socket: impl AsFd) -> Result<Option<SocketEnd>, Errno> {
        let own = getsockname(&socket)?;
        if let (Some(own), Some(peer)) = (address(own), getpeername(&socket)?.and_then(address)) {
            return self.tcp_end(peer, own);
        }
        let own = rustix::fs::fstat(&socket)?.st_ino;
        match self.unix(own)?.and_then(|own| own.peer_inode) {
            Some(peer) => self.unix_end(peer),
            None => Ok(None),
        }
    }

    pub fn tcp_end(&mut self, local: SocketAddr, peer: SocketAddr) -> Result<Option<SocketEnd>, Errno> {
        let Some(mut request) = inet::exact(local, peer) else { return Ok(None) };
        request[2] = ASKED;
        self.one(&request, |payload| {
            let socket = inet::parse(payload, SocketKind::Tcp, 0)?;
            is_between(&socket, local, peer).then(|| tcp_end(payload))
        })
    }

    fn unix_end(&mut self, inode: u64) -> Result<Option<SocketEnd>, Errno> {
        let Some(request) = unix::exact(inode) else { return Ok(None) };
        self.one(&request, unix_end)
    }
}

pub(crate) fn address(any: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(any).ok()
}

/// The settings in a reply about a TCP socket; `None` where the kernel did not send one.
pub fn tcp_end(payload: &[u8]) -> SocketEnd {
    let mut end = SocketEnd::default();
    for (kind, value) in attributes(payload.get(inet::FIXED..).unwrap_or_default()) {
        match kind {
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                if !name.is_empty() {
                    end.congestion = Some(String::from_utf8_lossy(name).into_owned());
                }
            }
            inet::INET_DIAG_SKMEMINFO => buffers(&mut end, value),
            _ => {}
        }
    }
    end
}

/// Parses a reply about a Unix socket; `None` if it has no memory attribute.
pub fn unix_end(payload: &[u8]) -> Option<SocketEnd> {
    let (_, value) = attributes(payload.get(unix::FIXED..)?).find(|(kind, _)| *kind == UNIX_DIAG_MEMINFO)?;
    let mut end = SocketEnd::default();
    buffers(&mut end, value);
    Some(end)
}

/// `SK_MEMINFO_RCVBUF` and `SK_MEMINFO_SNDBUF`, the second and fourth of an array of numbers.
fn buffers(end: &mut SocketEnd, value: &[u8]) {
    end.receive_buffer_bytes = u32_at(value, 4).map(u64::from);
    end.send_buffer_bytes = u32_at(value, 12).map(u64::from);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_other_end_of_tcp_is_what_its_holder_sees() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        sockopt::set_tcp_congestion(&server, "reno").unwrap();
        sockopt::set_socket_send_buffer_size(&server, 50_000).unwrap();
        let mut diag = Diag::open().unwrap();
        let seen = diag.other_end(&client).unwrap().unwrap();
        assert_eq!(seen.congestion.as_deref(), Some("reno"));
        assert_eq!(seen.send_buffer_bytes, Some(100_000), "the kernel doubles it");
        let receive = sockopt::socket_recv_buffer_size(&server).unwrap() as u64;
        assert_eq!(seen.receive_buffer_bytes, Some(receive));
        let other = diag.other_end(&server).unwrap().unwrap();
        assert_eq!(other.congestion, Some(sockopt::tcp_congestion(&client).unwrap()));
        let both = both_ends(&client).unwrap();
        assert_eq!((both.client.unwrap().nodelay, both.server), (Some(false), Some(seen)));
        assert!(both_ends(std::fs::File::open("/dev/null").unwrap()).is_none());
    }

    #[test]
    fn the_other_end_of_a_unix_socket_has_buffers_and_no_congestion_control() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        sockopt::set_socket_send_buffer_size(&other, 50_000).unwrap();
        let seen = Diag::open().unwrap().other_end(&one).unwrap().unwrap();
        assert_eq!((seen.congestion, seen.send_buffer_bytes), (None, Some(100_000)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = tcp_end(&bytes);
            let _ = unix_end(&bytes);
        }
    }
}
