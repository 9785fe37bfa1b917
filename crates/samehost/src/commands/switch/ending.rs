//! How an undo, a confirmation or a recovery is told: by what the store and the disk say afterwards ([`Settled`]), in words, as JSON
//! and as the exit status.

use std::fs;

use samehost_switch::{files_in_words, left_undone, not_back};
use samehost_transaction::{RolledBack, Settled, State, Store, TransactionError, Version, settled};
use serde_json::{Value, json};

use super::look;
use crate::exit::Ending;
use crate::output;

/// What stands before a line about a switch.
pub(super) const BELOW: &str = "    ";

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Undo,
    Confirm,
    Recover,
}

/// What is told of a switch at the end of an act. Its state is read when this is made.
pub(super) struct Told {
    act: Act,
    id: String,
    now: Result<Settled, TransactionError>,
    back: Option<RolledBack>,
    error: Option<TransactionError>,
    /// Services that nobody reaches over their socket now.
    unreachable: Vec<String>,
    /// What is wrong at the old places, where the switch is back.
    not_back: Vec<String>,
}

impl Told {
    /// Asks the store how the switch stands, whatever the act says of itself.
    pub(super) fn after(act: Act, store: &Store, id: &str) -> Self {
        let now = settled(store, id);
        let not_back = match now.as_ref().map(Settled::state) {
            Ok(Some(State::Undone | State::RolledBack)) => not_back(store, id),
            _ => Vec::new(),
        };
        Told { act, id: id.to_owned(), now, back: None, error: None, unreachable: Vec::new(), not_back }
    }

    /// With what a way back says of files and reloads.
    pub(super) fn with_back(self, back: RolledBack) -> Self {
        Told { back: Some(back), ..self }
    }

    pub(super) fn with_error(self, error: TransactionError) -> Self {
        Told { error: Some(error), ..self }
    }

    pub(super) fn with_unreachable(self) -> Self {
        Told { unreachable: without_a_socket(), ..self }
    }

    fn state(&self) -> Option<State> {
        self.now.as_ref().ok().and_then(Settled::state)
    }

    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self.state(), Some(State::Damaged | State::Newer))
    }

    fn is_unfinished(&self) -> bool {
        self.state() == Some(State::Unfinished)
    }

    /// The error of an act after which the switch is as it was before: nothing was touched.
    pub(super) fn or_refused(self) -> anyhow::Result<Self> {
        let is_touched = self.now.is_err() || self.is_unfinished();
        match self.error {
            Some(error) if !is_touched && !self.is_as_wanted() => Err(error.into()),
            error => Ok(Told { error, ..self }),
        }
    }

    fn is_as_wanted(&self) -> bool {
        match self.act {
            Act::Undo => self.state() == Some(State::Undone),
            Act::Confirm => self.state() == Some(State::Committed),
            Act::Recover => !matches!(self.state(), Some(State::Unfinished | State::Damaged | State::Newer)),
        }
    }

    fn how(&self) -> String {
        let now = match &self.now {
            Ok(now) => now,
            Err(error) => return format!("how it stands is not known: {error}"),
        };
        let text = match (now.state(), self.act) {
            (Some(State::Undone), _) if !self.not_back.is_empty() => {
                return format!("undone, but {}", self.not_back.join("; "));
            }
            (Some(State::Undone), _) => "undone",
            (Some(State::RolledBack), _) if !self.not_back.is_empty() => {
                return format!("put back, but {}", self.not_back.join("; "));
            }
            (Some(State::RolledBack), _) => "put back",
            (Some(State::Committed), Act::Confirm) => "confirmed: it stays in force",
            (Some(State::Committed), Act::Recover) => "finished: it had been proved",
            (Some(State::Awaiting), Act::Recover) => {
                "finished: it had been proved, and waits for its confirmation"
            }
            (Some(State::Committed | State::Awaiting | State::PutBack), _) => "it is in force as before",
            (Some(State::Running), _) => "left alone: it is at work",
            (None, Act::Recover) => "forgotten: it had touched nothing",
            (None, _) => "the store does not know it any more",
            (Some(State::Damaged | State::Newer), _) => {
                return format!("left as it is: {}", now.damage().unwrap_or("its journal cannot be read"));
            }
            (Some(State::Unfinished), _) => {
                return format!("unfinished: {}; to end it: samehost switch recover", files_in_words(now));
            }
        };
        text.to_owned()
    }

    /// Files that were compared and are as before the switch, where it is back or was to be.
    fn files_back(&self) -> Vec<String> {
        let mut back = Vec::new();
        if let (Ok(now), Some(State::Undone | State::RolledBack | State::Unfinished)) =
            (&self.now, self.state())
        {
            for file in now.files().iter().filter(|file| *file.version() == Version::Before) {
                back.push(file.path().display().to_string());
            }
        }
        back
    }

    /// What is not as it was, and why.
    fn left(&self) -> Vec<String> {
        let mut left = self.back.as_ref().map(left_undone).unwrap_or_default();
        let is_back = matches!(self.state(), Some(State::Undone | State::RolledBack | State::Unfinished));
        if let (Ok(now), true) = (&self.now, is_back) {
            for file in now.files() {
                let path = file.path().display();
                match file.version() {
                    Version::Before => {}
                    Version::TextBefore(words) => {
                        left.push(format!("{path} has its text as it was; {}: that stays", words.join("; ")));
                    }
                    Version::Switched => left.push(format!("{path} is as the switch wrote it")),
                    Version::Other(why) if !left.iter().any(|line| line.starts_with(&path.to_string())) => {
                        left.push(format!("{path} is not as it was: {why}"));
                    }
                    Version::Other(_) => {}
                }
            }
        }
        left.extend(self.error.as_ref().map(ToString::to_string));
        left
    }

    fn as_json(&self) -> Value {
        let state = self.state().map(|state| state.to_string().replace(' ', "_"));
        json!({
            "id": self.id,
            "ending": self.how(),
            "state": state,
            "files": self.files_back(),
            "left": self.left(),
            "unreachable": self.unreachable,
            "not_back": self.not_back,
        })
    }

    fn ending(&self) -> Ending {
        let is_whole = self.back.as_ref().is_none_or(RolledBack::is_complete);
        match self.state() {
            _ if self.now.is_err() => Ending::Unfinished,
            Some(State::Unfinished) => Ending::Unfinished,
            _ if !self.is_as_wanted() || !is_whole || !self.not_back.is_empty() => Ending::Finding,
            _ => Ending::Done,
        }
    }
}

