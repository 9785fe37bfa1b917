//! What the kernel counted of connections and of their pairs, read from its maps into values that this process can keep, subtract
//! and add.

use super::programs::Maps;
use super::record::{
    BACK, BUCKETS, EXCHANGES, FIRST_SUM, LAST_SUM, LASTS, OUT, PART_SUMS, PARTS, RECEIVED, RECEIVES, Record,
    TAKEN, UNASKED, UNTIMED, Unfinished, VIOLATIONS, at_most, bucket, quantile,
};
use crate::map::long;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// By the numbers with which connections were named.
    pub pairs: Vec<PairCounts>,
    /// Each connection, in the order in which they were named.
    pub connections: Vec<OfConnection>,
    /// Events that no program saw, because it ran already on that processor.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfConnection {
    /// Whether both its ends were found.
    pub has_both_ends: bool,
    /// Whether its client sent anything, and read anything.
    pub has_sent: bool,
    pub has_read: bool,
    /// Exchanges one at a time that have a time, and all their nanoseconds until the first piece of the reply was read. Of a
    /// connection that was measured from its opening on the first one is not among them, unless there is no other.
    pub timed: u64,
    pub nanoseconds: u64,
    /// The sum of the natural logarithms of their nanoseconds, of a connection that was measured from its opening on: each is known
    /// within 0.07 %.
    pub log_sum: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairCounts {
    /// Connections both of whose ends were found.
    pub connections: u32,
    pub exchanges: u64,
    /// Exchanges that overlapped with others of their connection; they are not among [`PairCounts::exchanges`].
    pub violations: u64,
    /// Exchanges without a stamp of their beginning, which have no time.
    pub untimed: u64,
    /// Pieces that clients read, and those of them that they had not asked for.
    pub receives: u64,
    pub unasked: u64,
    /// Bytes that clients sent, that servers read of them, that servers sent, and that clients read of them.
    pub bytes_out: u64,
    pub bytes_taken: u64,
    pub bytes_back: u64,
    pub bytes_received: u64,
    /// Until the first piece of the reply was read; as in [`OfConnection::timed`] without the first exchange of a connection that was
    /// measured from its opening on, unless there is no other.
    pub first: Times,
    /// Until the last one was.
    pub last: Times,
    /// Exchanges whose parts are all known, and the nanoseconds of each part: the way there, waiting for the server, its work,
    /// the way back, the client's own delay.
    pub parted: u64,
    pub parts: [u64; 5],
}

#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    pub count: u64,
    pub nanoseconds: u64,
    counts: Vec<u64>,
}

impl Default for Times {
    fn default() -> Self {
        Times { count: 0, nanoseconds: 0, counts: vec![0; BUCKETS] }
    }
}

impl Times {
    /// Their mean, in microseconds, which is exact; `None` without any.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        Some(self.nanoseconds as f64 / self.count as f64 / 1000.0)
    }

    /// The microseconds below which this part of them lies, 0 to 1, within 3 %; `None` without any.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> Option<f64> {
        quantile(&self.counts, part).map(|nanoseconds| nanoseconds / 1000.0)
    }

    /// How many of them are at most so many microseconds, within 3 %.
    #[must_use]
    pub fn at_most_us(&self, microseconds: f64) -> u64 {
        at_most(&self.counts, (1000.0 * microseconds) as u64).min(self.count)
    }

    fn since(&self, earlier: &Times) -> Times {
        let mut counts = self.counts.clone();
        for (count, was) in counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*was);
        }
        Times {
            count: self.count.saturating_sub(earlier.count),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
            counts,
        }
    }

    fn merge(&mut self, other: &Times) {
        self.count += other.count;
        self.nanoseconds += other.nanoseconds;
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    fn add(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.nanoseconds += nanoseconds;
        self.counts[bucket(nanoseconds)] += 1;
    }
}

/// What becomes of an exchange that has its reply and that no other followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// It is counted: the measurement is at its end.
    Counts,
    /// It waits: the programs count it when the next one begins.
    Waits,
}

