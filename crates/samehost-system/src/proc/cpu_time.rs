//! Parses `/proc/PID/stat` for the CPU time of a process, all its threads together. Pure.

/// CPU time of a process so far, in seconds; `None` if it has ended.
pub fn read(pid: u32) -> Option<f64> {
    let ticks = parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// User and system time in ticks: fields 14 and 15, counted after the name, which may contain anything.
pub fn parse(bytes: &[u8]) -> Option<u64> {
    let end = bytes.iter().rposition(|byte| *byte == b')')?;
    let text = String::from_utf8_lossy(bytes.get(end + 1..)?);
    let mut fields = text.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_blanks_and_brackets() {
        let line = b"7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7\n";
        assert_eq!(parse(line), Some(300));
        assert_eq!(parse(b"7 (a) S 1"), None);
        assert_eq!(parse(b""), None);
        assert!(read(std::process::id()).is_some() && read(u32::MAX).is_none());
    }
}
