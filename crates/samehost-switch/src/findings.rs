//! What a look at the machine finds beside its result: obstacles for the user to remove, and notes; and how files and lines
//! are named in them.

use std::path::Path;

use samehost_edit::Refusal;
use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;

/// Obstacles and notes, each once and in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) obstacles: Vec<SwitchObstacle>,
    pub(crate) notes: Vec<String>,
}

impl Findings {
    pub(crate) fn is_barred(&self) -> bool {
        self.obstacles.iter().any(|obstacle| obstacle.bars)
    }

    pub(crate) fn add(&mut self, obstacles: impl IntoIterator<Item = SwitchObstacle>) {
        for obstacle in obstacles {
            if !self.obstacles.contains(&obstacle) {
                self.obstacles.push(obstacle);
            }
        }
    }

    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.notes.contains(&note) {
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
