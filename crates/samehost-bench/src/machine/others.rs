//! Which other programs use the CPUs while we measure, by name. It names them and judges nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use samehost_model::OtherProgram;
use samehost_system::proc::{pids, stat};

/// Time between two looks: a look reads a file for each process, some milliseconds on a busy machine.
const BETWEEN: Duration = Duration::from_secs(1);
/// CPU time below which a program is not kept, in percent of one CPU.
const LEAST_PERCENT: f64 = 1.0;

/// CPU time of a process so far, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    parent: u32,
    own: u64,
    /// Of children that ended and were waited for.
    reaped: u64,
}

/// The processes at one moment, by pid.
type Look = HashMap<u32, Seen>;

fn look() -> Look {
    let mut look = Look::new();
    for pid in pids() {
        let Some(stat) = stat::read(pid) else { continue };
        let own = stat.user_ticks + stat.system_ticks;
        look.insert(pid, Seen { name: stat.name, parent: stat.parent, own, reaped: stat.reaped_ticks });
    }
    look
}

/// Adds up what other programs use, from look to look.
#[derive(Debug)]
pub struct Others {
    last: Look,
    looked: Instant,
    begun: Instant,
    /// Ticks by name.
    used: BTreeMap<String, u64>,
}

impl Others {
    #[must_use]
    pub fn watch() -> Self {
        let now = Instant::now();
        Others { last: look(), looked: now, begun: now, used: BTreeMap::new() }
    }

    /// Looks again if the last time was a second ago; between trials. `roots` and their descendants are ours.
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

    /// The programs that used a CPU, the busiest first.
    #[must_use]
    pub fn end(mut self, roots: &[u32]) -> Vec<OtherProgram> {
        self.add(roots);
        let of_one_cpu = stat::ticks_per_second() * self.begun.elapsed().as_secs_f64();
        let mut programs = Vec::new();
        for (name, ticks) in self.used {
            let cpu_percent = 100.0 * ticks as f64 / of_one_cpu.max(1.0);
            if cpu_percent >= LEAST_PERCENT {
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
            let heir = surviving_ancestor(before, now, *pid);
            *counted_of_ended.entry(heir).or_default() += seen.own + seen.reaped;
        }
    }
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, seen) in now {
        if is_below(now, *pid, roots) {
            continue;
        }
        // A pid that was used again has less than before.
        let earlier = before.get(pid).filter(|earlier| earlier.own <= seen.own);
        let own = seen.own - earlier.map_or(0, |earlier| earlier.own);
        let reaped = seen.reaped.saturating_sub(earlier.map_or(0, |earlier| earlier.reaped));
        let reaped = reaped.saturating_sub(counted_of_ended.get(pid).copied().unwrap_or(0));
        if own + reaped > 0 {
            *used.entry(program(&seen.name).to_owned()).or_default() += own + reaped;
        }
    }
    used
}

/// The process that was given the time of one that ended: its parent, or the next ancestor that is still there.
fn surviving_ancestor(before: &Look, now: &Look, pid: u32) -> u32 {
    let mut at = pid;
    for _ in 0..before.len() {
        let Some(seen) = before.get(&at) else { break };
        at = seen.parent;
        if now.contains_key(&at) {
            break;
        }
    }
    at
}

/// Whether a process is one of `roots` or descends from one.
fn is_below(look: &Look, pid: u32, roots: &[u32]) -> bool {
    let mut at = pid;
    // As many steps as there are processes: a look is not taken at one moment, so parents might form a circle.
    for _ in 0..look.len() {
        if roots.contains(&at) {
            return true;
        }
        let Some(seen) = look.get(&at) else { return false };
        at = seen.parent;
    }
    false
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

    fn seen(name: &str, parent: u32, own: u64, reaped: u64) -> Seen {
        Seen { name: name.into(), parent, own, reaped }
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
        let name = stat::read(std::process::id()).unwrap().name;
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
