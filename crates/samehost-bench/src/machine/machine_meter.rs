//! Meters what else the machine did during a trial: steal, throttling, CPU time of other programs. It judges nothing.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use samehost_model::{Code, MachineUse, OtherProgram, Warning};
use samehost_system::proc::pids;
use samehost_system::proc::status::{self, Stat};

/// Largest change of the CPUs' clock without a warning, in percent.
const MAX_CLOCK_CHANGE_PERCENT: f64 = 10.0;

/// Reading of the counters of all CPUs, in ticks, and of the cgroup's throttled time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    /// Processes and interrupts, without softirqs.
    busy: u64,
    softirq: u64,
    all: u64,
    steal: u64,
    throttled_us: u64,
    /// Mean clock of all CPUs, in kHz.
    clock_khz: Option<f64>,
}

/// Parses the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal guest….
fn parse_cpu_line(text: &str) -> Option<Reading> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else { return None };
    let busy = user + nice + system + irq;
    let all = busy + softirq + idle + iowait + steal;
    Some(Reading { busy, softirq, all, steal, ..Reading::default() })
}

/// Throttled time of this process's cgroup, version 2 or 1, in microseconds.
fn throttled_us() -> u64 {
    let own = super::text("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let Some((_, rest)) = line.split_once(':') else { continue };
        let Some((controllers, path)) = rest.split_once(':') else { continue };
        let (root, key, unit) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "throttled_usec", 1)
        } else if controllers.split(',').any(|c| c == "cpu") {
            ("/sys/fs/cgroup/cpu", "throttled_time", 1_000)
        } else {
            continue;
        };
        let Some(stat) = super::text(format!("{root}{path}/cpu.stat")) else { continue };
        let value = stat.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
        if let Some(value) = value {
            return value / unit;
        }
    }
    0
}

/// Mean clock of the CPUs whose frequency the kernel reports, in kHz; `None` on most virtual machines.
fn clock_khz() -> Option<f64> {
    // The window's edges wait for this, so that only files that are there are opened.
    static FILES: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
        let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        let files = cpus.map(|cpu| cpu.path().join("cpufreq/scaling_cur_freq"));
        files.filter(|file| file.exists()).collect()
    });
    let clocks: Vec<f64> = FILES.iter().filter_map(|file| super::text(file)?.trim().parse().ok()).collect();
    if clocks.is_empty() {
        return None;
    }
    Some(clocks.iter().sum::<f64>() / clocks.len() as f64)
}

#[derive(Debug)]
pub struct MachineMeter {
    before: Reading,
}

fn reading() -> Reading {
    let cpus = super::text("/proc/stat").as_deref().and_then(parse_cpu_line).unwrap_or_default();
    Reading { throttled_us: throttled_us(), clock_khz: clock_khz(), ..cpus }
}

impl MachineMeter {
    pub fn begin() -> Self {
        MachineMeter { before: reading() }
    }

    /// Ends the window. The CPU clocks of client and server have to be read right after this: while requests
    /// are still in flight, a server goes on working.
    pub fn stop(&self) -> MachineSpan {
        MachineSpan { before: self.before, after: reading() }
    }

    /// As [`stop`](Self::stop), and the use of the machine; `own_cpu_ns` of it was client and server.
    pub fn end(&self, own_cpu_ns: u64, cpus: u32) -> MachineUse {
        self.stop().used(own_cpu_ns, cpus)
    }
}

#[derive(Debug)]
pub struct MachineSpan {
    before: Reading,
    after: Reading,
}

impl MachineSpan {
    /// Use of the machine in the window. `own_cpu_ns` of it was client and server; what remains is foreign.
    pub fn used(&self, own_cpu_ns: u64, cpus: u32) -> MachineUse {
        use_between(self.before, self.after, own_cpu_ns, cpus, *SOFTIRQS_ARE_APART)
    }
}

