//! What a look at the machine finds beside its result: obstacles for the user to remove, and notes; and how files and lines
//! are named in them.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::path::Path;

use samehost_edit::Refusal;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};

/// Obstacles and notes, each once and in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) obstacles: Vec<SwitchObstacle>,
    pub(crate) notes: Vec<String>,
    obstacle_places: Places,
    note_places: Places,
}

/// Where things with a hash stand in a list that only grows. A file may have a hundred thousand lines that are not understood, and
/// to look for each among all was what a plan spent its time with.
#[derive(Clone, Debug, Default)]
struct Places {
    known: usize,
    by_hash: HashMap<u64, Vec<usize>>,
}

impl Places {
    /// Whether a list has something already; what was added to the list by others is noted first.
    fn have<T: PartialEq, K: Hash>(&mut self, list: &[T], one: &T, key: impl Fn(&T) -> K) -> bool {
        if list.len() < self.known {
            *self = Places::default();
        }
        let hash = |one: &T| BuildHasherDefault::<DefaultHasher>::default().hash_one(key(one));
        for (place, known) in list.iter().enumerate().skip(self.known) {
            self.by_hash.entry(hash(known)).or_default().push(place);
        }
        self.known = list.len();
        let places = self.by_hash.get(&hash(one)).map_or(&[][..], Vec::as_slice);
        places.iter().any(|place| list.get(*place) == Some(one))
    }
}

impl Findings {
    pub(crate) fn new(obstacles: Vec<SwitchObstacle>, notes: Vec<String>) -> Self {
        Findings { obstacles, notes, ..Findings::default() }
    }

    pub(crate) fn is_barred(&self) -> bool {
        self.obstacles.iter().any(|obstacle| obstacle.bars)
    }

    pub(crate) fn add(&mut self, obstacles: impl IntoIterator<Item = SwitchObstacle>) {
        for obstacle in obstacles {
            // Whether it bars may change afterwards.
            if !self.obstacle_places.have(&self.obstacles, &obstacle, |one| one.found.clone()) {
                self.obstacles.push(obstacle);
            }
        }
    }

    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.note_places.have(&self.notes, &note, String::clone) {
                self.notes.push(note);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Findings) {
        self.add(other.obstacles);
        self.note(other.notes);
    }
}

/// An obstacle that prevents the switch; [`SwitchObstacle::bars`] says so.
pub(crate) fn bar(code: ObstacleCode, found: impl Into<String>, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { code, bars: true, found: found.into(), remedy: remedy.into() }
}

pub(crate) fn shown(path: &Path) -> String {
    samehost_model::scan::Address::Path(path.to_owned()).to_string()
}

/// Path and line, as in compiler messages.
pub(crate) fn place(path: &Path, line: u32) -> String {
    format!("{}:{line}", shown(path))
}

/// A refusal in one line; the manual remedy is shown beside it.
pub(crate) fn in_one_line(refusal: &Refusal) -> String {
    let line = if refusal.line > 0 { format!(":{}", refusal.line) } else { String::new() };
    format!("{}{line}: {}", refusal.file.display(), refusal.reason)
}

/// What closes a place that a switch left open; the newest such switch needs no name.
#[must_use]
pub fn stays_open(from: &Endpoint, id: Option<&str>) -> String {
    let named = id.map_or(String::new(), |id| format!(" {id}"));
    format!("{from} stays open; when nobody uses it any more: samehost switch finish{named}")
}
