//! Bombs: files that are small and cost much, of every format. Each is read and edited in a process of its own, which says what
//! that took: at most 5 s of CPU time and 64 MiB for a file of 1 MB, whether it is understood or refused.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::print_stdout, reason = "the process that reads a bomb says so what that took")]

mod constructs;
mod dialects;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use constructs::CONSTRUCTS;
use dialects::DIALECTS;
use samehost_edit::{EDITORS, Editor, Files, Goal, Move, editor, leads, propose, recognise};

/// Which bomb, in the process that reads it.
const ASKED: &str = "SAMEHOST_BOMB";
/// What a file of up to 1 MB may take.
const CPU_MS: u64 = 5_000;
const MEMORY_KB: u64 = 64 * 1024;

/// Files in memory.
struct Memory {
    files: BTreeMap<PathBuf, Vec<u8>>,
    folders: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        self.folders.get(directory).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Memory {
    fn new(files: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for path in files.keys() {
            for (one, above) in path.ancestors().zip(path.ancestors().skip(1)) {
                let entries = folders.entry(above.to_owned()).or_default();
                if entries.last().is_none_or(|last| last != one) {
                    entries.push(one.to_owned());
                }
            }
        }
        Memory { files, folders }
    }
}

/// Everything that a plan asks of an editor about a file, for its first connection and for all that lead where it leads.
fn ask(path: &Path, files: &Memory) -> String {
    let text = &files.files[path];
    let Some(editor) = recognise(path, text) else { return "not recognised".into() };
    let _ = leads(&String::from_utf8_lossy(text));
    let reading = match editor.read(path, files) {
        Ok(reading) => reading,
        Err(refusal) => return format!("refused: {refusal}"),
    };
    let _ = editor.check(path, files);
    let Some(first) = reading.settings.first() else { return format!("{} refused", reading.refused.len()) };
    let _ = editor.same_site(path, files, first);
    let _ = editor.in_container(path, files, first);
    let goal = Goal::client("unix:/run/samehost/.s.PGSQL.5432".parse().unwrap());
    let _ = editor.transition(path, files, first, &goal);
    let to = |setting: &samehost_edit::Setting| Move { setting: setting.clone(), goal: goal.clone() };
    let mut said = format!("{} settings, {} refused", reading.settings.len(), reading.refused.len());
    let last = reading.settings.last().unwrap();
    let same = reading.settings.iter().filter(|one| one.endpoint == first.endpoint).map(to).collect();
    for moves in [vec![to(last)], same] {
        match propose(editor, path, files, &moves) {
            Ok(proposals) => said += &format!("; {} moved in {} files", moves.len(), proposals.len()),
            Err(error) => said += &format!("; {} moves: {error}", moves.len()),
        }
    }
    said
}

/// What this thread had of a CPU, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A line of /proc/self/status, in kB.
fn memory_kb(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Does nothing unless it is the process that reads a bomb.
#[test]
fn the_process_that_reads_a_bomb() {
    let Ok(asked) = std::env::var(ASKED) else { return };
    let numbers: Vec<usize> = asked.split(' ').map(|number| number.parse().unwrap()).collect();
    let [dialect, construct, length] = numbers[..] else { panic!("{asked}") };
    let (path, files) = CONSTRUCTS[construct].made(&DIALECTS[dialect], Path::new("/samehost"), length);
    let files = Memory::new(files);
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (memory, cpu) = (memory_kb("VmRSS"), cpu_ns());
    let said: String = ask(&path, &files).chars().take(300).collect();
    let taken = (cpu_ns() - cpu) / 1_000_000;
    println!("\ntook {taken} {} {}", memory_kb("VmHWM").saturating_sub(memory), said.replace('\n', " "));
}

/// Reads one in a process of its own, and says what is wrong with what that took.
fn wrong(dialect: usize, construct: usize, length: usize) -> Option<String> {
    let name = format!("{}, {}", DIALECTS[dialect].editor, CONSTRUCTS[construct].name);
    // Far above what it may take, so that a bomb that goes off takes this machine's memory no more than once.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 4000000; ulimit -t 30; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_reads_a_bomb", "--nocapture", "--test-threads=1"])
        .env(ASKED, format!("{dialect} {construct} {length}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(took) = text.lines().find_map(|line| line.strip_prefix("took ")) else {
        return Some(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
    };
    let mut words = took.splitn(3, ' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (cpu, memory) = (number(), number());
    if std::env::var_os("SAMEHOST_BOMBS_SHOWN").is_some() {
        println!("{cpu:>6} ms {memory:>7} kB  {name}: {}", words.next().unwrap());
    }
    let is_within = cpu <= CPU_MS && memory <= MEMORY_KB;
    (!is_within).then(|| format!("{name}: {cpu} ms, {memory} kB"))
}

fn hold(length: usize) {
    let rows = DIALECTS
        .iter()
        .enumerate()
        .flat_map(|(dialect, _)| (0..CONSTRUCTS.len()).map(move |one| (dialect, one)));
    let only = std::env::var("SAMEHOST_BOMBS").unwrap_or_default();
    let all: Vec<(usize, usize)> = rows
        .filter(|(dialect, construct)| {
            format!("{}, {}", DIALECTS[*dialect].editor, CONSTRUCTS[*construct].name).contains(&only)
        })
        .collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let own = all.iter().skip(worker).step_by(workers);
                scope.spawn(move || {
                    own.filter_map(|(dialect, construct)| wrong(*dialect, *construct, length))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} of {} bombs:\n{}", failed.len(), all.len(), failed.join("\n"));
}

#[test]
fn every_bomb_of_every_format_is_within_the_budget() {
    hold(length(20_000));
}

#[test]
fn every_long_bomb_of_every_format_is_within_the_budget_at_length() {
    hold(length(200_000));
}

/// Bytes of a bomb; `SAMEHOST_BOMBS_LENGTH=1000000` takes a quarter of an hour.
fn length(usual: usize) -> usize {
    std::env::var("SAMEHOST_BOMBS_LENGTH").map_or(usual, |length| length.parse().unwrap())
}

/// Long files that are sound are read, and one of their connections, or a thousand that lead to one server, are moved.
#[test]
fn long_files_that_are_sound_pass() {
    let upstreams = |number: usize| format!("upstream u{number} {{ server 127.0.0.1:{number}; }}\n");
    let site = |number: usize| {
        format!("server {{ server_name s{number}; location / {{ fastcgi_pass 127.0.0.1:9000; }} }}\n")
    };
    let backend =
        |number: usize| format!("backend b{number}\n  server s 127.0.0.1:{}\n", number % 60_000 + 1);
    let login = |number: usize| format!("host db{number} u{number} 127.0.0.1/32 md5\n");
    let nginx = |lines: String| format!("events {{}}\nhttp {{\n{lines}}}\n");
    let many = |count: usize, line: &dyn Fn(usize) -> String| (1..=count).map(line).collect::<String>();
    for (name, file, text, settings) in [
        ("nginx", "/etc/nginx/nginx.conf", nginx(many(20_000, &upstreams)), 20_000),
        ("nginx", "/etc/nginx/nginx.conf", nginx(many(1_000, &site)), 1_000),
        ("haproxy", "/etc/haproxy/haproxy.cfg", many(30_000, &backend), 30_000),
        ("pg-hba", "/etc/postgresql/15/main/pg_hba.conf", many(20_000, &login), 20_000),
        ("redis", "/etc/redis/redis.conf", "save 900 1\n".repeat(90_000) + "bind 127.0.0.1\nport 6379\n", 1),
    ] {
        let path = PathBuf::from(file);
        let files = Memory::new([(path.clone(), text.into_bytes())].into());
        let editor = editor(name).unwrap();
        let reading = editor.read(&path, &files).unwrap();
        assert_eq!(reading.settings.len(), settings, "{name}");
        let first = &reading.settings[0];
        let socket = if name == "pg-hba" { "/var/run/postgresql/.s.PGSQL.5432" } else { "/run/a.sock" };
        let goal = Goal { stays: name != "nginx", ..Goal::client(format!("unix:{socket}").parse().unwrap()) };
        let same = reading.settings.iter().filter(|one| one.endpoint == first.endpoint).take(1_000);
        let moves: Vec<Move> = same.map(|one| Move { setting: one.clone(), goal: goal.clone() }).collect();
        let proposals =
            propose(editor, &path, &files, &moves).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(proposals.len(), 1, "{name}");
    }
}

#[test]
fn every_editor_is_bombed() {
    let named: HashSet<&str> = DIALECTS.iter().map(|dialect| dialect.editor).collect();
    let editors: HashSet<&str> = EDITORS.iter().map(|editor| editor.name()).collect();
    assert_eq!(named, editors);
    for dialect in DIALECTS {
        let (path, files) = CONSTRUCTS[0].made(dialect, Path::new("/samehost"), 1_000);
        let found = recognise(&path, &files[&path]).map(Editor::name);
        assert_eq!(found, Some(dialect.editor));
        assert!(editor(dialect.editor).is_some());
    }
}
