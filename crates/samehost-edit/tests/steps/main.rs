//! What it costs to read and to edit a configuration grows with its lines, and not with their square: for every editor, by counts
//! of instructions.
//!
//! A budget that the editors count themselves would see only the loops that count. Time is another program's as well. So the
//! instructions are counted that the processor executes (`valgrind --tool=cachegrind`): a new loop over all lines in a loop over
//! all lines is seen wherever it stands, in a parser written in C or in std as well. perf's counter of the same is not there in
//! most virtual machines.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod shapes;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_edit::{EDITORS, Editor, Files, Goal, Move, editor, propose, recognise};
use shapes::{SHAPES, Shape};

/// Which editor, and how many lines, in the process that is counted.
const ASKED: &str = "SAMEHOST_STEPS";
/// Lines of the longest files, where another number is wanted: 10,000 take ten times as long.
const UP_TO: &str = "SAMEHOST_STEPS_UP_TO";
/// The usual number: 1,000 take 280 s on two busy CPUs, which a suite of half an hour has not. What is quadratic has 30 times
/// the steps a line of a file of 13 lines; a loop that costs 1/250 of a line's usual work for each line before is seen.
const LONGEST: usize = 400;
/// How much more a line of the longest file may cost than one of the shorter ones.
const FACTOR: f64 = 3.0;

/// Files in memory.
struct Memory(BTreeMap<PathBuf, Vec<u8>>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }
}

/// Everything that a plan asks of an editor: whose file it is, what is in it, what checks it, and one edit.
fn ask(shape: &Shape, lines: usize) {
    let (path, text) = (shape.path(), shape.text(lines));
    assert_eq!(recognise(&path, &text).map(Editor::name), Some(shape.editor), "{}", path.display());
    let editor = editor(shape.editor).unwrap();
    let files = Memory([(path.clone(), text)].into());
    let Ok(reading) = editor.read(&path, &files) else { return };
    let _ = editor.check(&path, &files);
    let Some(setting) = reading.settings.last() else { return };
    let goal = Goal::client("unix:/run/samehost/.s.PGSQL.5432".parse().unwrap());
    let _ = propose(editor, &path, &files, &[Move { setting: setting.clone(), goal }]);
}

/// Instructions of a process that asks an editor about its files with this many lines; with none, those of its start.
fn instructions(editor: &str, lines: usize) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_counted", "--nocapture", "--test-threads=1"])
        .env(ASKED, format!("{editor} {lines}"))
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; cargo xtask test installs it"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{editor} {lines}: {said}");
    let counted = said.lines().find_map(|line| line.split_once("refs:")).expect("a count").1;
    counted.trim().replace(',', "").parse().unwrap()
}

/// Does nothing unless it is the process that is counted.
#[test]
fn the_process_that_is_counted() {
    let Ok(asked) = std::env::var(ASKED) else { return };
    let (editor, lines) = asked.split_once(' ').unwrap();
    let lines: usize = lines.parse().unwrap();
    for shape in SHAPES.iter().filter(|shape| shape.editor == editor && lines > 0) {
        ask(shape, lines);
    }
}

#[test]
fn steps_grow_with_the_lines_of_every_editor_with_programs() {
    let names: Vec<&str> = EDITORS.iter().map(|editor| editor.name()).collect();
    let two = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let longest = std::env::var(UP_TO).map_or(LONGEST, |lines| lines.parse().unwrap());
    let sizes = [longest / 30, longest / 3, longest];
    let check = |name: &&str| {
        let none = instructions(name, 0);
        let [few, some, many] = sizes.map(|lines| instructions(name, lines));
        // Per line: of the shortest file, and of what the longest has more than the middle one.
        let first = (few - none) as f64 / sizes[0] as f64;
        let ratio = (many - some) as f64 / (sizes[2] - sizes[1]) as f64 / first;
        (ratio > FACTOR).then(|| format!("{name}: {ratio:.1} ({none} {few} {some} {many})"))
    };
    let slow: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..two)
            .map(|worker| {
                let own = names.iter().skip(worker).step_by(two);
                scope.spawn(move || own.filter_map(check).collect::<Vec<String>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(slow.is_empty(), "a line of a long file costs more than one of a short file: {slow:#?}");
}

#[test]
fn every_editor_has_files_that_grow() {
    for editor in EDITORS {
        let own: Vec<&Shape> = SHAPES.iter().filter(|shape| shape.editor == editor.name()).collect();
        assert!(own.len() >= 2, "{} has {}", editor.name(), own.len());
        for shape in own {
            let lines = shape.text(1_000).iter().filter(|byte| **byte == b'\n').count();
            assert!((1_000..1_100).contains(&lines), "{}: {lines}", shape.path().display());
        }
    }
}