fn use_between(
    before: Reading,
    after: Reading,
    own_cpu_ns: u64,
    cpus: u32,
    softirqs_are_apart: bool,
) -> MachineUse {
    let since = |f: fn(&Reading) -> u64| f(&after).saturating_sub(f(&before)) as f64;
    let all = since(|r| r.all);
    if all == 0.0 {
        return MachineUse::default();
    }
    let per_second = status::ticks_per_second();
    // Softirq time is part of the interrupted process's CPU time, or booked to no process.
    let busy = if softirqs_are_apart { since(|r| r.busy) } else { since(|r| r.busy + r.softirq) };
    let foreign = busy - own_cpu_ns as f64 / 1e9 * per_second;
    // Ticks of one CPU in this span.
    let span = all / f64::from(cpus.max(1));
    let clock_change_percent = match (before.clock_khz, after.clock_khz) {
        (Some(before), Some(after)) => Some(100.0 * (after / before - 1.0)),
        _ => None,
    };
    MachineUse {
        steal_percent: 100.0 * since(|r| r.steal) / all,
        foreign_percent: 100.0 * foreign / span,
        softirq_percent: softirqs_are_apart.then(|| 100.0 * since(|r| r.softirq) / span),
        span_ms: 1000.0 * span / per_second,
        throttled_ms: since(|r| r.throttled_us) / 1000.0,
        clock_change_percent,
    }
}

/// Warns if the CPUs' clock changed so much that it may explain a trial's speed.
pub fn doubt_clock(machine: &MachineUse) -> Option<Warning> {
    let change = machine.clock_change_percent.filter(|change| change.abs() > MAX_CLOCK_CHANGE_PERCENT)?;
    let message =
        format!("the CPUs' clock changed by {change:+.0} % from the beginning to the end of a trial");
    Some(Warning::new(Code::ClockChange, "", message))
}

static SOFTIRQS_ARE_APART: LazyLock<bool> = LazyLock::new(|| {
    let release = super::text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let config = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let config = config.into_iter().find_map(super::text).unwrap_or_default();
    are_softirqs_apart(&config, &super::text("/proc/cmdline").unwrap_or_default())
});

/// True if the kernel was built with CONFIG_IRQ_TIME_ACCOUNTING and not booted with `tsc=noirqtime`.
/// update_rq_clock_task() then leaves softirq time out of the clock of the interrupted process.
fn are_softirqs_apart(config: &str, command_line: &str) -> bool {
    config.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y")
        && !command_line.split_ascii_whitespace().any(|word| word == "tsc=noirqtime")
}

/// Shortest time between two looks at the programs of the machine.
/// A look reads a file for each process, which takes some milliseconds on a busy machine, so it is made
/// between blocks and at most this often. Processes of one name are one program, and one that has ended
/// counts through the process that waited for it. The kernel counts in ticks of about 10 ms, so shorter
/// spans would say nothing anyway (docs/method.md §10).
const BETWEEN: Duration = Duration::from_secs(1);
/// CPU time below which a program is not kept, in percent of one CPU.
const MIN_CPU_PERCENT: f64 = 1.0;

type Look = HashMap<u32, Stat>;

fn look() -> Look {
    pids().into_iter().filter_map(|pid| Some((pid, status::read_stat(pid)?))).collect()
}

/// CPU time of a process without that of children, in ticks.
fn own_ticks(stat: &Stat) -> u64 {
    stat.user_ticks + stat.system_ticks
}

#[derive(Debug)]
pub struct Others {
    last: Look,
    looked: Instant,
    begun: Instant,
    used: BTreeMap<String, u64>,
}

impl Others {
    pub fn watch() -> Self {
        let now = Instant::now();
        Others { last: look(), looked: now, begun: now, used: BTreeMap::new() }
    }

    pub fn look_again(&mut self, roots: &[u32]) {
        if self.looked.elapsed() >= BETWEEN {
            self.add(roots);
        }
    }

