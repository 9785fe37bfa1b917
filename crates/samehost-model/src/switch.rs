//! What `samehost switch` would do or did, as plain data. The serde names are the JSON `samehost.switch/1`.
//! No field ever contains a password.

use serde::{Deserialize, Serialize};

use crate::codes::ObstacleCode;
use crate::scan::{ExchangeMode, NoTime, Standing, Unmeasured};

/// Name and version of the JSON format.
pub const SWITCH_SCHEMA: &str = "samehost.switch/1";

/// Outcome of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchOutcome {
    /// Already as requested.
    Nothing,
    /// What is understood is as requested already; other values lead to services here and stay. Nothing was changed.
    Left,
    /// An obstacle prevents it; nothing was changed.
    Refused,
    /// Dry run; nothing was changed.
    Planned,
    /// Not confirmed at the prompt; nothing was changed.
    Declined,
    /// Applied and verified.
    Committed,
    /// Started and rolled back.
    RolledBack,
    /// Started, and neither in force nor back as a whole by what the store says: `reason` and `left` say how it stands.
    Unfinished,
}

/// A connection that gets another endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchHop {
    /// Name in its file: `DB_HOST`.
    pub name: String,
    /// Position in its file, `file:line`.
    pub place: String,
    /// Positions of other lines that name the same server, and move with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Endpoint before the switch.
    pub from: String,
    /// Endpoint after the switch.
    pub to: String,
    /// Service at that endpoint, with its pid.
    pub service: Option<String>,
    /// Client programs with their users.
    pub clients: Vec<String>,
    /// Result of a login over the new transport, as the application's user.
    pub login: Option<String>,
    /// How far the change is proved; none before it is made, and of a server's own listener.
    pub standing: Option<Standing>,
    /// Processes of the application that connected over the new transport after the change.
    pub seen_new: Vec<String>,
    /// Processes of the application that connected at the old place after the change.
    pub seen_old: Vec<String>,
    /// Whether the application takes the change when somebody starts it again, and was asked for no page: until then, that it is at
    /// the old place contradicts nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub awaits_restart: bool,
}

/// An obstacle or a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchObstacle {
    /// Code of the blocker or check.
    pub code: ObstacleCode,
    /// Whether it prevents the switch.
    pub bars: bool,
    /// What was found, and where.
    pub found: String,
    /// What to do about it.
    pub remedy: String,
}

/// A removed or added line, with secrets redacted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DiffLine {
    /// `-` or `+`.
    pub sign: char,
    /// Line number in the file before (`-`) or after (`+`).
    pub line: u32,
    /// The line's text.
    pub text: String,
}

/// Changes of one file: the changed lines alone, without context.
/// Configurations hold secrets and things that are nobody's business. A unified diff with context was
/// rejected for that reason, although a plan then shows less than `diff -u` would. Passwords, logins in
/// URLs and values that are named like secrets are masked in the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// Path of the file.
    pub path: String,
    /// Whether the file is created.
    pub made: bool,
    /// Whether the file is removed.
    pub removed: bool,
    /// The changed lines.
    pub lines: Vec<DiffLine>,
}

/// A stage of the transaction, after which everything serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchStep {
    /// Purpose of the stage.
    pub title: String,
    /// Files that change, in order.
    pub files: Vec<FileDiff>,
    /// Commands that check the syntax of the files.
    pub checks: Vec<String>,
    /// How running programs reload them.
    pub reloads: Vec<String>,
}

/// A stored switch, and what would be done with it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredSwitch {
    /// Id of the switch.
    pub id: String,
    /// What it did, in one line.
    pub summary: String,
    /// What would be done with it: `it would be put back`.
    pub would: String,
    /// Changes, in order.
    pub steps: Vec<SwitchStep>,
    /// What would stay as it is, and why.
    pub left: Vec<String>,
}

/// What became of the switches of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchHealth {
    /// How many switches are in each state; every state is named.
    pub states: Vec<(String, u32)>,
    /// Switches in force of which a file is not as they left it and does not say the same.
    pub drifted: u32,
    /// Switches in force whose application was seen at the new place, and not at the old one.
    pub in_use: u32,
    /// Switches in force whose application was seen at the old place, and not at the new one.
    pub not_followed: u32,
    /// The services from which switches in force moved clients away from TCP.
    pub left_tcp: Vec<LeftTcp>,
}

/// A service from which clients were moved away from TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftTcp {
    /// What it is, as the registry of known services calls it.
    pub service: Option<&'static str>,
    /// Client programs that are connected to it over TCP.
    pub clients: u32,
}

/// A planned or finished switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwitchReport {
    /// Name and version of this format.
    pub schema: &'static str,
    /// Targets on the command line.
    pub targets: Vec<String>,
    /// The requested transport.
    pub to: &'static str,
    /// Connections that move.
    pub hops: Vec<SwitchHop>,
    /// Stages that would be or were applied, in order.
    pub steps: Vec<SwitchStep>,
    /// Stages left for `switch finish`, because somebody still uses what they would remove.
    pub later: Vec<SwitchStep>,
    /// Obstacles and notes about pairs.
    pub obstacles: Vec<SwitchObstacle>,
    /// Other notes.
    pub notes: Vec<String>,
    /// Outcome.
    pub outcome: SwitchOutcome,
    /// Why it was put back.
    pub reason: Option<String>,
    /// What could not be put back.
    pub left: Vec<String>,
    /// Id of the transaction, for `switch undo`.
    pub id: Option<String>,
    /// How far the change is proved: the least of its connections. None before it is made.
    pub standing: Option<Standing>,
    /// Observations after the switch by kernel and server.
    pub proofs: Vec<String>,
    /// Clients that still use TCP after the switch.
    pub still_tcp: Vec<String>,
    /// The old addresses that a `switch finish` is to close; none of another switch.
    pub closes: Vec<String>,
    /// Old addresses at which nobody was seen to listen any more, after their servers left them.
    pub closed: Vec<String>,
    /// Old addresses that servers were to leave, each with who was seen to listen there all the same.
    pub still_open: Vec<String>,
    /// Time of automatic rollback unless the switch is confirmed, RFC 3339, UTC.
    pub confirm_until: Option<String>,
    /// Whether it stays in force at that time where the page that was named stays as it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_by_page: bool,
    /// How long the page that was named took before the switch, and takes with it; none without a page that works.
    pub page_times: Option<PageTimesCompared>,
}

