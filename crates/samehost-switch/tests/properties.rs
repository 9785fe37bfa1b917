//! What holds for every editor, whatever the bytes: on the files of the corpus, torn and spliced. Nothing panics, a
//! connection that is where it should be is not edited, an edit says exactly what was asked (`propose` reads it again),
//! and the way back leads to where it came from.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "corpus/case.rs"]
#[allow(dead_code, reason = "the corpus needs more of it")]
mod case;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use case::Case;
use proptest::prelude::*;
use samehost_model::Endpoint;
use samehost_switch::{
    EDITORS, Editor, Files, Goal, Move, Overlay, Proposal, ProposalError, Setting, propose,
};

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

/// An editor, a file of its corpus, and those beside it.
type Torn = (&'static dyn Editor, PathBuf, BTreeMap<PathBuf, Vec<u8>>);

/// One tear of a file.
#[derive(Clone, Debug)]
enum Tear {
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    Repeat(usize, usize),
    Cut(usize),
}

fn tears() -> impl Strategy<Value = Vec<Tear>> {
    let snippet = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..6),
        proptest::sample::select(vec![
            "'",
            "\"",
            "\\",
            "{",
            "}",
            "(",
            ")",
            ";",
            "#",
            "//",
            "/*",
            "*/",
            "?>",
            "<?php ",
            "<<<X\n",
            "\n",
            "\r",
            "\0",
            "$x",
            "=",
            ":",
            ",",
            "include ",
            "if ",
            "\u{feff}",
            "[",
            "]",
            "unix:",
            "localhost",
            "é",
            " ",
            "\t",
        ])
        .prop_map(|text: &str| text.as_bytes().to_vec()),
    ];
    let tear = prop_oneof![
        (any::<usize>(), 0..40_usize).prop_map(|(at, length)| Tear::Remove(at, length)),
        (any::<usize>(), snippet).prop_map(|(at, bytes)| Tear::Insert(at, bytes)),
        (any::<usize>(), 0..80_usize).prop_map(|(at, length)| Tear::Repeat(at, length)),
        any::<usize>().prop_map(Tear::Cut),
    ];
    proptest::collection::vec(tear, 0..4)
}

fn tear(mut text: Vec<u8>, tears: &[Tear]) -> Vec<u8> {
    for tear in tears {
        let within = |at: &usize| at % (text.len() + 1);
        match tear {
            Tear::Remove(at, length) => {
                let at = within(at);
                text.drain(at..(at + length).min(text.len()));
            }
            Tear::Insert(at, bytes) => {
                let at = within(at);
                text.splice(at..at, bytes.iter().copied());
            }
            Tear::Repeat(at, length) => {
                let at = within(at);
                let again = text[at..(at + length).min(text.len())].to_vec();
                text.splice(at..at, again);
            }
            Tear::Cut(at) => text.truncate(within(at)),
        }
    }
    text
}

/// A proposal; none where the editor refuses. Anything else is the editor's mistake.
fn proposal(
    editor: &dyn Editor,
    file: &Path,
    files: &dyn Files,
    setting: &Setting,
    to: &Endpoint,
) -> Option<Vec<Proposal>> {
    let moves = [Move { setting: setting.clone(), goal: Goal::client(to.clone()) }];
    match propose(editor, file, files, &moves) {
        Ok(proposals) => Some(proposals),
        Err(ProposalError::Refused(_)) => None,
        Err(error) => panic!("{}: {} to {to}: {error}", editor.name(), setting.name),
    }
}

/// Holds an editor to its promises on some files.
fn hold(editor: &dyn Editor, file: &Path, files: &Memory) {
    let _ = editor.recognises(file, &files.read(file).unwrap_or_default());
    let Ok(reading) = editor.read(file, files) else { return };
    for setting in &reading.settings {
        let stays = Goal { endpoint: setting.endpoint.clone(), stays: true, access: None, backlog: None };
        if let Ok(edits) = editor.edit(file, files, setting, &stays) {
            assert!(edits.is_empty(), "{}: {setting:?}: {edits:?}", editor.name());
        }
        for to in ["unix:/run/samehost/.s.PGSQL.5432", "tcp:127.0.0.1:4711"] {
            let to: Endpoint = to.parse().unwrap();
            let Some(there) = proposal(editor, file, files, setting, &to) else { continue };
            let changed = there.into_iter().map(|one| (one.file, one.after)).collect();
            let moved = Overlay::new(files, changed);
            let after = editor.read(file, &moved).unwrap();
            let same = |one: &&Setting| one.name == setting.name && one.endpoint == to;
            let Some(now) = after.settings.iter().find(same) else { continue };
            proposal(editor, file, &moved, now, &setting.endpoint);
        }
    }
}

fn files(case: &Case, root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let unpacked = case.materialise();
    let mut files = BTreeMap::new();
    for name in case.before.keys() {
        let text = std::fs::read(unpacked.path().join(name)).unwrap();
        files.insert(root.join(name), text);
    }
    files
}

#[test]
fn editors_keep_their_promises_on_torn_files() {
    let root = Path::new("/samehost");
    let mut all: Vec<Torn> = Vec::new();
    for editor in EDITORS {
        for case in Case::all(editor.name()) {
            all.push((*editor, case.file(root), files(&case, root)));
        }
    }
    let strategy = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), tears());
    let config = ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((which, part, tears) in strategy)| {
        let (editor, file, mut files) = which.get(&all).clone();
        let names: Vec<PathBuf> = files.keys().cloned().collect();
        let torn = part.get(&names);
        let text = files.remove(torn).unwrap();
        files.insert(torn.clone(), tear(text, &tears));
        hold(editor, &file, &Memory(files));
    });
}

#[test]
fn editors_survive_any_bytes() {
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(text in proptest::collection::vec(any::<u8>(), 0..400))| {
        for editor in EDITORS {
            let name = editor.names().first().copied().unwrap_or("configuration");
            let file = Path::new("/samehost").join(name);
            hold(*editor, &file, &Memory(BTreeMap::from([(file.clone(), text.clone())])));
        }
    });
}
