//! Evidence: checks that take too long for tests. Each prints its expected duration and its findings. The
//! latest output is committed as `docs/evidence/NAME.txt`.

mod busy;
mod congestion;
mod dist;
mod fuzz;
mod hosts;
mod kernel;
mod run_integrity;
mod scripts;
mod verdicts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

pub(crate) use busy::{ask, compute, read_pages};

use crate::{number, servers};

struct Evidence {
    name: &'static str,
    about: &'static str,
    /// Default duration.
    length: Duration,
    run: fn(&mut Account<'_>) -> anyhow::Result<()>,
}

const ALL: &[Evidence] = &[
    Evidence {
        name: "fuzz",
        about: "bent bytes for every parser of bytes from outside: no panic, no hang, no memory beyond its limit",
        length: Duration::from_secs(3600),
        run: fuzz::fuzz,
    },
    Evidence {
        name: "checkups",
        about: "ten checkups: how many of their rows each decides, and which",
        length: Duration::from_secs(600),
        run: verdicts::checkups,
    },
    Evidence {
        name: "busy",
        about: "verdicts beside other programs: checkups, a site, equal arms, a slower arm, ratios (--only NAME)",
        length: Duration::from_secs(6000),
        run: busy::busy,
    },
    Evidence {
        name: "attribution",
        about: "100 scans of a host with five programs of four users: whose the short connections are said to be",
        length: Duration::from_secs(2500),
        run: scripts::attribution,
    },
    Evidence {
        name: "kernels",
        about: "3,000 exchanges over each family counted by Debian's 5.10, 6.1 and 6.12 in emulated machines (--only 5.10, 6.1, 6.12)",
        length: Duration::from_secs(900),
        run: kernel::counting,
    },
    Evidence {
        name: "watching",
        about: "what it costs a saturated Redis that its requests are timed, in 40 blocks, and what a socket saves by the kernel's times and by bench's (--only cost, saving)",
        length: Duration::from_secs(400),
        run: scripts::watching,
    },
    Evidence {
        name: "same",
        about: "200 reports of two arms that are the same: how many call them different",
        length: Duration::from_secs(3600),
        run: verdicts::same,
    },
    Evidence {
        name: "trial",
        about: "own trials (run --trial): 100 of two equal ways, 50 with one that takes 5 % longer, of WordPress, Node and Go beside bench, and of units with systemd itself (--only equal, slowed, wordpress, node, go, unit)",
        length: Duration::from_secs(1800),
        run: scripts::own_trials,
    },
    Evidence {
        name: "slowed",
        about: "50 runs with one arm slowed by 10 %: how many call it slower",
        length: Duration::from_secs(500),
        run: verdicts::slowed,
    },
    Evidence {
        name: "known",
        about: "10 runs with one arm slowed by 3 %, margin 0: how many call it slower",
        length: Duration::from_secs(200),
        run: verdicts::known,
    },
    Evidence {
        name: "speed",
        about: "time to a verdict, of an earlier program (--before) and of this one",
        length: Duration::from_secs(1800),
        run: verdicts::speed,
    },
    Evidence {
        name: "congestion",
        about: "large transfers over TCP with CUBIC, TCP with BBR and a Unix socket, through real servers",
        length: Duration::from_secs(600),
        run: congestion::congestion,
    },
    Evidence {
        name: "clients",
        about: "the clients in Rust that `how` knows, built and held against real servers",
        length: Duration::from_secs(300),
        run: scripts::clients,
    },
    Evidence {
        name: "build",
        about: "the program built from nothing, at an earlier commit and now, in turns; and its smallest build",
        length: Duration::from_secs(1500),
        run: dist::build,
    },
    Evidence {
        name: "tests",
        about: "how long the quick tests and all tests take; installs what they need",
        length: Duration::from_secs(2400),
        run: scripts::suites,
    },
    Evidence {
        name: "dist",
        about: "the static program: made twice, in an empty root directory, on old kernels, for aarch64, its size and start beside others', and its speed beside glibc's",
        length: Duration::from_secs(900),
        run: dist::dist,
    },
    Evidence {
        name: "packages",
        about: "packages of the static program: in fresh roots of two suites of Debian, in podman, from .crate files; the unit under a systemd",
        length: Duration::from_secs(600),
        run: kernel::packages,
    },
    Evidence {
        name: "ansible",
        about: "the Ansible collection: ansible-lint, ansible-test sanity, and its plays on four hosts made of namespaces",
        length: Duration::from_secs(360),
        run: scripts::ansible,
    },
    Evidence {
        name: "run-suites",
        about: "test suites of client libraries, over TCP and under `samehost run`: which tests pass",
        length: Duration::from_secs(480),
        run: scripts::client_suites,
    },
    Evidence {
        name: "run-integrity",
        about: "bytes, ends and errors of connections over TCP and under `samehost run`, 10 GB each way",
        length: Duration::from_secs(180),
        run: run_integrity::integrity,
    },
    Evidence {
        name: "otlp",
        about: "a current Prometheus, built from Go's proxy: receives what --otlp sends, reads what --prometheus writes; the rules and the dashboard, some time after",
        length: Duration::from_secs(900),
        run: scripts::prometheus,
    },
    Evidence {
        name: "hosts",
        about: "10,000 simulated reports of 300 hosts: how long compare and history take, how much memory, and whom they name",
        length: Duration::from_secs(300),
        run: hosts::hosts,
    },
    Evidence {
        name: "kubernetes",
        about: "a real API server, controller manager and scheduler, built from Go's proxy, with a thousand simulated nodes; the pods by podman",
        length: Duration::from_secs(1_800),
        run: scripts::kubernetes,
    },
];

struct Account<'a> {
    /// Of the repository.
    root: &'a Path,
    /// How long it may take.
    length: Duration,
    /// The part of `--only`.
    only: Option<String>,
    /// An earlier program to compare with.
    before: Option<PathBuf>,
    text: String,
}

impl Account<'_> {
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
    let missing = programs.iter().filter(|(program, _)| !servers::is_there(program));
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

/// Runs one kind of evidence, within `minutes` if given. With `only`, the stored lines of other parts are kept.
pub(crate) fn gather(
    name: &str,
    minutes: Option<u64>,
    only: Option<String>,
    before: Option<PathBuf>,
    root: &Path,
) -> anyhow::Result<()> {
    let Some(evidence) = ALL.iter().find(|kind| kind.name == name) else {
        let known: Vec<String> =
            ALL.iter().map(|kind| format!("  {:<8} {}", kind.name, kind.about)).collect();
        bail!("no evidence is called `{name}`; there are\n{}", known.join("\n"));
    };
    let length = minutes.map_or(evidence.length, |minutes| Duration::from_secs(60 * minutes));
    println!("evidence {name}: {}; takes {} minutes", evidence.about, length.as_secs() / 60);
    let part = only.as_ref().map_or_else(String::new, |only| format!(" --only '{only}'"));
    let mut account = Account { root, length, only, before, text: String::new() };
    account.tell(&format!("$ cargo xtask evidence {name} --minutes {}{part}", length.as_secs() / 60));
    let command = account.text.len();
    let found = (evidence.run)(&mut account);
    if found.is_err() && account.text.len() == command {
        // A program is missing: what is stored stays.
        return found;
    }
    let folder = root.join("docs/evidence");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(format!("{name}.txt"));
    let text = match &account.only {
        Some(only) => merged(&std::fs::read_to_string(&file).unwrap_or_default(), &account.text, only),
        None => account.text,
    };
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
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