impl SwitchReport {
    /// Who of the application was seen at an old address after the change.
    #[must_use]
    pub fn seen_at_old(&self) -> Vec<&str> {
        self.hops.iter().flat_map(|hop| &hop.seen_old).map(String::as_str).collect()
    }

    /// Whether what the application or its server was seen to do contradicts the switch: what the headline and the exit status are
    /// computed from. Without a page the status was 0 below "still connects at the old address".
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        let goes_on = self.hops.iter().any(|hop| !hop.seen_old.is_empty() && !hop.awaits_restart);
        goes_on || !self.closes.is_empty() && !self.still_open.is_empty()
    }
}

/// One look at how long a page takes: from the connect to the last byte, one request after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageTimes {
    /// When it began: RFC 3339, UTC.
    pub at: String,
    /// Requests that were timed.
    pub requests: u32,
    /// The median of all, in milliseconds.
    pub median_ms: f64,
    /// The median of each block of successive requests, in milliseconds, in their order.
    pub blocks_ms: Vec<f64>,
}

/// How long a page took before a switch and since, which is one look each and no turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageTimesCompared {
    /// The look before; none where it has no times.
    pub before: Option<PageTimes>,
    /// The look afterwards; none where it has no times.
    pub after: Option<PageTimes>,
    /// After ÷ before; none where they are not compared.
    pub ratio: Option<OwnRatio>,
    /// From the beginning of one look to that of the other, in seconds.
    pub apart_s: Option<f64>,
    /// Why they are not compared, in half a sentence.
    pub not_compared: Option<String>,
}

/// One look at the exchanges of an application with a service over one transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnTimes {
    /// When it began: RFC 3339, UTC.
    pub at: String,
    /// How long it was.
    pub seconds: f64,
    /// How it is known when a request begins; never [`ExchangeMode::Arrivals`].
    pub mode: ExchangeMode,
    /// Connections that were looked at.
    pub connections: u32,
    /// Exchanges.
    pub exchanges_per_s: f64,
    /// Bytes that the application sent for each.
    pub bytes_out: f64,
    /// Bytes that it was sent back for each.
    pub bytes_back: f64,
    /// Microseconds until the first piece of a reply was read: the mean of all.
    pub mean_us: f64,
    /// Their median, within 3 %.
    pub p50_us: f64,
    /// Their 99th percentile, within 3 %; none of fewer than 1,000.
    pub p99_us: Option<f64>,
    /// Both ways of an exchange, in microseconds on average, where they are known.
    pub hop_us: Option<f64>,
    /// The mean of each block of time that had an exchange, in microseconds, in their order.
    pub blocks_us: Vec<f64>,
}

/// Why a look has no times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NoOwnTimes {
    /// Nothing was measured.
    Unmeasured(Unmeasured),
    /// What was measured is not a time.
    NoTime(NoTime),
    /// Of the application.
    Traffic(NoTraffic),
}

/// What was missing of an application's traffic, or to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoTraffic {
    /// Nobody has a connection there that lasts.
    NoConnection,
    /// Others have, and no process that is known as the application.
    OthersOnly,
    /// Nothing was exchanged on its connections.
    NoExchange,
    /// The kernel does not tell when a request begins, and system calls were not to be stamped.
    NoBeginning,
    /// It comes after the most connections of configurations that one look takes, 32.
    BeyondTheMost,
}

/// The looks before and after a switch at one connection of a configuration, and what they say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnTimesCompared {
    /// The connection's name in its file: `DB_HOST`.
    pub name: String,
    /// Endpoint before the switch.
    pub from: String,
    /// Endpoint after the switch.
    pub to: String,
    /// The look before; none where it has no times.
    pub before: Option<OwnTimes>,
    /// The look afterwards; none where it has no times, or where there is nothing to compare it with.
    pub after: Option<OwnTimes>,
    /// After ÷ before; none where they are not compared.
    pub ratio: Option<OwnRatio>,
    /// From the beginning of one look to that of the other, in seconds.
    pub apart_s: Option<f64>,
    /// Why they are not compared.
    pub not_compared: Option<NotCompared>,
}

/// How much longer the typical block took after a switch than before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OwnRatio {
    /// After ÷ before.
    pub ratio: f64,
    /// Bounds of its 95 % interval, from the scatter of blocks inside both looks; what differs between hours is in neither.
    pub low: f64,
    /// See [`OwnRatio::low`].
    pub high: f64,
}

/// Why two looks are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "because", content = "why", rename_all = "snake_case")]
pub enum NotCompared {
    /// The look before has no times.
    Before(NoOwnTimes),
    /// The look afterwards has none.
    After(NoOwnTimes),
    /// They were stamped in different ways.
    OtherStamps,
    /// Too few blocks of time had an exchange.
    FewBlocks,
}
