//! The coin of a trial: which connection goes over TCP and which over the Unix socket.

use std::fmt;
use std::str::FromStr;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The smallest block of the coin, in connections.
/// In a block of two the second connection would follow from the first. Blocks of four and of six take
/// turns by chance, so that whoever knows the last ways does not know the next, and a trial of any length
/// has both ways alike: permuted blocks, as in clinical trials, in place of a plain coin, which could
/// have a run of one way (docs/method.md §17).
const SMALLEST: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Tcp,
    Unix,
}

impl Way {
    pub const BOTH: [Way; 2] = [Way::Tcp, Way::Unix];
}

/// Which part of the connections goes over the Unix socket: 5 to 95 %, in steps of 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u8);

impl Share {
    /// Connections of the smallest block, and how many of them go over the Unix socket.
    fn smallest_block(self) -> (u8, u8) {
        // Of 20 connections, each 5 % are whole ones.
        let mut size = SMALLEST;
        while u32::from(size) * u32::from(self.0) % 100 != 0 {
            size += 1;
        }
        (size, (u32::from(size) * u32::from(self.0) / 100) as u8)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<u8>().ok();
        match number {
            Some(percent) if (5..=95).contains(&percent) && percent % 5 == 0 => Ok(Share(percent)),
            _ => Err(
                "write 5% to 95%, in steps of 5: the part of the connections that goes over the Unix socket"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// The coin: ways in permuted blocks, so that both have their part of any few connections in a row.
pub struct Coin {
    random: Xoshiro256PlusPlus,
    share: Share,
    blocks: u32,
}

impl Coin {
    pub fn new(share: Share, seed: u64) -> Self {
        Coin { random: Xoshiro256PlusPlus::seed_from_u64(seed), share, blocks: 0 }
    }

    /// The ways of the next block, the first one at the end, and the block's number.
    /// A block has four or six connections where each way has half, so that whoever knows the last ways
    /// does not know the next one, and both ways have their part of any few connections in a row. For
    /// other parts it is the smallest block of four or more that has both, or twice as many. The coin is
    /// thrown after everything that keeps a connection with TCP in any case, so that both ways have the
    /// same connections and stop in the same place (docs/method.md §17).
    pub fn next_block(&mut self) -> (u32, Vec<Way>) {
        let (size, unix) = self.share.smallest_block();
        let (size, unix) = match (size, self.random.random_bool(0.5)) {
            (4, true) if unix == 2 => (6, 3),
            (_, true) => (2 * size, 2 * unix),
            _ => (size, unix),
        };
        let mut ways = vec![Way::Unix; usize::from(unix)];
        ways.resize(usize::from(size), Way::Tcp);
        ways.shuffle(&mut self.random);
        self.blocks += 1;
        (self.blocks - 1, ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_part_of_both_ways() {
        for (percent, sizes, unix_of_100) in
            [(50, [4, 6], 50), (25, [4, 8], 25), (10, [10, 20], 10), (95, [20, 40], 95), (60, [5, 10], 60)]
        {
            let mut coin = Coin::new(Share(percent), 1);
            let mut seen = Vec::new();
            for number in 0..200 {
                let (block, ways) = coin.next_block();
                assert_eq!(block, number);
                let unix = ways.iter().filter(|way| **way == Way::Unix).count();
                assert_eq!(100 * unix, unix_of_100 * ways.len(), "{percent} %");
                seen.push(ways.len());
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, sizes, "{percent} %");
        }
    }

    #[test]
    fn a_seed_throws_the_same_coin_and_another_another() {
        fn draw(seed: u64) -> Vec<Way> {
            let mut coin = Coin::new(Share(50), seed);
            (0..20).flat_map(|_| coin.next_block().1).collect()
        }
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn each_place_of_a_block_has_either_way_as_often() {
        let mut coin = Coin::new(Share(50), 3);
        let mut first_is_unix = 0;
        for _ in 0..10_000 {
            first_is_unix += u32::from(coin.next_block().1.last() == Some(&Way::Unix));
        }
        assert!((4800..5200).contains(&first_is_unix), "{first_is_unix}");
    }

    #[test]
    fn a_share_is_a_multiple_of_five() {
        for text in ["50%", "50", "5%", "95%"] {
            assert!(text.parse::<Share>().is_ok(), "{text}");
        }
        for text in ["", "0%", "100%", "33%", "-5%", "x"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