/// Prints how each switch stands; the worst decides the status.
pub(super) fn tell(all: &[Told], is_json: bool) -> anyhow::Result<Ending> {
    let mut out = Vec::new();
    if is_json {
        out = output::as_json(&all.iter().map(Told::as_json).collect::<Vec<_>>())?;
    }
    for one in all.iter().filter(|_| !is_json) {
        output::add_line(&mut out, "", &format!("{}: {}", one.id, one.how()));
        for file in one.files_back() {
            let is_there = fs::symlink_metadata(&file).is_ok();
            let how = match is_there {
                true => format!("{file} is as it was"),
                false => format!("{file} was made by the switch, and is removed"),
            };
            output::add_line(&mut out, BELOW, &how);
        }
        for line in one.left().iter().chain(&one.unreachable) {
            output::add_line(&mut out, BELOW, line);
        }
    }
    output::print(&out)?;
    let mut worst = Ending::Done;
    for one in all {
        worst = worse(worst, one.ending());
    }
    Ok(worst)
}

/// The ending of two switches together: what has to be done first.
pub(super) fn worse(one: Ending, other: Ending) -> Ending {
    let order = [Ending::Done, Ending::Left, Ending::Finding, Ending::RolledBack, Ending::Unfinished];
    // What is none of them, an interrupt, outweighs all.
    let rank = |ending: &Ending| order.iter().position(|one| one == ending).unwrap_or(order.len());
    std::cmp::max_by_key(one, other, rank)
}

/// Services that lost their socket, to this switch or before it: a server that takes a path removes what it finds there.
/// Only their own restart brings it back.
fn without_a_socket() -> Vec<String> {
    let Ok(scan) = look() else { return Vec::new() };
    let mut lines = Vec::new();
    for lost in samehost_scan::unreachable(&scan) {
        let restart = match lost.unit {
            Some(unit) => format!(": systemctl restart {unit}"),
            None => String::new(),
        };
        lines.push(format!(
            "{} listens at {}, and its file has gone: nobody can connect to it there. Restart it{restart}",
            lost.service,
            lost.path.display()
        ));
    }
    lines
}
