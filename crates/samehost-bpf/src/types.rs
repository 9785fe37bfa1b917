//! Types of programs (BTF, `linux/btf.h`): the kernel's own, as far as a program needs them that is attached to one, and those of
//! a value that sockets or threads carry. Places and numbers are looked up in the running kernel and never compiled in, so that
//! no header and no compiler of BPF is needed; what is not there is an error that names it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ptr::{self, NonNull};
use std::slice;

const PLACE: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;
const VERSION: u32 = 1;
const HEADER: u32 = 24;
/// Bytes of a type before what its kind adds.
const TYPE: usize = 12;
const MEMBER: usize = 12;
const INTEGER_KIND: u32 = 1;
const STRUCTURE_KIND: u32 = 4;
const UNION_KIND: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;

/// The numbers that types have in [`of_carried`].
pub(crate) const INTEGER: u32 = 1;
pub(crate) const STRUCTURE: u32 = 2;

/// The bytes may be a mapping of their own or a list.
#[derive(Debug)]
pub(crate) struct Types<Bytes = Mapping>(Bytes);

/// The kernel's types, some 5 MB, in a mapping of their own. In a list that was freed they stayed part of the heap: `top`, which reads
/// them again when its connections are others, had 8 MB from then on in place of 3.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

struct Found<'a> {
    number: u32,
    kind: u32,
    parts: Parts,
    /// Its name, and all that follows.
    name: &'a [u8],
}

/// Where members of a structure or arguments of a function stand among the bytes, and how many there are.
#[derive(Clone, Copy)]
struct Parts {
    at: usize,
    count: usize,
    /// Where the names begin.
    names: usize,
}

impl Mapping {
    fn read(file: &mut File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice, of no file.
        let at = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(ErrorKind::OutOfMemory)?;
        let mapping = Mapping { at, length };
        // SAFETY: this many bytes are mapped, zeroed, and nobody else has them.
        file.read_exact(unsafe { slice::from_raw_parts_mut(at.as_ptr(), length) })?;
        Ok(mapping)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: this many bytes are mapped for as long as it lives, and nobody writes them.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is mapped, and no slice of it outlives it.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

impl Types {
    ///
    /// # Errors
    /// `NotFound` where the kernel has no BTF (CONFIG_DEBUG_INFO_BTF; Debian 11 and later have it).
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Types(Mapping::read(&mut File::open(PLACE)?)?))
    }
}

impl<Bytes: AsRef<[u8]>> Types<Bytes> {
    /// The number of a tracepoint, by its name without the group: `inet_sock_set_state`.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    pub(crate) fn tracepoint(&self, name: &str) -> io::Result<u32> {
        self.number(TYPEDEF, &format!("btf_trace_{name}"))
            .ok_or_else(|| missing(&format!("no tracepoint {name}")))
    }

    /// The number of a function.
    ///
    /// # Errors
    /// `NotFound` where there is none, or it was built into its callers.
    pub(crate) fn function(&self, name: &str) -> io::Result<u32> {
        self.number(FUNCTION, name).ok_or_else(|| missing(&format!("no function {name}")))
    }

    /// How many arguments the function with this number has.
    ///
    /// # Errors
    /// `NotFound` where there is no such function.
    pub(crate) fn arguments(&self, function: u32) -> io::Result<i16> {
        self.prototype(function).ok_or_else(|| missing(&format!("no arguments of function {function}")))
    }

    fn prototype(&self, function: u32) -> Option<i16> {
        let function = self.parts_of(function, &[FUNCTION])?;
        // The number of a function's prototype is the last word of its type; a function has no parts.
        let prototype = self.parts_of(word(self.0.as_ref(), function.at - 4)?, &[PROTOTYPE])?;
        i16::try_from(prototype.count).ok()
    }

    /// Where a member begins in its structure, in bytes; also one of a structure or union without a name in it.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> io::Result<i16> {
        match self.bytes_before(structure, member).map(i16::try_from) {
            Some(Ok(bytes)) => Ok(bytes),
            _ => Err(missing(&format!("no {structure}.{member}"))),
        }
    }

    fn number(&self, kind: u32, name: &str) -> Option<u32> {
        let found = self.find(|one| one.kind == kind && is_called(one.name, name))?;
        Some(found.number)
    }

    fn bytes_before(&self, structure: &str, member: &str) -> Option<u32> {
        let found = self.find(|one| one.kind == STRUCTURE_KIND && is_called(one.name, structure))?;
        self.bytes_within(found.parts, member)
    }

    /// Where a member begins in a structure, in bytes; those of structures and unions without a name in it are its own.
    fn bytes_within(&self, parts: Parts, member: &str) -> Option<u32> {
        for part in 0..parts.count {
            let at = parts.at + MEMBER * part;
            // With bit fields the size stands above the place; a pointer has none.
            let bytes = (word(self.0.as_ref(), at + 8)? & 0xff_ffff) / 8;
            let name = self.0.as_ref().get(parts.names + word(self.0.as_ref(), at)? as usize..)?;
            if is_called(name, member) {
                return Some(bytes);
            }
            if !is_called(name, "") {
                continue;
            }
            let inner = self.parts_of(word(self.0.as_ref(), at + 4)?, &[STRUCTURE_KIND, UNION_KIND]);
            let Some(inner) = inner else { continue };
            if let Some(more) = self.bytes_within(inner, member) {
                return Some(bytes + more);
            }
        }
        None
    }

    /// The parts of the type with this number; `None` for types of other kinds than these.
    fn parts_of(&self, number: u32, kinds: &[u32]) -> Option<Parts> {
        let found = self.find(|one| one.number == number)?;
        if kinds.contains(&found.kind) { Some(found.parts) } else { None }
    }

    /// The first type that is wanted; `None` also if the bytes are not BTF of this byte order, or end early. Types have no
    /// index and different lengths: the number of one is known only by a walk from the first, which takes milliseconds.
    fn find(&self, is_wanted: impl Fn(&Found<'_>) -> bool) -> Option<Found<'_>> {
        let types = self.0.as_ref();
        let header = word(types, 4)? as usize;
        if word(types, 0)? & 0xffff != MAGIC {
            return None;
        }
        let mut at = header + word(types, 8)? as usize;
        let end = at + word(types, 12)? as usize;
        let names = header + word(types, 16)? as usize;
        let mut number = 1;
        while at < end {
            let info = word(types, at + 4)?;
            let kind = info >> 24 & 31;
            let parts = Parts { at: at + TYPE, count: (info & 0xffff) as usize, names };
            let found = Found { number, kind, parts, name: types.get(names + word(types, at)? as usize..)? };
            if is_wanted(&found) {
                return Some(found);
            }
            at += TYPE + added(kind, parts.count)?;
            number += 1;
        }
        None
    }
}

/// Whether a name that ends with a zero byte, with all that follows, is this one.
fn is_called(name: &[u8], wanted: &str) -> bool {
    name.starts_with(wanted.as_bytes()) && name.get(wanted.len()) == Some(&0)
}

fn missing(what: &str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("{PLACE} has {what}"))
}

