//! Parses `/proc/PID/stat`: name, parent and CPU time of a process, all its threads together. Pure, except [`read`].

/// Fields of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the executable, at most 15 bytes.
    pub name: String,
    /// Pid of the parent.
    pub parent: u32,
    /// User time in ticks, including threads that have ended.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// User and system time of children that ended and were waited for, in ticks.
    pub reaped_ticks: u64,
}

/// Clock ticks per second in /proc (`USER_HZ`, read from the kernel; 100 on every Linux of interest).
#[must_use]
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second().max(1) as f64
}

/// The fields of a process; `None` if it has ended.
#[must_use]
pub fn read(pid: u32) -> Option<Stat> {
    Stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

impl Stat {
    /// The fields are counted after the name, which may contain anything.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // fields[0] is field 3 of the manual page, the state.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            name: head.split_once('(')?.1.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            reaped_ticks: number(16)?.checked_add(number(17)?)?,
        })
    }

    /// User and system time in seconds.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        (self.user_ticks as f64 + self.system_ticks as f64) / ticks_per_second()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_blanks_and_brackets() {
        let line = b"7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 1 0 5 6 7\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c)", 1));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.reaped_ticks), (250, 50, 15));
        for part in [&b"7 (a) S 1"[..], b"", b"1 (x", b"1 (x) S"] {
            assert_eq!(Stat::parse(part), None);
        }
        assert!(read(std::process::id()).is_some() && read(u32::MAX).is_none());
    }
}
