//! What holds for every editor, whatever the bytes: on the files of the corpus, torn and spliced. Nothing panics, a
//! connection that is where it should be is not edited, an edit says exactly what was asked (`propose` reads it again),
//! and the way back leads to where it came from.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "corpus/case.rs"]
#[allow(dead_code, reason = "the corpus needs more of it")]
mod case;
#[path = "corpus/tear.rs"]
mod tear;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use case::Case;
use proptest::prelude::*;
use samehost_edit::{EDITORS, Editor, Files, Goal, Move, Overlay, Proposal, ProposalError, Setting, propose};
use samehost_model::Endpoint;
use samehost_services::Kind;
use tear::{drawn, tear, tears};

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

/// A proposal; none where the editor refuses. Anything else is the editor's mistake.
fn proposal(editor: &dyn Editor, file: &Path, files: &dyn Files, moves: &[Move]) -> Option<Vec<Proposal>> {
    match propose(editor, file, files, moves) {
        Ok(proposals) => Some(proposals),
        Err(ProposalError::Refused(_)) => None,
        Err(error) => panic!("{}: {moves:?}: {error}", editor.name()),
    }
}

/// The moves that take a setting to an endpoint: of itself, or of the whole row where servers number their sockets, as
/// the planner moves them. None where the row has no place there.
fn moves(editor: &dyn Editor, row: &[Setting], setting: &Setting, to: &Endpoint) -> Option<Vec<Move>> {
    let client = |setting: &Setting, to: Endpoint| Move { setting: setting.clone(), goal: Goal::client(to) };
    if own_name(editor, setting).is_none() {
        return Some(vec![client(setting, to.clone())]);
    }
    let place = |number: usize, one: &Setting| match to {
        Endpoint::Unix(path) => {
            Some(client(one, Endpoint::Unix(path.with_file_name(own_name(editor, one)?))))
        }
        Endpoint::Tcp { host, port } => {
            let port = port.checked_add(u16::try_from(number).ok()?)?;
            Some(client(one, Endpoint::Tcp { host: host.clone(), port }))
        }
        _ => None,
    };
    row.iter().enumerate().map(|(number, one)| place(number, one)).collect()
}

/// What a PostgreSQL calls its socket at the port of a setting.
fn own_name(editor: &dyn Editor, setting: &Setting) -> Option<String> {
    match setting.endpoint {
        Endpoint::Tcp { port, .. } if editor.name() == "postgresql" => {
            Kind::Postgres.descriptor().name_by_port(port)
        }
        _ => None,
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
            let Some(there) = moves(editor, &reading.settings, setting, &to) else { continue };
            let Some(proposals) = proposal(editor, file, files, &there) else { continue };
            let changed = proposals.into_iter().map(|one| (one.file, one.after)).collect();
            let moved = Overlay::new(files, changed);
            let after = editor.read(file, &moved).unwrap();
            let back: Option<Vec<Move>> = there
                .iter()
                .map(|one| {
                    let (name, to) = (&one.setting.name, &one.goal.endpoint);
                    let now = after.settings.iter().find(|now| now.name == *name && now.endpoint == *to)?;
                    Some(Move { setting: now.clone(), goal: Goal::client(one.setting.endpoint.clone()) })
                })
                .collect();
            let Some(back) = back else { continue };
            proposal(editor, file, &moved, &back);
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
    let config = drawn(3000);
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
    let config = drawn(500);
    proptest!(config, |(text in proptest::collection::vec(any::<u8>(), 0..400))| {
        for editor in EDITORS {
            let name = editor.names().first().copied().unwrap_or("configuration");
            let file = Path::new("/samehost").join(name);
            hold(*editor, &file, &Memory(BTreeMap::from([(file.clone(), text.clone())])));
        }
    });
}
