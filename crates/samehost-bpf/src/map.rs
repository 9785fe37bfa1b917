//! A map of the kernel: a table that a program writes and this process reads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::call::{self, MapCreate, MapElement};

/// `BPF_MAP_TYPE_LRU_HASH`: any bytes; the entry that was used least recently goes for a new one.
const LEAST_RECENTLY_USED: u32 = 9;

/// A map that is gone when it and the programs that use it are dropped.
#[derive(Debug)]
pub(crate) struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Makes an empty map of the kind `BPF_MAP_TYPE_LRU_HASH`.
    ///
    /// # Errors
    /// EPERM without CAP_BPF; EINVAL where the kernel has no such map.
    pub(crate) fn least_recently_used(
        key_bytes: usize,
        value_bytes: usize,
        most_entries: u32,
    ) -> io::Result<Self> {
        let argument = MapCreate {
            kind: LEAST_RECENTLY_USED,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            most_entries,
        };
        // SAFETY: the argument is that of this command and has no pointers.
        let descriptor = unsafe { call::open(call::MAP_CREATE, &argument) }?;
        Ok(Map { descriptor, key_bytes, value_bytes })
    }

    /// The value of an entry; `None` if there is none, or the key has another size.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key.len() != self.key_bytes {
            return None;
        }
        let mut value = vec![0; self.value_bytes];
        let argument = MapElement {
            map: self.descriptor.as_raw_fd() as u32,
            reserved: 0,
            key: key.as_ptr() as u64,
            value: value.as_mut_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads as many bytes as the map was made with from the key, and writes as many into the value;
        // both have so many, and nobody else has the value.
        unsafe { call::bpf(call::MAP_LOOK_UP, &argument) }.is_ok().then_some(value)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_without_entries_has_no_value_of_any_key_as_root() {
        let map = Map::least_recently_used(4, 8, 2).expect("bpf(2) needs root");
        assert_eq!((map.get(&[1; 4]), map.get(&[1; 3])), (None, None));
    }
}
