//! What `samehost switch` would do or did, as plain data. Its serde names are the JSON `samehost.switch/1`. No field ever
//! holds a password.

use serde::Serialize;

/// The name of the JSON format.
pub const SWITCH_SCHEMA: &str = "samehost.switch/1";

/// How a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchOutcome {
    /// Nothing to do: it is so already.
    Nothing,
    /// Something is in the way; nothing was touched.
    Refused,
    /// What would be done; nothing was touched.
    Planned,
    /// Nobody said yes; nothing was touched.
    Declined,
    /// Done and proved.
    Committed,
    /// Begun, and put back.
    RolledBack,
}

/// A connection that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchHop {
    /// What it is called in its file: `DB_HOST`.
    pub name: String,
    /// Where it is written, `file:line`.
    pub place: String,
    /// What is spoken.
    pub protocol: &'static str,
    /// Where it goes now.
    pub from: String,
    /// Where it goes afterwards.
    pub to: String,
    /// The service there, with its process number.
    pub service: Option<String>,
    /// The programs that connect, with their users.
    pub clients: Vec<String>,
    /// What a login over the new transport showed, as the application.
    pub login: Option<String>,
}

/// Something in the way, or to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchObstacle {
    /// Which blocker or check.
    pub code: String,
    /// Whether it bars the switch.
    pub bars: bool,
    /// What was found, and where.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

/// A line that goes or comes; passwords are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffLine {
    /// `-` or `+`.
    pub sign: char,
    /// Its number, in the file before (`-`) or after (`+`).
    pub line: u32,
    /// Its text.
    pub text: String,
}

/// What changes in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// The file.
    pub path: String,
    /// Whether it is made.
    pub made: bool,
    /// Whether it is removed.
    pub removed: bool,
    /// The changed lines.
    pub lines: Vec<DiffLine>,
}

/// A step of the transaction: everything serves after each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchStep {
    /// What it is for.
    pub title: String,
    /// The files that change, in order.
    pub files: Vec<FileDiff>,
    /// Commands that say whether the files are well formed.
    pub checks: Vec<String>,
    /// What makes running programs take them.
    pub reloads: Vec<String>,
}

/// A switch that was made, and what would be done with it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredSwitch {
    /// Its name.
    pub id: String,
    /// One line of what it did.
    pub summary: String,
    /// What would become of it: `it would be put back`.
    pub would: String,
    /// What changes, in order.
    pub steps: Vec<SwitchStep>,
    /// What is left as it is, and why.
    pub left: Vec<String>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchReport {
    /// The name of this format.
    pub schema: &'static str,
    /// What was asked about.
    pub targets: Vec<String>,
    /// The transport to move to.
    pub to: &'static str,
    /// The connections that move.
    pub hops: Vec<SwitchHop>,
    /// What would be done or was done, in order.
    pub steps: Vec<SwitchStep>,
    /// What is left for `--finish`, since somebody still uses what it would take away.
    pub later: Vec<SwitchStep>,
    /// What is in the way, or to know.
    pub obstacles: Vec<SwitchObstacle>,
    /// What else to know.
    pub notes: Vec<String>,
    /// How it stands.
    pub outcome: SwitchOutcome,
    /// The name of the transaction, for `--undo`.
    pub id: Option<String>,
    /// What was seen afterwards: kernel and server.
    pub proofs: Vec<String>,
    /// Who still uses TCP afterwards.
    pub still_tcp: Vec<String>,
    /// Until when it takes itself back unless it is confirmed, RFC 3339, UTC.
    pub confirm_until: Option<String>,
}
