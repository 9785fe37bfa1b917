//! How much work a PHP file may cause, and how much its values may take: in proportion to its length. A file that has more is a
//! program, and no configuration.

/// Steps that any file may cause, and further ones for each byte. A step is an expression, or an entry that is compared or
/// copied. The files of the corpus cause up to 3 for each byte.
const WORK: u64 = 1_000_000;
const WORK_PER_BYTE: u64 = 64;
/// Bytes of values, likewise. A text of 1 kB that is doubled 40 times would take a terabyte.
const MEMORY: u64 = 8 << 20;
const MEMORY_PER_BYTE: u64 = 4;
/// Longest text that is put together from others.
pub(super) const LONGEST_TEXT: usize = 64 * 1024;

/// What is left.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) work: u64,
    memory: u64,
    /// Bytes of the files that were read.
    length: u64,
}

impl Budget {
    /// One more file is followed.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.length += bytes as u64;
    }

    /// Bytes of a value that is made.
    pub(super) fn hold(&mut self, bytes: usize) {
        self.memory += bytes as u64;
    }

    pub(super) fn is_spent(&self) -> bool {
        self.work > WORK + WORK_PER_BYTE * self.length || self.memory > MEMORY + MEMORY_PER_BYTE * self.length
    }
}