/// Bytes that follow a type (`linux/btf.h`); `None` for a kind that is newer than this list, after which nothing can be read.
fn added(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations, parameters.
        6 | 13 => 8 * members,
        // Structures, unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => 12 * members,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// BTF of a number of 32 bits and of a structure without members that has as many bytes as a value.
pub(crate) fn of_carried(value_bytes: usize) -> Vec<u8> {
    let names = b"\0int\0value\0";
    let (int, value) = (1, 5);
    written(&[int, INTEGER_KIND << 24, 4, 32, value, STRUCTURE_KIND << 24, value_bytes as u32], names)
}

fn written(types: &[u32], names: &[u8]) -> Vec<u8> {
    let bytes = 4 * types.len() as u32;
    // The magic and the version share a word, which a machine writes in its own order.
    let first = [(MAGIC as u16).to_ne_bytes(), [VERSION as u8, 0]].concat();
    let header = [HEADER, 0, bytes, bytes, names.len() as u32];
    let mut all = first;
    for word in header.iter().chain(types) {
        all.extend(word.to_ne_bytes());
    }
    all.extend(names);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of an integer, a structure of one member, a typedef, a function and its prototype of two arguments.
    fn types() -> Vec<u8> {
        fn kind(kind: u32, members: u32) -> u32 {
            kind << 24 | members
        }
        let names = b"\0int\0pair\0btf_trace_connect\0sk\0send\0";
        let structure = [5, kind(4, 1), 4, 28, 1, 64];
        let words = [&[1, kind(1, 0), 4, 0x20][..], &structure, &[10, kind(TYPEDEF, 0), 2]].concat();
        let prototype = [0, kind(PROTOTYPE, 2), 1, 1, 1, 5, 2];
        written(&[&words[..], &[31, kind(FUNCTION, 0), 5], &prototype].concat(), names)
    }

    #[test]
    fn what_is_named_is_found_behind_types_of_other_sizes() {
        let whole = Types(types());
        assert_eq!(whole.tracepoint("connect").ok(), Some(3));
        assert_eq!(whole.tracepoint("conn").map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(whole.function("send").ok(), Some(4));
        assert_eq!(whole.arguments(4).ok(), Some(2));
        assert!(whole.arguments(3).is_err() && whole.arguments(5).is_err() && whole.arguments(6).is_err());
        assert_eq!(whole.offset("pair", "sk").ok(), Some(8));
        assert!(whole.offset("pair", "other").is_err() && whole.offset("int", "sk").is_err());
        for length in 0..whole.0.len() - 1 {
            let short = Types(whole.0[..length].to_vec());
            assert!(short.function("send").is_err(), "{length} bytes");
        }
        assert!(Types(vec![0xff; 400]).tracepoint("connect").is_err());
    }

    #[test]
    fn the_types_of_a_value_have_its_size() {
        let carried = Types(of_carried(8));
        assert_eq!(
            (carried.number(INTEGER_KIND, "int"), carried.number(STRUCTURE_KIND, "value")),
            (Some(INTEGER), Some(STRUCTURE))
        );
    }
}
