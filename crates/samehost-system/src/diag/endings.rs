//! Reports each TCP socket as it ends, from the kernel's notifications.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use samehost_model::scan::SocketKind;

use super::frame::messages;
use super::{Activity, DATAGRAM, SOCK_DIAG_BY_FAMILY, activity, netlink};

/// `1 << (SKNLGRP_INET_TCP_DESTROY - 1) | 1 << (SKNLGRP_INET6_TCP_DESTROY - 1)` (`linux/sock_diag.h`).
const TCP_ENDS: u32 = 1 << 0 | 1 << 2;
/// Bytes for unread notifications: some 8,000.
const ROOM: usize = 8 * 1024 * 1024;

/// Receives a notification for every TCP socket of a network namespace that ends, with its counters. Needs
/// CAP_NET_ADMIN, and Linux 4.2 (`SKNLGRP_INET_TCP_DESTROY`).
pub struct Endings {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Endings {
    /// Starts to listen in the calling thread's network namespace.
    pub fn open() -> Result<Self, Errno> {
        let socket = netlink(TCP_ENDS)?;
        // A smaller buffer only means that a busy machine's notifications are lost sooner, which is reported.
        let _ = set_socket_recv_buffer_size_force(&socket, ROOM);
        Ok(Endings { socket, buffer: vec![0; DATAGRAM] })
    }

    /// Passes on the sockets that ended since the last call.
    ///
    /// # Errors
    /// `ENOBUFS` when some were lost; the next call continues.
    pub fn hear(&mut self, mut each: impl FnMut(Activity)) -> Result<(), Errno> {
        loop {
            let received =
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT);
            let (_, length) = match received {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                other => other?,
            };
            for message in messages(self.buffer.get(..length).ok_or(Errno::MSGSIZE)?) {
                if message.kind == SOCK_DIAG_BY_FAMILY
                    && let Some(activity) = activity(message.payload, SocketKind::Tcp)
                {
                    each(activity);
                }
            }
        }
    }
}
