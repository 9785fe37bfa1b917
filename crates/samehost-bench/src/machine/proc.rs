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

/// Parses a schedstat file: time on a CPU, and time ready to run but waiting, in nanoseconds.
pub fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// How often a thread was given a CPU, from its schedstat file.
pub fn parse_timeslices(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}