    fn add(&mut self, roots: &[u32]) {
        let now = look();
        for (name, ticks) in grown(&self.last, &now, roots) {
            *self.used.entry(name).or_default() += ticks;
        }
        (self.last, self.looked) = (now, Instant::now());
    }

    pub fn end(mut self, roots: &[u32]) -> Vec<OtherProgram> {
        self.add(roots);
        let of_one_cpu = status::ticks_per_second() * self.begun.elapsed().as_secs_f64();
        let mut programs = Vec::new();
        for (name, ticks) in self.used {
            let cpu_percent = 100.0 * ticks as f64 / of_one_cpu.max(1.0);
            if cpu_percent >= MIN_CPU_PERCENT {
                programs.push(OtherProgram { name, cpu_percent });
            }
        }
        programs.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent));
        programs
    }
}

/// Ticks that each program used between two looks, by name, without `roots` and their descendants. A process that
/// began meanwhile counts whole. One that ended counts through its parent, which was given its time, less what was
/// counted before.
fn grown(before: &Look, now: &Look, roots: &[u32]) -> BTreeMap<String, u64> {
    let mut counted_of_ended: HashMap<u32, u64> = HashMap::new();
    for (pid, seen) in before {
        if !now.contains_key(pid) {
            // Its time was given to its parent, or to the next ancestor that is still there.
            let heir = lineage(before, *pid).find(|ancestor| now.contains_key(ancestor));
            if let Some(heir) = heir {
                *counted_of_ended.entry(heir).or_default() += own_ticks(seen) + seen.reaped_ticks;
            }
        }
    }
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, seen) in now {
        if lineage(now, *pid).any(|ancestor| roots.contains(&ancestor)) {
            continue;
        }
        // A pid that was used again has less than before.
        let earlier = before.get(pid).filter(|earlier| own_ticks(earlier) <= own_ticks(seen));
        let own = own_ticks(seen) - earlier.map_or(0, own_ticks);
        let reaped = seen.reaped_ticks.saturating_sub(earlier.map_or(0, |earlier| earlier.reaped_ticks));
        let reaped = reaped.saturating_sub(counted_of_ended.get(pid).copied().unwrap_or(0));
        if own + reaped > 0 {
            *used.entry(program(&seen.name).to_owned()).or_default() += own + reaped;
        }
    }
    used
}

/// A process and its ancestors.
fn lineage(look: &Look, pid: u32) -> impl Iterator<Item = u32> {
    // As many as there are processes at most: a look is not taken at one moment, so parents might form a circle.
    std::iter::successors(Some(pid), |pid| Some(look.get(pid)?.parent)).take(look.len() + 1)
}

