//! Netlink framing over captured bytes: messages, attributes, and numbers in native byte order. Pure;
//! terminates without a panic for any bytes.

use rustix::io::Errno;

/// `struct nlmsghdr` and `struct nlattr`, in bytes.
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Mask that removes the flags in an attribute's type (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const TYPE_MASK: u16 = 0x3fff;

/// The number at an offset; `None` where the bytes do not reach that far.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: u16,
    pub payload: &'a [u8],
}

/// The messages of one datagram. Stops at the first truncated one.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let message = Message { kind: u16_at(bytes, 4)?, payload: bytes.get(HEADER..length)? };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes after a message's fixed part: type and value. Stops at the first truncated one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An attribute with its header, filled up to the next multiple of four bytes.
#[must_use]
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// What a message of kind NLMSG_ERROR reports: 0 is an acknowledgement, and otherwise a negative error number. Those end at
/// 4095 (MAX_ERRNO); any other number is not a reply of the kernel.
pub fn error(payload: &[u8]) -> Result<(), Errno> {
    let code = u32_at(payload, 0).unwrap_or(0) as i32;
    match code.wrapping_neg() {
        0 => Ok(()),
        errno @ 1..4096 => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::BADMSG),
    }
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_messages_and_an_attribute() {
        let mut bytes = Vec::new();
        for payload in [&[1, 2, 3][..], &[5, 0, 7, 0, 9][..]] {
            bytes.extend((16 + payload.len() as u32).to_ne_bytes());
            bytes.extend(20u16.to_ne_bytes());
            bytes.extend(2u16.to_ne_bytes());
            bytes.extend([0; 8]);
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Message { kind: 20, payload: &[1, 2, 3] });
        if cfg!(target_endian = "little") {
            assert_eq!(attributes(found[1].payload).collect::<Vec<_>>(), [(7, &[9][..])]);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for message in messages(&bytes) {
                for (_, value) in attributes(message.payload) {
                    prop_assert!(value.len() < bytes.len());
                }
            }
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
