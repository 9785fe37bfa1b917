//! Bombs of a tenant: files that are small and cost much, of every format, given to `switch --dry-run` and to `verify`. Each is
//! within 5 s of CPU time and 64 MiB more than the program takes for a harmless file, understood or refused.

use std::process::Command;

use crate::support::{MALLORY, Machine, bounded};

#[path = "../../../samehost-edit/tests/bombs/constructs.rs"]
mod constructs;
#[path = "../../../samehost-edit/tests/bombs/dialects.rs"]
mod dialects;

use constructs::CONSTRUCTS;
use dialects::{DIALECTS, Dialect};

/// Bytes of a bomb.
const LENGTH: usize = 20_000;
/// Of all bombs of all formats every so many are thrown, so that each is for some formats: all of them take an hour, with
/// `SAMEHOST_BOMBS=all`.
const EVERY: usize = 12;
const CPU_MS: u64 = 5_000;
const MEMORY_KB: u64 = 64 * 1024;
/// What the kernel allows, far above what is wanted: no bomb takes the memory of the machine that is tested.
const RUN: &str = "
import os, resource, sys
pid = os.fork()
if pid == 0:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
print('took', os.waitstatus_to_exitcode(status), round(1000 * (used.ru_utime + used.ru_stime)), used.ru_maxrss)
";

/// What a command took: its status, CPU time in ms and the most memory in kB.
struct Took {
    status: i32,
    cpu_ms: u64,
    memory_kb: u64,
}

fn took(machine: &Machine, arguments: &[&str]) -> Took {
    let samehost = machine.command(arguments);
    let mut command = Command::new("python3");
    command.args(["-c", RUN]).arg(samehost.get_program()).args(samehost.get_args());
    command.envs(samehost.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = bounded(command);
    let text = ended.both();
    let line = text.lines().find_map(|line| line.strip_prefix("took ")).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [status, cpu, memory] = numbers[..] else { panic!("{line}") };
    Took { status: status as i32, cpu_ms: cpu as u64, memory_kb: memory as u64 }
}

/// What is wrong with what the bombs of a format took.
fn wrong(number: usize, dialect: &Dialect, harmless: &Took, every: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, construct) in CONSTRUCTS.iter().enumerate() {
        if !(number * 5 + place).is_multiple_of(every) {
            continue;
        }
        let machine = Machine::new();
        let (path, files) = construct.made(dialect, &machine.path("tenant"), LENGTH);
        for (file, text) in &files {
            let name = file.strip_prefix(machine.path("")).unwrap().display().to_string();
            machine.write_as(MALLORY, &name, text);
        }
        let path = path.display().to_string();
        for arguments in [vec!["switch", &path, "--dry-run"], vec!["verify", &path]] {
            let Took { status, cpu_ms, memory_kb } = took(&machine, &arguments);
            let more = memory_kb.saturating_sub(harmless.memory_kb);
            let is_status = (0..=5).contains(&status);
            if !is_status || cpu_ms > CPU_MS + harmless.cpu_ms || more > MEMORY_KB {
                wrong.push(format!(
                    "{}, {}, {}: status {status}, {cpu_ms} ms, {more} kB",
                    arguments[0], dialect.editor, construct.name
                ));
            }
        }
    }
    wrong
}

/// For a file with nothing to it.
fn harmless() -> Took {
    let machine = Machine::new();
    let path = machine.write_as(MALLORY, "tenant/.env", "DATABASE_URL=mysql://u:p@127.0.0.1:1/d\n");
    took(&machine, &["switch", &path.display().to_string(), "--dry-run"])
}

#[test]
fn no_tenants_file_takes_more_than_the_budget_at_length() {
    let harmless = harmless();
    let asked = std::env::var("SAMEHOST_BOMBS").unwrap_or_default();
    let every = if asked.is_empty() { EVERY } else { 1 };
    let mut all = Vec::new();
    for (number, dialect) in DIALECTS.iter().enumerate() {
        if asked.is_empty() || asked == "all" || asked == dialect.editor {
            all.extend(wrong(number, dialect, &harmless, every));
        }
    }
    assert!(all.is_empty(), "{} bombs:\n{}", all.len(), all.join("\n"));
}

/// Root's own file includes a tenant's: the refusal names the tenant's file and line.
#[test]
fn a_tenants_bomb_in_roots_file_is_refused_with_its_line() {
    let machine = Machine::new();
    let bomb = "Define A x\n".to_owned() + &"Define A ${A}${A}\n".repeat(30);
    let tenants = machine.write_as(MALLORY, "tenant/site.conf", bomb).display().to_string();
    let main = machine
        .write("etc/apache2/apache2.conf", format!("Include {tenants}\nProxyPass / http://127.0.0.1:1/\n"));
    let main = main.display().to_string();
    let harmless = harmless();
    for verb in [vec!["switch", &main, "--dry-run"], vec!["verify", &main]] {
        let Took { cpu_ms, memory_kb, .. } = took(&machine, &verb);
        assert!(
            cpu_ms <= CPU_MS + harmless.cpu_ms && memory_kb <= harmless.memory_kb + MEMORY_KB,
            "{cpu_ms} {memory_kb}"
        );
    }
    let said = machine.samehost(&["switch", &main, "--dry-run"]).both();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&format!("{tenants}:")) && said.contains("more memory than"), "{said}");
}
