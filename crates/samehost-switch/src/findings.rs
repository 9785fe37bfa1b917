//! What a look at the machine finds beside its result: obstacles for the user to remove, and notes; and how files and
//! lines are named in them. What leaves this crate may quote servers, tools, processes and files, so it is redacted here: known secrets are
//! the passwords of the configurations that were read, and other values in them where secrets usually are.

use std::path::Path;

use samehost_edit::{Files, Refusal};
use samehost_model::redact::secrets_in;
use samehost_model::switch::{SwitchObstacle, SwitchReport};
use samehost_model::{ObstacleCode, Redactor, Secret};

/// Obstacles and notes, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) obstacles: Vec<SwitchObstacle>,
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// Whether an obstacle prevents the switch.
    pub(crate) fn is_barred(&self) -> bool {
        self.obstacles.iter().any(|obstacle| obstacle.bars)
    }

    /// Adds obstacles.
    pub(crate) fn add(&mut self, obstacles: impl IntoIterator<Item = SwitchObstacle>) {
        for obstacle in obstacles {
            if !self.obstacles.contains(&obstacle) {
                self.obstacles.push(obstacle);
            }
        }
    }

    /// Adds notes.
    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Adds what was found elsewhere.
    pub(crate) fn merge(&mut self, other: Findings) {
        self.add(other.obstacles);
        self.note(other.notes);
    }
}

/// An obstacle that prevents the switch.
pub(crate) fn bar(code: ObstacleCode, found: impl Into<String>, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { code, bars: true, found: found.into(), remedy: remedy.into() }
}

/// A path for people.
#[must_use]
pub(crate) fn shown(path: &Path) -> String {
    samehost_model::scan::Address::Path(path.to_owned()).to_string()
}

/// Path and line, as in compiler messages.
#[must_use]
pub(crate) fn place(path: &Path, line: u32) -> String {
    format!("{}:{line}", shown(path))
}

/// A refusal in one line; the manual remedy is shown beside it.
pub(crate) fn in_one_line(refusal: &Refusal) -> String {
    let line = if refusal.line > 0 { format!(":{}", refusal.line) } else { String::new() };
    format!("{}{line}: {}", refusal.file.display(), refusal.reason)
}

/// Values in a file where secrets usually are. A program that complains about the file may quote them.
pub(crate) fn in_file(files: &dyn Files, file: &Path) -> Vec<Secret> {
    files.read(file).map_or(Vec::new(), |text| secrets_in(&String::from_utf8_lossy(&text)))
}

/// A report without secrets.
pub(crate) fn redacted(mut report: SwitchReport, redactor: &Redactor) -> SwitchReport {
    for target in &mut report.targets {
        *target = redactor.word(target);
    }
    let mut messages: Vec<&mut String> = Vec::new();
    for hop in &mut report.hops {
        messages.extend([&mut hop.name, &mut hop.place, &mut hop.from, &mut hop.to]);
        messages.extend(hop.service.iter_mut().chain(&mut hop.clients).chain(&mut hop.login));
    }
    for step in report.steps.iter_mut().chain(&mut report.later) {
        messages.extend(step.files.iter_mut().map(|file| &mut file.path));
        for command in step.checks.iter_mut().chain(&mut step.reloads) {
            *command = redactor.command(command);
        }
    }
    for obstacle in &mut report.obstacles {
        messages.extend([&mut obstacle.found, &mut obstacle.remedy]);
    }
    messages.extend(report.notes.iter_mut().chain(&mut report.proofs).chain(&mut report.still_tcp));
    for message in messages {
        *message = redactor.message(message);
    }
    report
}
