//! Asks a TCP socket of another process whether it sends small pieces at once: no listing of the kernel says so. The
//! descriptor is duplicated (`pidfd_getfd`, which asks for the rights of ptrace), asked for two options, and closed.
//!
//! The process may put another file in the socket's place meanwhile. So the duplicate's inode is compared, and nothing but
//! getsockopt(2) is done with it. Still, closing it may wait for ever: for a file of its own FUSE file system, or a socket
//! that lingers. Call this in a process that nobody has to wait for.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, fstat};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::descriptors::descriptor_of;

/// Passes on whether small pieces are sent at once (`TCP_NODELAY`) by the socket with this inode, while its duplicate is
/// still open. `None` where it may not be asked, is gone, or waits on purpose (`TCP_CORK`).
pub fn sends_at_once(pid: u32, inode: u64, told: impl FnOnce(Option<bool>)) {
    let socket = duplicate(pid, inode);
    let answer = socket.as_ref().and_then(|socket| {
        let stat = fstat(socket).ok()?;
        let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_ino == inode;
        if !is_it || sockopt::tcp_cork(socket).ok()? {
            return None;
        }
        sockopt::tcp_nodelay(socket).ok()
    });
    told(answer);
}

/// A descriptor of our own of another process' socket.
fn duplicate(pid: u32, inode: u64) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, descriptor_of(pid, inode)?, PidfdGetfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn asked(inode: u64) -> Option<bool> {
        let mut answer = None;
        sends_at_once(std::process::id(), inode, |told| answer = told);
        answer
    }

    #[test]
    fn a_socket_is_asked_for_its_option_and_nothing_else_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = |fd: &dyn std::os::fd::AsFd| fstat(fd.as_fd()).unwrap().st_ino;
        assert_eq!(asked(inode(&stream)), Some(false));
        stream.set_nodelay(true).unwrap();
        assert_eq!(asked(inode(&stream)), Some(true));
        sockopt::set_tcp_cork(&stream, true).unwrap();
        assert_eq!(asked(inode(&stream)), None, "it waits on purpose");
        let (unix, _other) = UnixStream::pair().unwrap();
        assert_eq!(asked(inode(&unix)), None, "not TCP");
        assert_eq!(asked(u64::MAX), None, "no such socket");
    }
}
