//! Whether the machine was ours during a trial: steal, throttling, foreign processes. The rule sees the
//! machine, never the result.

use std::collections::HashMap;
use std::time::Duration;

use samehost_model::{Code, MachineUse, Warning};

use super::proc;

/// More than this of all CPUs' time stolen and the trial is not ours, in percent.
const MOST_STEAL_PERCENT: f64 = 3.0;
/// More than this of one CPU used by strangers and the trial is not ours, in percent.
const MOST_FOREIGN_PERCENT: f64 = 15.0;
/// A larger change of the clock is worth a warning, in percent.
const MOST_CLOCK_CHANGE_PERCENT: f64 = 10.0;
/// Less than this many ticks of strangers is below what the kernel's count resolves.
const FEWEST_FOREIGN_TICKS: f64 = 4.0;

/// A reading of what all CPUs did so far, in ticks, and of the cgroup's throttling, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    busy: u64,
    all: u64,
    steal: u64,
    throttled_us: u64,
    /// Mean of all CPUs' clocks, in kHz.
    clock_khz: Option<f64>,
}

/// Parses the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal guest….
fn parse_cpu_line(text: &str) -> Option<Reading> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Reading { busy, all: busy + idle + iowait + steal, steal, ..Reading::default() })
}

/// Throttled time of this process' cgroup, version 2 or 1, in microseconds.
fn throttled_us() -> u64 {
    let own = proc::text("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':'))
        else {
            continue;
        };
        let (root, key, unit) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "throttled_usec", 1)
        } else if controllers.split(',').any(|c| c == "cpu") {
            ("/sys/fs/cgroup/cpu", "throttled_time", 1_000)
        } else {
            continue;
        };
        let Some(stat) = proc::text(format!("{root}{path}/cpu.stat")) else { continue };
        let value = stat.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
        if let Some(value) = value {
            return value / unit;
        }
    }
    0
}