/// Reads the records of so many connections, and the buckets of so many pairs. A record that cannot be read counts as nothing.
pub(super) fn count(maps: &Maps, named: u32, pairs: u32, lost: u64, last: Last) -> Counted {
    let mut all = vec![PairCounts::default(); pairs as usize];
    for (pair, counts) in (0_u32..).zip(&mut all) {
        counts.first.counts = buckets(maps, 2 * pair);
        counts.last.counts = buckets(maps, 2 * pair + 1);
    }
    let mut connections = vec![OfConnection::default(); named as usize];
    for (number, connection) in (0..named).zip(&mut connections) {
        let Some(bytes) = maps.records.get(&number.to_ne_bytes()) else { continue };
        let Some(pair) = bytes.first_chunk().map(|pair| u32::from_ne_bytes(*pair)) else { continue };
        let (Some(counts), Some(record)) = (all.get_mut(pair as usize), Record::new(bytes)) else { continue };
        counts.add(&record, last);
        *connection = OfConnection::of(&record);
    }
    Counted { pairs: all, connections, lost }
}

impl OfConnection {
    fn of(record: &Record) -> Self {
        let opening = record.opening();
        let mut found = OfConnection {
            has_both_ends: record.is_named(),
            has_sent: record.at(OUT) > 0,
            has_read: record.at(RECEIVES) > 0,
            timed: record.timed().saturating_sub(u64::from(opening.is_some())),
            nanoseconds: record.at(FIRST_SUM),
            log_sum: record.log_sum(),
        };
        if let Some(Unfinished { nanoseconds: Some(nanoseconds), .. }) = record.unfinished() {
            found.timed += 1;
            found.nanoseconds += nanoseconds;
            found.log_sum += log(nanoseconds);
        }
        if let Some(alone) = opening
            && found.timed == 0
        {
            (found.timed, found.nanoseconds, found.log_sum) = (1, alone, log(alone));
        }
        found
    }
}

fn log(nanoseconds: u64) -> f64 {
    (nanoseconds.max(1) as f64).ln()
}

fn buckets(maps: &Maps, key: u32) -> Vec<u64> {
    let mut sums = vec![0; BUCKETS];
    let bytes = maps.times.get(&key.to_ne_bytes()).unwrap_or_default();
    for (at, count) in bytes.chunks_exact(8).enumerate() {
        sums[at % BUCKETS] += long(count, 0);
    }
    sums
}

impl Counted {
    /// What was counted since an earlier count of the same measurement.
    #[must_use]
    pub fn since(&self, earlier: &Counted) -> Counted {
        let none = PairCounts::default();
        let mut pairs = Vec::new();
        for (at, pair) in self.pairs.iter().enumerate() {
            pairs.push(pair.since(earlier.pairs.get(at).unwrap_or(&none)));
        }
        let lost = self.lost.saturating_sub(earlier.lost);
        Counted { pairs, connections: self.connections.clone(), lost }
    }
}

impl PairCounts {
    /// Exchanges, those that overlap with others of their connection among them.
    #[must_use]
    pub fn all_exchanges(&self) -> u64 {
        self.exchanges + self.violations
    }

    /// Counts of both ends are read one after the other, so that one may be behind by what is under way: never below zero.
    fn since(&self, earlier: &PairCounts) -> PairCounts {
        let mut parts = self.parts;
        for (part, was) in parts.iter_mut().zip(earlier.parts) {
            *part = part.saturating_sub(was);
        }
        PairCounts {
            connections: self.connections,
            exchanges: self.exchanges.saturating_sub(earlier.exchanges),
            violations: self.violations.saturating_sub(earlier.violations),
            untimed: self.untimed.saturating_sub(earlier.untimed),
            receives: self.receives.saturating_sub(earlier.receives),
            unasked: self.unasked.saturating_sub(earlier.unasked),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            bytes_taken: self.bytes_taken.saturating_sub(earlier.bytes_taken),
            bytes_back: self.bytes_back.saturating_sub(earlier.bytes_back),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            first: self.first.since(&earlier.first),
            last: self.last.since(&earlier.last),
            parted: self.parted.saturating_sub(earlier.parted),
            parts,
        }
    }

