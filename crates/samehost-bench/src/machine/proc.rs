//! Readers of the few /proc and /sys files that meters need. A process that has ended is a normal case: `None`.

use std::fs;
use std::path::Path;

pub fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Command line of a process, arguments separated by spaces. Some servers replace theirs by a status.
pub fn command_line(pid: u32) -> Option<String> {
    let line = text(format!("/proc/{pid}/cmdline"))?;
    Some(line.trim_end_matches('\0').replace('\0', " "))
}

/// A thread's schedstat file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub waited_ns: u64,
    /// How often it was given a CPU.
    pub runs: u64,
}

/// Parses a schedstat file.
pub fn parse_schedstat(text: &str) -> Option<Schedstat> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Schedstat { cpu_ns: fields.next()??, waited_ns: fields.next()??, runs: fields.next()?? })
}
