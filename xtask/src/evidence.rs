//! Evidence: checks that take too long for tests. Each prints its expected duration and its findings. The
//! latest output is committed as `docs/evidence/NAME.txt`.

mod congestion;
mod fuzz;
mod kernel;
mod scripts;
mod verdicts;

use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use serde_json::Value;

use crate::process::find_program;
use crate::{debug_program, dist, name_and_about, number, release_program, root};
use scripts::of_tests;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Evidence {
    /// bent bytes for every parser of bytes from outside: no panic, no hang, no memory beyond its limit
    Fuzz,
    /// ten checkups: how many of their rows each decides, and which
    Checkups,
    /// 100 scans of a host with five programs of four users: whose the short connections are said to be
    Attribution,
    /// 3,000 exchanges over each family counted by Debian's 5.10, 6.1 and 6.12 in emulated machines (--only 5.10, 6.1, 6.12)
    Kernels,
    /// what it costs a saturated Redis that its requests are timed, in 40 blocks, and what a socket saves by the kernel's times
    /// and by bench's; the memory of scan --every and of top beside many short connections (--only cost, saving, memory)
    Watching,
    /// 200 reports of two arms that are the same: how many call them different
    Same,
    /// own trials (run --trial): 100 of two equal ways, 50 with one that takes 5 % longer, of WordPress, Node and Go beside
    /// bench, and of units with systemd itself (--only equal, slowed, wordpress, node, go, unit)
    Trial,
    /// switches ended by SIGKILL at 100 random moments, and 500 random system calls that fail: what is there, and what was said
    /// (--only kill, faults)
    Ends,
    /// the first screen of each verb in other distributions' roots, and where less is allowed (--only 'Debian 11', …)
    Userlands,
    /// large transfers over TCP with CUBIC, TCP with BBR and a Unix socket, through real servers
    Congestion,
    /// what reaches a real server of the words of each client that `how` knows: transport, database, user, options
    Clients,
    /// files as Debian ships them: which addresses of local services are named, missed and named falsely
    Shipped,
    /// the Ansible collection: ansible-lint, ansible-test sanity, and its plays on four hosts made of namespaces
    Ansible,
    /// test suites of client libraries, over TCP and under `samehost run`: which tests pass
    RunSuites,
    /// bytes, ends and errors of connections over TCP and under `samehost run`, 10 GB each way
    RunIntegrity,
    /// a real API server, controller manager and scheduler, built from Go's proxy, with a thousand simulated nodes; the pods by
    /// podman
    Kubernetes,
}

type Gather = fn(&mut Account) -> anyhow::Result<()>;

