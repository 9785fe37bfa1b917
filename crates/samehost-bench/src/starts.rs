//! How often a private server is started afresh while measuring.

/// A server that runs already is never started afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Before every block: where a start takes some tens of milliseconds. Luck is then a part of what blocks differ by.
    EachBlock,
    /// So many servers, each started before its first block and then used in turn: where a start takes seconds. The idle
    /// ones take memory; the interval knows which block ran on which.
    InTurn(u32),
    /// Never: the interval is about one process, and the report says so.
    Once,
}

/// Servers in turn of a database: what differs from server to server is known from so few, and with four in place of six a ratio's
/// interval is half as wide again.
pub(crate) const DATABASES: u32 = 6;

impl Starts {
    /// The same with no more servers in turn than that.
    #[must_use]
    pub fn at_most(self, most: Option<u32>) -> Self {
        match (self, most) {
            (Starts::InTurn(servers), Some(most)) => Starts::InTurn(servers.min(most)),
            _ => self,
        }
    }

    /// Which start of the server a block is measured on.
    #[must_use]
    pub fn of_block(self, block: u32) -> u32 {
        match self {
            Starts::EachBlock => block,
            Starts::InTurn(servers) => block % servers.max(1),
            Starts::Once => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_their_starts() {
        let of = |starts: Starts| (0..6).map(|block| starts.of_block(block)).collect::<Vec<_>>();
        assert_eq!(of(Starts::EachBlock), [0, 1, 2, 3, 4, 5]);
        assert_eq!(of(Starts::InTurn(4)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(of(Starts::Once), [0; 6]);
        assert_eq!(Starts::InTurn(4).at_most(Some(3)), Starts::InTurn(3));
        assert_eq!(Starts::EachBlock.at_most(Some(3)), Starts::EachBlock);
    }
}
