//! The sockets that were put in place of TCP sockets. A socket is known by its cookie, which no other ever gets; inodes
//! only tell which are surely none of them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;

/// As many are kept at least before it is looked which are gone.
const FEW: usize = 1024;

/// An option that was set: level, name, bytes.
pub type SetOption = (i32, i32, Vec<u8>);

pub struct Replaced {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// Those that a Unix socket has not, in order.
    pub options: Vec<SetOption>,
    /// Whether the program knows that it is connected: a signal may come before it does.
    pub is_known: bool,
}

#[derive(Default)]
pub struct Sockets {
    by_cookie: HashMap<u64, (u64, Replaced)>,
    inodes: HashSet<u64>,
    most: usize,
}

impl Sockets {
    pub fn may_have(&self, inode: u64) -> bool {
        self.inodes.contains(&inode)
    }

    pub fn is_empty(&self) -> bool {
        self.by_cookie.is_empty()
    }

    pub fn get(&mut self, cookie: u64) -> Option<&mut Replaced> {
        self.by_cookie.get_mut(&cookie).map(|(_, replaced)| replaced)
    }

    pub fn add(&mut self, cookie: u64, inode: u64, replaced: Replaced) {
        if self.by_cookie.len() >= self.most.max(FEW) {
            self.forget_closed();
        }
        self.by_cookie.insert(cookie, (inode, replaced));
        self.inodes.insert(inode);
    }

    /// Forgets those that this network namespace has no more.
    fn forget_closed(&mut self) {
        let table = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
        let open = inodes(&table);
        if !open.is_empty() {
            self.by_cookie.retain(|_, (inode, _)| open.contains(inode));
            self.inodes = self.by_cookie.values().map(|(inode, _)| *inode).collect();
        }
        self.most = 2 * self.by_cookie.len();
    }
}

/// The inodes of `/proc/net/unix`: the seventh word of each line.
fn inodes(table: &str) -> HashSet<u64> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn replaced() -> Replaced {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Replaced { peer: address, local: address, options: Vec::new(), is_known: true }
    }

    #[test]
    fn closed_sockets_are_forgotten_and_open_ones_are_not() {
        let (open, _other) = UnixStream::pair().expect("sockets");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        let inode = fs::metadata(path).expect("its inode").ino();
        let mut sockets = Sockets::default();
        sockets.add(1, inode, replaced());
        // Inodes that no socket has.
        for cookie in 2..=FEW as u64 + 1 {
            sockets.add(cookie, u64::MAX - cookie, replaced());
        }
        assert!(sockets.may_have(inode) && sockets.get(1).is_some());
        assert!(sockets.get(2).is_none() && !sockets.may_have(u64::MAX - 2));
        assert!(sockets.get(FEW as u64 + 1).is_some(), "the newest");
    }
}