    pub fn merge(&mut self, other: &PairCounts) {
        self.connections += other.connections;
        self.exchanges += other.exchanges;
        self.violations += other.violations;
        self.untimed += other.untimed;
        self.receives += other.receives;
        self.unasked += other.unasked;
        self.bytes_out += other.bytes_out;
        self.bytes_taken += other.bytes_taken;
        self.bytes_back += other.bytes_back;
        self.bytes_received += other.bytes_received;
        self.first.merge(&other.first);
        self.last.merge(&other.last);
        self.parted += other.parted;
        for (sum, part) in self.parts.iter_mut().zip(other.parts) {
            *sum += part;
        }
    }

    fn add(&mut self, record: &Record, last: Last) {
        self.connections += u32::from(record.is_named());
        self.exchanges += record.at(EXCHANGES);
        self.violations += record.at(VIOLATIONS);
        self.untimed += record.at(UNTIMED);
        self.receives += record.at(RECEIVES);
        self.unasked += record.at(UNASKED);
        self.bytes_out += record.at(OUT);
        self.bytes_taken += record.at(TAKEN);
        self.bytes_back += record.at(BACK);
        self.bytes_received += record.at(RECEIVED);
        self.first.count += record.timed().saturating_sub(u64::from(record.opening().is_some()));
        self.first.nanoseconds += record.at(FIRST_SUM);
        if let Some(alone) = record.opening()
            && record.timed() == 1
            && record.unfinished().is_none()
        {
            self.first.add(alone);
        }
        self.last.count += record.at(LASTS);
        self.last.nanoseconds += record.at(LAST_SUM);
        self.parted += record.at(PARTS);
        for (sum, place) in self.parts.iter_mut().zip(PART_SUMS) {
            *sum += record.at(place);
        }
        if let Some(unfinished) = record.unfinished()
            && last == Last::Counts
        {
            self.exchanges += 1;
            match unfinished.nanoseconds {
                Some(nanoseconds) => self.first.add(nanoseconds),
                None => self.untimed += 1,
            }
            if let Some(parts) = unfinished.parts {
                self.parted += 1;
                for (sum, part) in self.parts.iter_mut().zip(parts) {
                    *sum += part;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{BEGUN, LOG_SUM, OPENING, READ, begun};
    use super::*;

    fn found(places: &[(i16, u64)]) -> OfConnection {
        let mut bytes = begun(0, 0).to_vec();
        for (place, word) in places {
            bytes[*place as usize..*place as usize + 8].copy_from_slice(&word.to_ne_bytes());
        }
        OfConnection::of(&Record::new(bytes).unwrap())
    }

    #[test]
    fn the_first_exchange_counts_where_there_is_no_other() {
        fn numbers(places: &[(i16, u64)]) -> (u64, u64) {
            let found = found(places);
            (found.timed, found.nanoseconds)
        }
        assert_eq!(numbers(&[(EXCHANGES, 1), (OPENING, 900)]), (1, 900));
        assert_eq!(numbers(&[(EXCHANGES, 3), (OPENING, 900), (FIRST_SUM, 50)]), (2, 50));
        // One that no other followed: it is the only one, or not.
        assert_eq!(numbers(&[(BEGUN, 100), (READ, 130)]), (1, 30));
        assert_eq!(numbers(&[(EXCHANGES, 1), (OPENING, 900), (BEGUN, 1000), (READ, 1030)]), (1, 30));
        // The logarithms are those of the same exchanges: two of 1024 ns, and one that no other followed.
        assert_eq!(found(&[(EXCHANGES, 1), (OPENING, 900)]).log_sum, 900_f64.ln());
        let two = [(EXCHANGES, 3), (OPENING, 900), (FIRST_SUM, 2048), (LOG_SUM, 2 * 10 * 1024)];
        assert!((found(&two).log_sum - 2.0 * 1024_f64.ln()).abs() < 1e-9);
        let three = [&two[..], &[(BEGUN, 100), (READ, 130)]].concat();
        assert!((found(&three).log_sum - 2.0 * 1024_f64.ln() - 30_f64.ln()).abs() < 1e-9);
        // Of connections that were there before, all count.
        assert_eq!(numbers(&[(EXCHANGES, 3), (FIRST_SUM, 950)]), (3, 950));
    }
}
