//! A map of the kernel: a table that programs and this process read and write.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::call::{self, MapCreate, MapElement};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `BPF_MAP_TYPE_HASH`: any bytes.
    Hash = 1,
    /// `BPF_MAP_TYPE_LRU_HASH`: any bytes; the entry that was used least recently goes for a new one.
    Recent = 9,
    /// `BPF_MAP_TYPE_SOCKHASH`: connected sockets, given by their descriptors.
    Sockets = 18,
}

/// A map. It is gone when it and the programs that use it are dropped; its sockets stay, without the program.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Makes an empty one.
    ///
    /// # Errors
    /// EPERM without CAP_BPF, and CAP_NET_ADMIN for sockets; EINVAL where the kernel has no such map.
    pub fn new(kind: Kind, key_bytes: usize, value_bytes: usize, most_entries: u32) -> io::Result<Self> {
        let argument = MapCreate {
            kind: kind as u32,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            most_entries,
        };
        // SAFETY: the argument is that of this command and has no pointers.
        let descriptor = unsafe { call::open(call::MAP_CREATE, &argument) }?;
        Ok(Map { descriptor, key_bytes, value_bytes })
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// EINVAL for a key or value of another size; what the kernel says, such as EOPNOTSUPP for a socket that is not
    /// connected.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let argument = self.element(key, value.as_ptr() as u64);
        // SAFETY: the kernel reads as many bytes as the map was made with from key and value, and both have so many.
        unsafe { call::bpf(call::MAP_UPDATE, &argument) }.map(|_| ())
    }

    /// The value of an entry; `None` if there is none, or the key has another size.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key.len() != self.key_bytes {
            return None;
        }
        let mut value = vec![0; self.value_bytes];
        let argument = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads as many bytes as the map was made with from the key, and writes as many into the value;
        // both have so many, and nobody else has the value.
        unsafe { call::bpf(call::MAP_LOOK_UP, &argument) }.is_ok().then_some(value)
    }

    /// Puts a socket in; a value has 4 or 8 bytes then.
    ///
    /// # Errors
    /// As [`Map::set`].
    pub fn set_socket(&self, key: &[u8], socket: BorrowedFd<'_>) -> io::Result<()> {
        self.set(key, &u64::from(socket.as_raw_fd().unsigned_abs()).to_ne_bytes()[..])
    }

    /// Takes an entry out.
    ///
    /// # Errors
    /// EINVAL for a key of another size; ENOENT if there is none.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        if key.len() != self.key_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let argument = self.element(key, 0);
        // SAFETY: the kernel reads as many bytes as the map was made with from the key, which has so many, and no value.
        unsafe { call::bpf(call::MAP_DELETE, &argument) }.map(|_| ())
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn element(&self, key: &[u8], value: u64) -> MapElement {
        let map = self.descriptor.as_raw_fd() as u32;
        MapElement { map, reserved: 0, key: key.as_ptr() as u64, value, flags: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn entries_are_set_and_removed_as_root() {
        let map = Map::new(Kind::Hash, 4, 8, 2).expect("bpf(2) needs root");
        map.set(&[1; 4], &[2; 8]).expect("set");
        assert_eq!((map.get(&[1; 4]), map.get(&[3; 4]), map.get(&[1; 3])), (Some(vec![2; 8]), None, None));
        map.remove(&[1; 4]).expect("removed");
        assert_eq!(map.remove(&[1; 4]).expect_err("gone").kind(), ErrorKind::NotFound);
        for (key, value) in [(&[1; 3][..], &[2; 8][..]), (&[1; 4], &[2; 7])] {
            assert_eq!(map.set(key, value).expect_err("another size").kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(map.remove(&[1; 5]).expect_err("another size").kind(), ErrorKind::InvalidInput);
    }
}
