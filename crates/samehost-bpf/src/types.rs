//! The kernel's own types (BTF), as far as a program needs them that is attached to one: the number of a tracepoint.

use std::fs;
use std::io::{self, ErrorKind};

const PLACE: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;
/// Bytes of a type before what its kind adds.
const TYPE: usize = 12;
const TYPEDEF: u32 = 8;

/// The number of a tracepoint among the types of the running kernel, by its name without the group: `inet_sock_set_state`.
///
/// # Errors
/// `NotFound` where the kernel has no BTF (CONFIG_DEBUG_INFO_BTF; Debian 11 and later have it) or no such tracepoint.
pub(crate) fn tracepoint(name: &str) -> io::Result<u32> {
    let types = fs::read(PLACE)?;
    number_of(&types, &format!("btf_trace_{name}"))
        .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{PLACE} has no tracepoint {name}")))
}

/// The number of a typedef; `None` if there is none, or the bytes are not BTF of this byte order.
fn number_of(types: &[u8], wanted: &str) -> Option<u32> {
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
        let (kind, members) = (info >> 24 & 31, (info & 0xffff) as usize);
        if kind == TYPEDEF {
            let name = types.get(names + word(types, at)? as usize..)?;
            if name.starts_with(wanted.as_bytes()) && name.get(wanted.len()) == Some(&0) {
                return Some(number);
            }
        }
        at += TYPE + added(kind, members)?;
        number += 1;
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of an integer, a structure of one member, and a typedef.
    fn types() -> Vec<u8> {
        let names = b"\0int\0pair\0btf_trace_connect\0";
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let words = [1, kind(1, 0), 4, 0x20, 5, kind(4, 1), 4, 1, 1, 0, 10, kind(TYPEDEF, 0), 2];
        let mut bytes = Vec::new();
        for word in
            [MAGIC | 1 << 16, 24, 0, 4 * words.len() as u32, 4 * words.len() as u32, names.len() as u32]
        {
            bytes.extend(word.to_ne_bytes());
        }
        for word in words {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(names);
        bytes
    }

    #[test]
    fn a_typedef_is_found_behind_types_of_other_sizes() {
        let types = types();
        assert_eq!(number_of(&types, "btf_trace_connect"), Some(3));
        assert_eq!(number_of(&types, "btf_trace_conn"), None);
        for length in 0..types.len() - 1 {
            assert_eq!(number_of(&types[..length], "btf_trace_connect"), None, "{length} bytes");
        }
        assert_eq!(number_of(&[0xff; 400], "btf_trace_connect"), None);
    }
}