impl Evidence {
    /// What gathers it, and how long that takes where nobody limits it, in seconds.
    fn plan(self) -> (Gather, u64) {
        match self {
            Evidence::Fuzz => (fuzz::fuzz, 3600),
            Evidence::Checkups => (verdicts::checkups, 600),
            Evidence::Attribution => (scripts::attribution, 2500),
            Evidence::Kernels => (kernel::counting, 900),
            Evidence::Watching => (scripts::watching, 400),
            Evidence::Same => (verdicts::same, 3600),
            Evidence::Trial => (|account| of_tests(account, "trials", &release_program()?), 1800),
            // The debug program has faults for what comes before a recovery.
            Evidence::Ends => (|account| of_tests(account, "ends", &debug_program()?), 3600),
            Evidence::Userlands => (|account| of_tests(account, "userlands", &dist::program()?), 900),
            Evidence::Congestion => (congestion::congestion, 600),
            Evidence::Clients => (scripts::clients, 900),
            Evidence::Shipped => (scripts::shipped, 600),
            Evidence::Ansible => (scripts::ansible, 360),
            Evidence::RunSuites => (|account| of_tests(account, "clients", &debug_program()?), 480),
            Evidence::RunIntegrity => (scripts::integrity, 180),
            Evidence::Kubernetes => (scripts::kubernetes, 1_800),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which
    name: Evidence,
    /// How long it may take, in minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Only what is called that; the other lines that are kept stay
    #[arg(long)]
    only: Option<String>,
}

struct Account {
    length: Duration,
    only: Option<String>,
    text: String,
}

impl Account {
    fn tell(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }

    /// Fails if the only part to run is none of these.
    fn has_part(&self, parts: &[&str]) -> anyhow::Result<()> {
        let is_known = parts.iter().any(|part| self.wants(part));
        ensure!(is_known, "no part is called that; there are {}", parts.join(", "));
        Ok(())
    }
}

/// Programs that have to be on this machine, by name or by path, and their packages in Debian.
fn need(programs: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing = programs.iter().filter(|(program, _)| find_program(program).is_none());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    ensure!(missing.is_empty(), "this needs: apt-get install {}", missing.join(" "));
    Ok(())
}

fn in_words(found: &Value) -> String {
    let (ratio, low, high) = (number(found, "ratio"), number(found, "ci_low"), number(found, "ci_high"));
    format!("{ratio:.4} ({low:.4}\u{2013}{high:.4}), {} blocks", found["blocks"])
}

fn is_decided(found: &Value) -> bool {
    found["verdict"] != "inconclusive"
}

/// Runs one kind of evidence, within the minutes if given. With `--only`, the stored lines of other parts are kept.
pub(crate) fn gather(options: Options) -> anyhow::Result<()> {
    let Options { name, minutes, only } = options;
    let (run, seconds) = name.plan();
    let length = Duration::from_secs(minutes.map_or(seconds, |minutes| 60 * minutes));
    let (name, about) = name_and_about(&name);
    println!("evidence {name}: {about}; takes {} minutes", length.as_secs() / 60);
    let part = only.as_ref().map_or_else(String::new, |only| format!(" --only '{only}'"));
    let mut account = Account { length, only, text: String::new() };
    account.tell(&format!("$ cargo xtask evidence {name} --minutes {}{part}", length.as_secs() / 60));
    let command = account.text.len();
    let found = run(&mut account);
    if found.is_err() && account.text.len() == command {
        // A program is missing: what is stored stays.
        return found;
    }
    let file = root().join(format!("docs/evidence/{name}.txt"));
    let text = match &account.only {
        Some(only) => merged(&std::fs::read_to_string(&file).unwrap_or_default(), &account.text, only),
        None => account.text,
    };
    crate::write(&file, text)?;
    found
}

/// The stored text, with the command and the lines of one part replaced.
fn merged(kept: &str, new: &str, only: &str) -> String {
    let start = format!("{only} | ");
    // A part may have several findings, and a finding more lines, which are indented.
    let mut lines: Vec<&str> = kept.lines().collect();
    let place = lines.iter().position(|line| line.starts_with(&start)).unwrap_or(lines.len());
    let mut end = place;
    while end < lines.len() && (lines[end].starts_with(&start) || end > place && lines[end].starts_with(' '))
    {
        end += 1;
    }
    let mut found = Vec::new();
    let mut is_its = false;
    for line in new.lines() {
        is_its = line.starts_with(&start) || is_its && line.starts_with(' ');
        if is_its {
            found.push(line);
        }
    }
    lines.splice(place..end, found);
    let commands = lines.iter().take_while(|line| line.starts_with("$ ")).count();
    let is_new = |line: &&str| line.starts_with("$ ") && !kept.lines().any(|old| old == *line);
    lines.splice(commands..commands, new.lines().filter(is_new));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_part_replaces_its_own_lines() {
        let kept = "$ all\nname | found\na | nothing\nb | a panic\n at line 3\nb | a hang\nA sentence.\nc | nothing\n";
        let merged = super::merged(kept, "$ all --only 'b'\nname | found\nb | a hang\n at line 4\n", "b");
        let lines = ["$ all", "$ all --only 'b'", "name | found", "a | nothing"];
        assert_eq!(
            merged.lines().collect::<Vec<_>>(),
            [&lines[..], &["b | a hang", " at line 4", "A sentence.", "c | nothing"]].concat()
        );
    }
}
