//! A map of the kernel: a table that programs write and this process reads. Keys and values are bytes here; whoever makes a map
//! knows what stands in them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::call::{self, MapCreate, MapElement, TypesLoad};
use crate::types;

/// `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hash = 1,
    /// `BPF_MAP_TYPE_ARRAY`: its key is a number of 32 bits.
    Array = 2,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`: each processor has its own values.
    PerProcessor = 6,
    /// `BPF_MAP_TYPE_LRU_HASH`: the entry that was used least recently goes for a new one.
    LeastRecentlyUsed = 9,
    /// `BPF_MAP_TYPE_SOCKMAP`: sockets that a program sends bytes to.
    #[cfg(test)]
    Sockets = 15,
    /// `BPF_MAP_TYPE_SK_STORAGE`: a value that a socket carries, and that goes with it.
    OfSockets = 24,
    /// `BPF_MAP_TYPE_TASK_STORAGE`: a value that a thread carries.
    OfTasks = 29,
}

impl Kind {
    fn is_carried(self) -> bool {
        matches!(self, Kind::OfSockets | Kind::OfTasks)
    }
}

/// A map that is gone when it and the programs that use it are dropped.
#[derive(Debug)]
pub(crate) struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
    /// Values of an entry: 1, or one of each processor.
    values: usize,
}

impl Map {
    /// Makes a map: an array is full of zeros, any other is empty. Maps whose values are carried take no number of entries.
    ///
    /// # Errors
    /// EPERM without CAP_BPF; EINVAL where the kernel has no such map.
    pub(crate) fn make(
        kind: Kind,
        key_bytes: usize,
        value_bytes: usize,
        most_entries: u32,
    ) -> io::Result<Self> {
        /// `BPF_F_NO_PREALLOC`, which maps of sockets and tasks demand.
        const AS_NEEDED: u32 = 1;
        let mut argument = MapCreate {
            kind: kind as u32,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            most_entries,
            ..MapCreate::default()
        };
        let types = if kind.is_carried() { Some(load_types(value_bytes)?) } else { None };
        if let Some(types) = &types {
            argument.flags = AS_NEEDED;
            argument.types = types.as_raw_fd() as u32;
            (argument.key_type, argument.value_type) = (types::INTEGER, types::STRUCTURE);
        }
        let values = if kind == Kind::PerProcessor { processors()? } else { 1 };
        // SAFETY: the argument is that of this command and has no pointers.
        let descriptor = unsafe { call::open(call::MAP_CREATE, &argument) }?;
        Ok(Map { descriptor, key_bytes, value_bytes, values })
    }

    /// The value of an entry, or one of each processor in a row; `None` if there is none, or the key has another size.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key.len() != self.key_bytes {
            return None;
        }
        // The kernel writes each processor's value at a multiple of eight bytes.
        let bytes = if self.values > 1 { self.value_bytes.next_multiple_of(8) } else { self.value_bytes };
        let mut value = vec![0; bytes * self.values];
        let argument = self.element(key.as_ptr(), value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads as many bytes as the map was made with from the key, and writes as many into the value for
        // each processor; both have so many, and nobody else has the value.
        match unsafe { call::bpf(call::MAP_LOOK_UP, &argument) } {
            Ok(_) => Some(value),
            Err(_) => None,
        }
    }

    /// The keys of a hash, at most so many. While a program adds some, one may be missing, or stand among them twice: the kernel
    /// looks for the key after the last one, and begins anew where that is gone, so that without a limit it might never end.
    pub(crate) fn keys(&self, most: usize) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < most {
            let mut next = vec![0; self.key_bytes];
            let last = keys.last().map_or(std::ptr::null(), Vec::as_ptr);
            let argument = self.element(last, next.as_mut_ptr() as u64);
            // SAFETY: the kernel reads a key where there is one, and writes one; both have as many bytes as the map was made with, and
            // nobody else has the second.
            if unsafe { call::bpf(call::MAP_NEXT_KEY, &argument) }.is_err() {
                break;
            }
            keys.push(next);
        }
        keys
    }

    fn element(&self, key: *const u8, value: u64) -> MapElement {
        let map = self.descriptor.as_raw_fd() as u32;
        MapElement { map, reserved: 0, key: key as u64, value, flags: 0 }
    }

    /// Writes the value of an entry, which a map of one value has.
    ///
    /// # Errors
    /// E2BIG where the map is full; EINVAL if the key or the value has another size.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes || self.values != 1 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let argument = self.element(key.as_ptr(), value.as_ptr() as u64);
        // SAFETY: the kernel reads as many bytes as the map was made with from the key and from the value; both have so many.
        unsafe { call::bpf(call::MAP_UPDATE, &argument) }?;
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The 64 bits at a place of a value; 0 behind the end.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_ne_bytes(*word),
        None => 0,
    }
}

/// Gives the kernel the types of a number of 32 bits and of a value, without which it refuses a map whose values are carried
/// (EINVAL).
fn load_types(value_bytes: usize) -> io::Result<OwnedFd> {
    let bytes = types::of_carried(value_bytes);
    let argument =
        TypesLoad { first: bytes.as_ptr() as u64, bytes: bytes.len() as u32, ..TypesLoad::default() };
    // SAFETY: the bytes live until this returns, with the length that is given.
    unsafe { call::open(call::TYPES_LOAD, &argument) }
}

/// How many processors the machine may have: so many values the kernel writes.
fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    match last_of(&text) {
        Some(last) => Ok(last + 1),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The last of a list such as `0-3` or `0,2-7`.
fn last_of(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Lets this process lock any amount of memory, or as much as it may ask for without CAP_SYS_RESOURCE, until this is dropped. What
/// was loaded until then stays. Before Linux 5.11 maps and programs count as such, and 64 KiB of it are usual, where the records of
/// exchanges alone take a megabyte.
#[derive(Debug)]
pub(crate) struct AnyAmount {
    before: Option<libc::rlimit>,
}

impl AnyAmount {
    pub(crate) fn of_locked_memory() -> Self {
        let Some(before) = limit() else { return AnyAmount { before: None } };
        let any = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // Where neither is allowed the first map says what is missing.
        let is_raised = set(&any) || set(&libc::rlimit { rlim_cur: before.rlim_max, ..before });
        AnyAmount { before: if is_raised { Some(before) } else { None } }
    }
}

impl Drop for AnyAmount {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set(before);
        }
    }
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit, and nobody else has it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if result == 0 { Some(limit) } else { None }
}

fn set(limit: &libc::rlimit) -> bool {
    // SAFETY: the limit lives until this returns.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, std::ptr::from_ref(limit)) };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_without_entries_has_no_value_of_any_key_as_root() {
        let map = Map::make(Kind::LeastRecentlyUsed, 4, 8, 2).expect("bpf(2) needs root");
        assert_eq!((map.get(&[1; 4]), map.get(&[1; 3])), (None, None));
    }

    #[test]
    fn an_array_is_of_zeros_and_keeps_what_is_put_as_root() {
        let map = Map::make(Kind::Array, 4, 8, 2).expect("bpf(2) needs root");
        map.put(&1_u32.to_ne_bytes(), &[7; 8]).expect("there is room");
        assert_eq!(map.get(&0_u32.to_ne_bytes()), Some(vec![0; 8]));
        assert_eq!(map.get(&1_u32.to_ne_bytes()), Some(vec![7; 8]));
        assert!(map.put(&2_u32.to_ne_bytes(), &[7; 8]).is_err(), "it has two");
        assert!(map.put(&[0; 4], &[7; 4]).is_err(), "a value has eight bytes");
        let each = Map::make(Kind::PerProcessor, 4, 8, 1).expect("bpf(2) needs root");
        assert_eq!(each.get(&[0; 4]).map(|values| values.len()), processors().ok().map(|all| all * 8));
    }

    #[test]
    fn keys_of_a_hash_are_those_that_were_put_as_root() {
        let map = Map::make(Kind::LeastRecentlyUsed, 4, 8, 64).expect("bpf(2) needs root");
        assert_eq!(map.keys(9).len(), 0);
        for key in [3_u32, 4, 5] {
            map.put(&key.to_ne_bytes(), &[7; 8]).expect("there is room");
        }
        let mut keys = map.keys(9);
        keys.sort();
        assert_eq!(keys, [3_u32, 4, 5].map(|key| key.to_ne_bytes().to_vec()));
        assert_eq!(map.keys(2).len(), 2, "as many as asked for");
    }

    #[test]
    fn sockets_and_threads_carry_values_as_root() {
        for kind in [Kind::OfSockets, Kind::OfTasks] {
            Map::make(kind, 4, 8, 0).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
    }

    #[test]
    fn processors_are_counted_to_the_last() {
        assert_eq!(
            [last_of("0-3\n"), last_of("0\n"), last_of("0,2-7"), last_of("")],
            [Some(3), Some(0), Some(7), None]
        );
    }

    #[test]
    fn the_limit_is_what_it_was_afterwards() {
        fn values() -> (libc::rlim_t, libc::rlim_t) {
            limit().map(|limit| (limit.rlim_cur, limit.rlim_max)).expect("there is one")
        }
        let (most, few) = (values().1, 1 << 16);
        assert!(set(&libc::rlimit { rlim_cur: few, rlim_max: most }), "less is always allowed");
        let any_amount = AnyAmount::of_locked_memory();
        assert!(values().0 >= most);
        drop(any_amount);
        assert_eq!(values(), (few, most));
    }
}
