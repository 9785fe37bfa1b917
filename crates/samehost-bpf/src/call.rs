//! bpf(2): one command at a time, with the part of its argument that is used here. Its numbers and layouts are those of
//! `linux/bpf.h`, which only ever grow at the end: the kernel takes what is missing as zeros. A struct is the argument of
//! the command whose name it has.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(crate) const MAP_CREATE: libc::c_long = 0;
pub(crate) const MAP_LOOK_UP: libc::c_long = 1;
pub(crate) const MAP_UPDATE: libc::c_long = 2;
pub(crate) const MAP_NEXT_KEY: libc::c_long = 4;
pub(crate) const PROGRAM_LOAD: libc::c_long = 5;
#[cfg(test)]
pub(crate) const PROGRAM_ATTACH: libc::c_long = 8;
#[cfg(test)]
pub(crate) const PROGRAM_TEST: libc::c_long = 10;
#[cfg(test)]
pub(crate) const PROGRAM_BY_NUMBER: libc::c_long = 13;
pub(crate) const OBJECT_INFO: libc::c_long = 15;
pub(crate) const TRACEPOINT_OPEN: libc::c_long = 17;
pub(crate) const TYPES_LOAD: libc::c_long = 18;
pub(crate) const LINK_CREATE: libc::c_long = 28;
pub(crate) const ITERATOR_CREATE: libc::c_long = 33;

#[derive(Default)]
#[repr(C)]
pub(crate) struct MapCreate {
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) most_entries: u32,
    pub(crate) flags: u32,
    pub(crate) inner: u32,
    pub(crate) numa_node: u32,
    pub(crate) name: [u8; 16],
    pub(crate) interface: u32,
    /// Descriptor of types, and the numbers of the key's and the value's among them.
    pub(crate) types: u32,
    pub(crate) key_type: u32,
    pub(crate) value_type: u32,
}

/// Argument of [`MAP_LOOK_UP`], [`MAP_UPDATE`] and [`MAP_NEXT_KEY`], which has the next key in the place of the value.
#[repr(C)]
pub(crate) struct MapElement {
    pub(crate) map: u32,
    pub(crate) reserved: u32,
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) flags: u64,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct ProgramLoad {
    pub(crate) kind: u32,
    pub(crate) instructions: u32,
    pub(crate) first: u64,
    pub(crate) license: u64,
    pub(crate) log_level: u32,
    pub(crate) log_bytes: u32,
    pub(crate) log: u64,
    pub(crate) kernel_version: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) interface: u32,
    pub(crate) attached_as: u32,
    /// Descriptor of types, their functions and lines: none here.
    pub(crate) types: [u32; 9],
    /// Number of the type in the kernel's BTF that it is attached to.
    pub(crate) attached_to: u32,
}

#[repr(C)]
pub(crate) struct TracepointOpen {
    /// Zero where the program knows its tracepoint by the kernel's types.
    pub(crate) name: u64,
    pub(crate) program: u32,
    pub(crate) reserved: u32,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct TypesLoad {
    pub(crate) first: u64,
    pub(crate) log: u64,
    pub(crate) bytes: u32,
    pub(crate) log_bytes: u32,
    pub(crate) log_level: u32,
    pub(crate) reserved: u32,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct LinkCreate {
    pub(crate) program: u32,
    pub(crate) target: u32,
    pub(crate) attached_as: u32,
    pub(crate) flags: u32,
    pub(crate) iterator: u64,
    pub(crate) iterator_bytes: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
pub(crate) struct IteratorCreate {
    pub(crate) link: u32,
    pub(crate) flags: u32,
}

#[repr(C)]
pub(crate) struct ObjectInfo {
    pub(crate) object: u32,
    pub(crate) bytes: u32,
    pub(crate) first: u64,
}

/// Calls bpf(2).
///
/// # Safety
/// `argument` is that of the command, and its numbers that stand for pointers lead to memory that lives until this
/// returns, which the kernel may read, and write in the case of a log, a value or information.
pub(crate) unsafe fn bpf<T>(command: libc::c_long, argument: &T) -> io::Result<libc::c_int> {
    let (pointer, bytes) = (std::ptr::from_ref(argument), size_of::<T>());
    // SAFETY: the kernel reads `bytes` of `argument`, which is borrowed, and follows its pointers as the caller promised.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, bytes) };
    if result >= 0 { Ok(result as libc::c_int) } else { Err(io::Error::last_os_error()) }
}

/// Calls bpf(2) for a command that opens a descriptor.
///
/// # Safety
/// As [`bpf`], with [`MAP_CREATE`], [`PROGRAM_LOAD`], [`TRACEPOINT_OPEN`], [`TYPES_LOAD`], [`LINK_CREATE`] or
/// [`ITERATOR_CREATE`].
pub(crate) unsafe fn open<T>(command: libc::c_long, argument: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises what `bpf` asks for.
    let descriptor = unsafe { bpf(command, argument) }?;
    // SAFETY: the kernel has just opened it for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
