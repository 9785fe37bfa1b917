//! The record of a connection that both its ends share in the kernel: the moments of the exchange that goes on, and sums.

/// Places of its parts, in bytes. Words of 64 bits, but for the first two.
pub(super) const PAIR: i16 = 0;
/// Which ends have been given their storage: 1 the client's, 2 the server's.
pub(super) const NAMED: i16 = 4;

/// The client begins to send; 0 before its first time.
pub(super) const BEGUN: i16 = 8;
/// It is there for the server.
pub(super) const ARRIVED: i16 = 16;
/// The server has read a first piece.
pub(super) const TAKEN_AT: i16 = 24;
/// The server begins to send.
pub(super) const ANSWERED: i16 = 32;
/// It is there for the client.
pub(super) const RETURNED: i16 = 40;
/// The client has read a first piece.
pub(super) const READ: i16 = 48;
/// The client has read a piece, the last one so far.
pub(super) const LAST: i16 = 56;

/// What is odd about this exchange: it is not one at a time; nobody knows when it began; more came long after its reply.
pub(super) const VIOLATED: i16 = 64;
pub(super) const IS_UNTIMED: i16 = 72;
pub(super) const STREAMED: i16 = 80;
/// The next piece that the client reads is one that it did not ask for.
pub(super) const PUSHED: i16 = 88;

/// Bytes: sent by the client, read by the server, sent by the server, read by the client.
pub(super) const OUT: i16 = 96;
pub(super) const TAKEN: i16 = 104;
pub(super) const BACK: i16 = 112;
pub(super) const RECEIVED: i16 = 120;

/// Numbers: exchanges one at a time, others, pieces that the client read, those that it had not asked for, exchanges without a
/// beginning.
pub(super) const EXCHANGES: i16 = 128;
pub(super) const VIOLATIONS: i16 = 136;
pub(super) const RECEIVES: i16 = 144;
pub(super) const UNASKED: i16 = 152;
pub(super) const UNTIMED: i16 = 160;

/// Sums of nanoseconds, and of how many exchanges: to the first piece, to the last one, and the five parts of the first.
pub(super) const FIRST_SUM: i16 = 168;
pub(super) const LAST_SUM: i16 = 176;
pub(super) const LASTS: i16 = 184;
pub(super) const PARTS: i16 = 192;
/// The way there, waiting, work, the way back, and the client's own delay.
pub(super) const PART_SUMS: [i16; 5] = [200, 208, 216, 224, 232];

pub(super) const BYTES: usize = 240;

/// A record as it was read.
pub(super) struct Record(Vec<u8>);

impl Record {
    /// `None` for bytes that are too few.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= BYTES).then_some(Record(bytes))
    }

    pub(super) fn at(&self, place: i16) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[place as usize..place as usize + 8]);
        u64::from_ne_bytes(word)
    }

    /// Exchanges that have a time and that another followed.
    pub(super) fn timed(&self) -> u64 {
        self.at(EXCHANGES) - self.at(UNTIMED).min(self.at(EXCHANGES))
    }

    pub(super) fn is_named(&self) -> bool {
        self.0[NAMED as usize..NAMED as usize + 4] == 3_u32.to_ne_bytes()
    }

    /// Nanoseconds of the exchange that has its reply and that no other followed, for which the programs wait to count it.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        let (begun, read) = (self.at(BEGUN), self.at(READ));
        if begun == 0 || read <= begun || self.at(VIOLATED) != 0 {
            return None;
        }
        let is_timed = self.at(IS_UNTIMED) == 0;
        let parts = if is_timed { self.parts() } else { None };
        Some(Unfinished { nanoseconds: is_timed.then_some(read - begun), parts })
    }

    /// The parts of the exchange that goes on, as the programs count them: if all moments are known and follow each other.
    fn parts(&self) -> Option<[u64; 5]> {
        let moments = [BEGUN, ARRIVED, TAKEN_AT, ANSWERED, RETURNED, READ].map(|place| self.at(place));
        let [begun, arrived, taken, answered, returned, read] = moments;
        // A reader on another processor may have it before the sender says that it is there.
        let (arrived, returned) = (arrived.min(taken), returned.min(read));
        if moments.contains(&0) || arrived < begun || answered < taken || returned < answered {
            return None;
        }
        Some([arrived - begun, taken - arrived, answered - taken, returned - answered, read - returned])
    }
}

/// An exchange that no other followed.
pub(super) struct Unfinished {
    /// `None` where nobody knows when it began.
    pub(super) nanoseconds: Option<u64>,
    pub(super) parts: Option<[u64; 5]>,
}

/// A record without anything but its pair.
pub(super) fn empty(pair: u32) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[PAIR as usize..4].copy_from_slice(&pair.to_ne_bytes());
    bytes
}

/// The same of a connection whose client has its storage already.
pub(super) fn of_client(pair: u32) -> [u8; BYTES] {
    let mut bytes = empty(pair);
    bytes[NAMED as usize..NAMED as usize + 4].copy_from_slice(&1_u32.to_ne_bytes());
    bytes
}
