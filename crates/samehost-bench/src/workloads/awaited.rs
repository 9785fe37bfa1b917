//! A reply that is known beforehand, compared byte for byte as it comes. Knows no protocol: what differs in its
//! head is handed back to the protocol to be understood.

use std::sync::Arc;

/// The bytes that a right reply has.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    bytes: Arc<[u8]>,
    /// The first bytes, which are judged together: they say what kind of reply it is, and how long.
    head: usize,
}

/// How far a reply was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is whole and right.
    Whole {
        /// Bytes used up.
        consumed: usize,
    },
    /// Right so far.
    Partly {
        /// Bytes used up.
        consumed: usize,
    },
    /// Its head is another; nothing is used up.
    OtherHead,
    /// The head was right and what follows is not.
    WrongBody,
}

impl Awaited {
    /// A reply of a head, a body and an end.
    pub(super) fn new(head: &[u8], body: &[u8], end: &[u8]) -> Self {
        Awaited { bytes: [head, body, end].concat().into(), head: head.len() }
    }

    /// Looks at more bytes of the reply, of which `received` came before.
    #[inline]
    pub(super) fn look(&self, received: &mut usize, input: &[u8]) -> Seen {
        if *received == 0 {
            let length = input.len().min(self.head);
            if input[..length] != self.bytes[..length] {
                return Seen::OtherHead;
            }
            if length < self.head {
                return Seen::Partly { consumed: 0 };
            }
        }
        let rest = &self.bytes[*received..];
        let length = input.len().min(rest.len());
        if input[..length] != rest[..length] {
            return Seen::WrongBody;
        }
        if length == rest.len() {
            *received = 0;
            Seen::Whole { consumed: length }
        } else {
            *received += length;
            Seen::Partly { consumed: length }
        }
    }
}

/// A value of this length: bytes that no text protocol could take for its own, and that differ along the way.
pub(super) fn value(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heads_are_judged_together_and_bodies_as_they_come() {
        let awaited = Awaited::new(b"$3\r\n", b"abc", b"\r\n");
        let mut received = 0;
        assert_eq!(awaited.look(&mut received, b"$3"), Seen::Partly { consumed: 0 });
        assert_eq!(awaited.look(&mut received, b"-E"), Seen::OtherHead);
        assert_eq!(awaited.look(&mut received, b"$3\r\nab"), Seen::Partly { consumed: 6 });
        assert_eq!(awaited.look(&mut received, b"c\r\nmore"), Seen::Whole { consumed: 3 });
        assert_eq!(received, 0, "ready for the next");
        assert_eq!(awaited.look(&mut received, b"$3\r\nabd\r\n"), Seen::WrongBody);
    }

    proptest! {
        #[test]
        fn a_right_reply_is_right_in_any_pieces(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            pieces in proptest::collection::vec(1_usize..40, 1..60),
        ) {
            let awaited = Awaited::new(b"HEAD\r\n", &body, b"\r\n");
            let whole = [b"HEAD\r\n".as_slice(), &body, b"\r\n"].concat();
            let (mut received, mut kept, mut from, mut pieces) = (0, Vec::new(), 0, pieces.into_iter().cycle());
            loop {
                let to = (from + pieces.next().unwrap()).min(whole.len());
                kept.extend_from_slice(&whole[from..to]);
                from = to;
                match awaited.look(&mut received, &kept) {
                    Seen::Partly { consumed } => { kept.drain(..consumed); }
                    seen => {
                        prop_assert_eq!(seen, Seen::Whole { consumed: kept.len() });
                        break;
                    }
                }
                prop_assert!(from < whole.len(), "not whole at the end");
            }
        }

        #[test]
        fn one_wrong_byte_is_seen(size in 1_usize..300, at in any::<prop::sample::Index>()) {
            let body = value(size);
            let awaited = Awaited::new(b"H", &body, b"\r\n");
            let mut reply = [b"H".as_slice(), &body, b"\r\n"].concat();
            let at = at.index(reply.len());
            reply[at] ^= 0x20;
            let seen = awaited.look(&mut 0, &reply);
            prop_assert_eq!(seen, if at == 0 { Seen::OtherHead } else { Seen::WrongBody });
        }
    }
}
