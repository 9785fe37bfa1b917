//! The server's side: a bind to a mapped port becomes one to the Unix socket, and whoever comes there has an address of TCP.

use super::calls::{self, Errno};
use super::config::Map;
use super::exchange::{Owned, is_bound, is_tcp, like, may_be_replaced, options_like, put_in_place};
use super::label::{self, Address, Kind, Label};
use super::numbers::*;
use crate::layout::{self, Stay};

/// The answer to a call of `bind`; None where it goes on.
pub fn bind(fd: i32, to: &Address) -> Option<Result<usize, Errno>> {
    let map = Map::of_server(to)?;
    if Label::of(fd).is_some() {
        return Some(Err(EINVAL));
    }
    if !is_tcp(fd) || is_bound(fd) {
        return None;
    }
    if let Err(why) = may_be_replaced(fd) {
        map.stays(why);
        return None;
    }
    let is_v6_only =
        calls::option::<4>(fd, IPPROTO_IPV6, IPV6_V6ONLY).is_ok_and(|(value, _)| value != [0; 4]);
    let label = Label { kind: Kind::of(to, is_v6_only), own: to.port, peer: 0 };
    let is_shared = calls::number(fd, SO_REUSEPORT).is_ok_and(|value| value != 0);
    let made = Owned::unix().and_then(|unix| {
        label.put(unix.0)?;
        like(unix.0, fd)?;
        Ok(unix)
    });
    let Ok(unix) = made else {
        map.stays(Stay::NotReplaced);
        return None;
    };
    let place = match take(&unix, &map, label, is_shared) {
        Ok(place) => place,
        Err(errno) => return Some(Err(errno)),
    };
    if let Err(why) = put_in_place(&unix, fd) {
        if place == Place::Path {
            calls::remove(map.socket());
        }
        map.stays(why);
        return None;
    }
    Some(Ok(0))
}

#[derive(PartialEq, Eq)]
enum Place {
    Path,
    /// A name that nobody knows.
    Nowhere,
}

/// Binds a Unix socket to the path of a map.
fn take(unix: &Owned, map: &Map, label: Label, is_shared: bool) -> Result<Place, Errno> {
    let (address, length) = label::unix(map.socket());
    let address = &address[..length];
    for _ in 0..2 {
        match calls::bind(unix.0, address) {
            Ok(_) => return Ok(Place::Path),
            Err(EADDRINUSE) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(first) = own(address, label.own) {
            if first.kind.excludes(label.kind) && !is_shared {
                return Err(EADDRINUSE);
            }
            // The other family of the same server, say. It listens there, and nobody comes: everybody comes to the first.
            calls::bind(unix.0, &(AF_UNIX as u16).to_ne_bytes())?;
            return Ok(Place::Nowhere);
        }
        if !is_left_behind(map, address) {
            return Err(EADDRINUSE);
        }
        calls::remove(map.socket());
    }
    Err(EADDRINUSE)
}

/// The socket of this process that has the path of a map.
fn own(address: &[u8], port: u16) -> Option<Label> {
    (0..calls::most_descriptors()).find_map(|fd| {
        let label = Label::of(fd).filter(|label| label.own == port && label.peer == 0)?;
        let (name, length) = calls::own_name(fd).ok()?;
        (name.get(..length) == Some(address)).then_some(label)
    })
}

/// Whether a path is a socket at which nobody answers.
fn is_left_behind(map: &Map, address: &[u8]) -> bool {
    if map.is_abstract() || !calls::is_socket_file(map.socket()) {
        return false;
    }
    let Ok(client) = Owned::unix() else { return false };
    calls::connect(client.0, address) == Err(ECONNREFUSED)
}

/// A connection that came to a listening socket, and the address that it is said to be from; None for one of TCP, or of the
/// program's own.
pub fn accept(fd: i32, flags: i32) -> Option<Result<(i32, Address), Errno>> {
    if !Map::any_listens() {
        return None;
    }
    let listening = Label::of(fd).filter(|label| label.peer == 0)?;
    let accepted = match calls::accept(fd, flags) {
        Ok(accepted) => accepted,
        Err(errno) => return Some(Err(errno)),
    };
    let peer = layout::port_of(calls::cookie(accepted).unwrap_or_default(), listening.own);
    let label = Label { kind: listening.kind.of_connection(), own: listening.own, peer };
    // TCP hands these down. A connection without them is one all the same.
    let _ = label.put(accepted).and_then(|()| options_like(accepted, fd));
    if let Some(map) = Map::of_port(listening.own) {
        map.count(layout::OVER_UNIX);
    }
    Some(Ok((accepted, label.peer_address().unwrap_or_else(|| label.own_address()))))
}
