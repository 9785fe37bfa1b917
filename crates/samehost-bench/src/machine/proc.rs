//! Readers of the few /proc and /sys files that meters need. A process that has ended is a normal case: `None`.

use std::fs;
use std::path::Path;

use samehost_system::peer;

/// Clock ticks per second in /proc (`USER_HZ`, read from the kernel; 100 on every Linux of interest).
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

pub fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the executable, at most 15 bytes.
    pub name: String,
    /// Parent process.
    pub parent: u32,
    /// User time in ticks, including threads that have ended.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// User and system time of children that ended and were waited for, in ticks.
    pub reaped_ticks: u64,
}

/// Parses `/proc/PID/stat` (proc_pid_stat(5)); the name may contain spaces and parentheses.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let name = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    // fields[0] is field 3 of the manual page, the state.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name,
        parent: u32::try_from(number(4)?).ok()?,
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        reaped_ticks: number(16)? + number(17)?,
    })
}

pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&text(format!("/proc/{pid}/stat"))?)
}

/// All process ids.
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The process and all its descendants, itself first; empty if it has ended.
pub fn family(root: u32) -> Vec<u32> {
    if stat(root).is_none() {
        return Vec::new();
    }
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        family.extend(peer::children(family[next]));
        next += 1;
    }
    family
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 5 6 7";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!((stat.parent, stat.user_ticks, stat.system_ticks, stat.reaped_ticks), (1, 50, 60, 15));
        assert!(parse_stat("").is_none() && parse_stat("1 (x").is_none() && parse_stat("1 (x) S").is_none());
    }

    #[test]
    fn this_process_is_its_own_family() {
        assert_eq!(family(std::process::id())[0], std::process::id());
        assert!(family(u32::MAX).is_empty());
    }
}