/// Name of a program: the kernel's workers (`kworker/0:1-events`) are one.
fn program(name: &str) -> &str {
    match name.split_once('/') {
        Some((kind, _)) if kind == "kworker" || kind == "ksoftirqd" || kind == "rcu" => kind,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(before: Reading, after: Reading, own_cpu_ns: u64, cpus: u32) -> MachineUse {
        use_between(before, after, own_cpu_ns, cpus, false)
    }

    #[test]
    fn strangers_are_what_is_left_of_the_busy_time() {
        let before = parse_cpu_line("cpu  100 0 100 1000 0 0 0 10 0 0\ncpu0 1 2 3").unwrap();
        let after = parse_cpu_line("cpu  200 0 130 1049 0 0 20 11 0 0\n").unwrap();
        // 200 ticks passed on 2 CPUs, so 1 s; 150 were busy, of which 0.9 s were ours.
        let machine = between(before, after, 900_000_000, 2);
        assert!((machine.foreign_percent - 60.0).abs() < 1e-9, "{machine:?}");
        assert!((machine.steal_percent - 0.5).abs() < 1e-9);
        assert!((machine.span_ms - 1000.0).abs() < 1e-9);
        let less = between(before, after, 1_550_000_000, 2);
        assert!((less.foreign_percent + 5.0).abs() < 1e-9, "what ticks miss is told as it is: {less:?}");
        assert!(parse_cpu_line("cpu0 1 2 3 4 5 6 7 8").is_none());
        // A kernel that books softirqs separately: they do not count as foreign either.
        let apart = use_between(before, after, 900_000_000, 2, true);
        assert!((apart.foreign_percent - 40.0).abs() < 1e-9 && apart.softirq_percent == Some(20.0));
    }

    #[test]
    fn recorded_kernels_say_where_softirqs_are_booked() {
        let red_hat = "CONFIG_TICK_CPU_ACCOUNTING is not set\nCONFIG_IRQ_TIME_ACCOUNTING=y\nCONFIG_HAVE_SCHED_AVG_IRQ=y\n";
        let debian = "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n";
        assert!(are_softirqs_apart(red_hat, "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro"));
        assert!(!are_softirqs_apart(red_hat, "ro tsc=noirqtime"));
        assert!(!are_softirqs_apart(debian, "ro") && !are_softirqs_apart("", ""));
    }

    #[test]
    fn a_changed_clock_is_worth_a_warning() {
        fn change(clock_khz: Option<f64>) -> MachineUse {
            let before = Reading { all: 100, clock_khz: Some(2e6), ..Reading::default() };
            between(before, Reading { all: 200, clock_khz, ..Reading::default() }, 0, 1)
        }
        assert_eq!(change(Some(3e6)).clock_change_percent, Some(50.0));
        assert!(doubt_clock(&change(Some(3e6))).is_some());
        assert!(doubt_clock(&change(Some(2.1e6))).is_none());
        assert!(doubt_clock(&change(None)).is_none());
    }

    fn seen(name: &str, parent: u32, user_ticks: u64, reaped_ticks: u64) -> Stat {
        Stat { name: name.into(), parent, user_ticks, system_ticks: 0, reaped_ticks }
    }

    #[test]
    fn others_are_named_and_ours_are_not() {
        let before: Look = [
            (1, seen("init", 0, 5, 100)),
            (7, seen("php-fpm8.2", 1, 50, 0)),
            (8, seen("php-fpm8.2", 7, 20, 0)),
            (9, seen("make", 1, 1, 10)),
            (10, seen("gcc", 9, 0, 0)),
            (13, seen("cc1", 10, 30, 0)),
            (20, seen("samehost", 1, 9, 0)),
        ]
        .into();
        let now: Look = [
            (1, seen("init", 0, 5, 100)),
            (7, seen("php-fpm8.2", 1, 55, 0)),
            (8, seen("php-fpm8.2", 7, 36, 0)),
            // cc1 ended with 75 ticks, of which 30 were counted before; gcc, which waited for it, ended too.
            (9, seen("make", 1, 2, 85)),
            (11, seen("kworker/0:1-ev", 2, 3, 0)),
            (12, seen("kworker/1:0-ev", 2, 4, 0)),
            (20, seen("samehost", 1, 99, 0)),
            (21, seen("redis-server", 20, 500, 0)),
        ]
        .into();
        let used = grown(&before, &now, &[20]);
        let wanted = [("kworker", 7), ("make", 1 + 75 - 30), ("php-fpm8.2", 5 + 16)];
        assert_eq!(used, wanted.map(|(name, ticks)| (name.to_owned(), ticks)).into());
        assert!(grown(&now, &now, &[]).is_empty());
    }

    #[test]
    fn a_process_that_computes_is_found_by_its_name() {
        let mut others = Others::watch();
        let name = status::read_stat(std::process::id()).unwrap().name;
        let mut x = 0_u64;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            x = std::hint::black_box(x + 1);
        }
        others.add(&[]);
        let found = others.end(&[]);
        let ours = found.iter().find(|program| program.name == name);
        assert!(ours.is_some_and(|program| program.cpu_percent > 10.0), "{x} {found:?}");
    }
}