/// Mean clock of the CPUs whose frequency the kernel tells; none on most virtual machines.
fn clock_khz() -> Option<f64> {
    let clocks: Vec<f64> = (0..64)
        .map_while(|cpu| proc::text(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")))
        .filter_map(|text| text.trim().parse().ok())
        .collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

/// Meters the machine from the beginning to the end of a window.
#[derive(Debug)]
pub struct MachineMeter {
    before: Reading,
}

fn reading() -> Reading {
    let cpus = proc::text("/proc/stat").as_deref().and_then(parse_cpu_line).unwrap_or_default();
    Reading { throttled_us: throttled_us(), clock_khz: clock_khz(), ..cpus }
}

impl MachineMeter {
    /// Begins to meter.
    #[must_use]
    pub fn begin() -> Self {
        MachineMeter { before: reading() }
    }

    /// What the machine did since, of which `own_cpu_ns` was client and server.
    #[must_use]
    pub fn end(&self, own_cpu_ns: u64, cpus: u32) -> MachineUse {
        use_between(self.before, reading(), own_cpu_ns, cpus)
    }
}

fn use_between(before: Reading, after: Reading, own_cpu_ns: u64, cpus: u32) -> MachineUse {
    let since = |f: fn(&Reading) -> u64| f(&after).saturating_sub(f(&before)) as f64;
    let all = since(|r| r.all);
    if all == 0.0 {
        return MachineUse::default();
    }
    let own_ticks = own_cpu_ns as f64 / 1e9 * proc::ticks_per_second();
    let foreign_ticks = since(|r| r.busy) - own_ticks;
    // Ticks of one CPU in this span.
    let span = all / f64::from(cpus.max(1));
    MachineUse {
        steal_percent: 100.0 * since(|r| r.steal) / all,
        foreign_percent: if foreign_ticks < FEWEST_FOREIGN_TICKS {
            0.0
        } else {
            100.0 * foreign_ticks / span
        },
        throttled_ms: since(|r| r.throttled_us) / 1000.0,
        clock_change_percent: before
            .clock_khz
            .zip(after.clock_khz)
            .map(|(before, after)| 100.0 * (after / before - 1.0)),
        foreign_process: None,
    }
}

/// A warning where the clock changed so much that a trial's speed may be the clock's.
#[must_use]
pub fn doubt_clock(machine: &MachineUse) -> Option<Warning> {
    let change = machine.clock_change_percent.filter(|change| change.abs() > MOST_CLOCK_CHANGE_PERCENT)?;
    let message =
        format!("the CPUs' clock changed by {change:+.0} % from the beginning to the end of a trial");
    Some(Warning::new(Code::ClockChange, "", message))
}

/// Why a trial is measured again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pollution(pub Vec<String>);

/// The reasons for which the machine was not ours; none for a clean trial.
#[must_use]
pub fn judge_pollution(machine: &MachineUse) -> Pollution {
    let mut reasons = Vec::new();
    if machine.steal_percent > MOST_STEAL_PERCENT {
        reasons.push(format!("the hypervisor took {:.0} % of the CPU time", machine.steal_percent));
    }
    if machine.throttled_ms > 0.0 {
        reasons.push(format!("the cgroup's quota stopped it for {:.0} ms", machine.throttled_ms));
    }
    if machine.foreign_percent > MOST_FOREIGN_PERCENT {
        let who = machine.foreign_process.as_deref().unwrap_or("other processes");
        reasons.push(format!("{who} used {:.0} % of a CPU", machine.foreign_percent));
    }
    Pollution(reasons)
}

/// The process that uses most CPU right now and is none of `own`: `name (pid)`. Looks twice, `span` apart.
#[must_use]
pub fn busiest_stranger(own: &[u32], span: Duration) -> Option<String> {
    let look = || -> HashMap<u32, u64> {
        proc::pids()
            .into_iter()
            .filter(|pid| !own.contains(pid))
            .filter_map(|pid| Some((pid, super::process_cpu_ns(pid)?)))
            .collect()
    };
    let before = look();
    std::thread::sleep(span);
    let (pid, used) = look()
        .into_iter()
        .map(|(pid, cpu)| (pid, cpu.saturating_sub(before.get(&pid).copied().unwrap_or(cpu))))
        .max_by_key(|(_, used)| *used)?;
    if (used as f64) < span.as_nanos() as f64 * 0.05 {
        return None;
    }
    let name: String = proc::stat(pid)?.name.chars().flat_map(char::escape_debug).collect();
    Some(format!("{name} (pid {pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_what_is_left_of_the_busy_time() {
        let before = parse_cpu_line("cpu  100 0 100 1000 0 0 0 10 0 0\ncpu0 1 2 3").unwrap();
        let after = parse_cpu_line("cpu  200 0 150 1049 0 0 0 11 0 0\n").unwrap();
        // 200 ticks passed on 2 CPUs, so 1 s; 150 busy, of which 0.9 s were ours.
        let machine = use_between(before, after, 900_000_000, 2);
        assert!((machine.foreign_percent - 60.0).abs() < 1e-9, "{machine:?}");
        assert!((machine.steal_percent - 0.5).abs() < 1e-9);
        assert_eq!(judge_pollution(&machine).0.len(), 1);
        let clean = use_between(before, after, 1_500_000_000, 2);
        assert!(judge_pollution(&clean).0.is_empty());
        assert!(parse_cpu_line("cpu0 1 2 3 4 5 6 7 8").is_none());
    }

    #[test]
    fn a_changed_clock_is_worth_a_warning() {
        let at = |clock_khz| Reading { all: 100, clock_khz, ..Reading::default() };
        let change = |after| use_between(at(Some(2e6)), Reading { all: 200, ..at(after) }, 0, 1);
        assert_eq!(change(Some(3e6)).clock_change_percent, Some(50.0));
        assert!(doubt_clock(&change(Some(3e6))).is_some());
        assert!(doubt_clock(&change(Some(2.1e6))).is_none());
        assert!(doubt_clock(&change(None)).is_none());
    }

    #[test]
    fn steal_and_throttling_are_reasons() {
        let machine = MachineUse { steal_percent: 20.0, throttled_ms: 5.0, ..MachineUse::default() };
        let Pollution(reasons) = judge_pollution(&machine);
        assert_eq!(reasons.len(), 2);
        assert!(reasons[0].contains("20 %"));
    }
}
