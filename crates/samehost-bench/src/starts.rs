//! How often a private server is restarted during a measurement.

/// Rule for restarts. A server that was already running is never restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Before every block: if a start takes some tens of milliseconds. Differences between processes (memory
    /// layout) are then part of the differences between blocks.
    EachBlock,
    /// So many servers, each started before its first block and then used in turn: if a start takes seconds.
    /// Idle servers take memory; the interval accounts for which block ran on which server.
    InTurn(u32),
    /// Never: the interval is about one process, which the report states.
    Once,
}

/// Number of database servers used in turn. It is few to estimate the differences between servers from; with
/// four instead of six a ratio's interval is half as wide again.
pub(crate) const DATABASES: u32 = 6;

impl Starts {
    /// Limits the number of servers in turn.
    #[must_use]
    pub fn at_most(self, most: Option<u32>) -> Self {
        match (self, most) {
            (Starts::InTurn(servers), Some(most)) => Starts::InTurn(servers.min(most)),
            _ => self,
        }
    }

    /// Number of the start that a block is measured on.
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
        let starts_of_blocks =
            |starts: Starts| (0..6).map(|block| starts.of_block(block)).collect::<Vec<_>>();
        assert_eq!(starts_of_blocks(Starts::EachBlock), [0, 1, 2, 3, 4, 5]);
        assert_eq!(starts_of_blocks(Starts::InTurn(4)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(starts_of_blocks(Starts::Once), [0; 6]);
        assert_eq!(Starts::InTurn(4).at_most(Some(3)), Starts::InTurn(3));
        assert_eq!(Starts::EachBlock.at_most(Some(3)), Starts::EachBlock);
    }
}
