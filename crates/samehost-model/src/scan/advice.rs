//! What a scan says beside what it lists: advice about a pair, a client and the service that it talks to over TCP; and
//! findings that are worth knowing now: of sockets, of the congestion control of connections within this machine, of
//! datagrams that a service lost. What a code of a scan means, for people.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::{FindingCode, ObstacleCode};

/// Whether a pair could use a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Possible {
    /// The service listens on a socket that the client may use.
    Now,
    /// After a setting that the obstacles name.
    AfterSetting,
    /// The service is not known here, and listens on no socket: whether it can is not known.
    Unknown,
    /// Not at all, as things stand.
    Cannot,
    /// A client program that a person or a job runs (curl, psql): no application's hop, so nothing is to switch.
    Tool,
}

/// How much an obstacle matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Nothing to do, but to know.
    Note,
    /// A setting must change first.
    Setting,
    /// In the way, and no setting helps.
    Blocks,
}

/// Something in the way of a switch, as found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Obstacle {
    /// The blocker that found it: `backlog`, `permissions`, …
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub code: ObstacleCode,
    /// How much it matters.
    pub weight: Weight,
    /// What was found, and where.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub found: Found,
    /// What to do about it.
    pub remedy: String,
}

/// One kind of pair: all connections of a client's program to one service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// The service, as a position in the list of services.
    pub service: usize,
    /// The client's name.
    pub client: String,
    /// The client's processes.
    pub client_pids: Vec<u32>,
    /// Where the client connects to now.
    pub now: String,
    /// The connections, as positions in the list of connections.
    #[serde(skip)]
    pub members: Vec<usize>,
    /// Connections of this pair now.
    pub connections: u32,
    /// How many of them belong to no process that can be seen: closed a moment ago, or another user's.
    #[serde(skip_serializing_if = "crate::report::is_zero")]
    pub unseen: u32,
    /// The socket that it could use.
    pub socket: Option<String>,
    /// Whether it could.
    pub possible: Possible,
    /// What is in the way, the heaviest first.
    pub obstacles: Vec<Obstacle>,
    /// What was measured of its traffic, with `--observe`.
    pub traffic: Option<Traffic>,
    /// What a switch would save, with `--observe`, where a checkup of this machine is stored.
    pub saving: Option<Saving>,
}

/// The traffic of a pair while it was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    /// How long it was observed.
    pub seconds: f64,
    /// Payload in both directions.
    pub bytes_per_s: f64,
    /// Segments in both directions, acknowledgements included.
    pub segments_per_s: f64,
    /// Estimated requests with their replies: the smaller number of segments with data of the two directions.
    pub round_trips_per_s: f64,
    /// By what part of it the rate may be off, for 95 %: what its scatter from step to step of the observation says, short
    /// connections included. 0 where it was not observed in steps.
    pub rate_error: f64,
    /// CPU time of the client's processes, microseconds a round trip, where it could be seen.
    pub client_cpu_us_per_request: Option<f64>,
    /// CPU time of the processes at the server's end, microseconds a round trip of all local TCP clients; too much where
    /// they also serve others.
    pub server_cpu_us_per_request: Option<f64>,
    /// Connections that carried data.
    pub busy_connections: u32,
    /// Short connections to the service that came and went: counted as they ended, or else estimated by those that the
    /// kernel keeps in TIME_WAIT for 60 s. They are those that came to this address.
    pub short_connections_per_s: f64,
    /// What they did; none where the kernel does not tell (it tells root).
    pub short: Option<ShortTraffic>,
    /// Connections that began in the service's network namespace, by the kernel's counter, and were not seen to end or to be open; 0
    /// below 5 % of those that began. The pair may have any part of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub uncounted_connections_per_s: f64,
}

/// What connections did that began and ended while it was observed, by the kernel's last word on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShortTraffic {
    /// Estimated requests with their replies, as in [`Traffic`].
    pub round_trips_per_s: f64,
    /// Payload in both directions.
    pub bytes_per_s: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

impl Traffic {
    /// Round trips of all its connections. A short connection without data counts as one.
    #[must_use]
    pub fn all_round_trips_per_s(&self) -> f64 {
        self.round_trips_per_s
            + self.short.map_or(self.short_connections_per_s, |short| short.round_trips_per_s)
    }
}

/// Two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// The lower.
    pub low: f64,
    /// The upper.
    pub high: f64,
}

/// What a switch would save, by the traffic observed and the cost that the last checkup of this machine measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Saving {
    /// CPU time of client and server together, microseconds a request.
    pub cpu_us_per_request: Range,
    /// The same over a day of this traffic, in seconds.
    pub cpu_s_per_day: Range,
    /// Time until the reply, microseconds a round trip.
    pub us_per_round_trip: Range,
    /// CPU time of client and server together, microseconds a short connection: connecting and its round trips.
    pub cpu_us_per_short_connection: Option<Range>,
    /// Time that a short connection's client waits less, microseconds.
    pub us_per_short_connection: Option<Range>,
    /// Part of the observed time that a busy connection would wait less, 0 to 1.
    pub waiting_part: Range,
    /// An upper bound is above its threshold, and it is not worth it for certain: the ranges say between what it lies.
    pub undecided: bool,
    /// Whether it is worth the trouble: one of the two ranges lies above its threshold, and neither reaches below zero.
    pub worth_it: bool,
    /// The traffic is not all counted ([`Traffic::uncounted_connections_per_s`]), so that its saving may be larger.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What kind: `full-queue`, `slow-accept`, `ports-run-out`, `datagrams-dropped`, `datagrams-over-udp`, `published-port`,
    /// `open-to-everybody`, `small-writes-wait`, `shared-files`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub code: FindingCode,
    /// What it is about, in words that stay the same while it holds: a service and its endpoint.
    pub subject: String,
    /// What was found, and where.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub found: Found,
    /// What to do about it.
    pub remedy: String,
}

/// An address of this machine whose connections begin with a congestion control that is slow there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowCongestion {
    /// The address that programs here reach each other by.
    pub address: String,
    /// What its connections begin with, such as `bbr`.
    pub congestion: String,
    /// Where that is from: the setting of the kernel, or the route.
    pub from: String,
    /// What gives new connections to this address another one. Nobody but a person runs it.
    pub cure: Vec<String>,
    /// What takes that back.
    pub undo: Vec<String>,
    /// What else to know of the route; empty when there is nothing.
    pub note: String,
}

/// What a UDP socket of a service dropped since it was made, because its receive buffer was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The service, as a position in the list of services.
    pub service: usize,
    /// The socket, as a position in the list of sockets.
    pub socket: usize,
    /// How many datagrams, modulo 2³²; often 0.
    pub datagrams: u32,
}

/// A general explanation; each text but the first is one or more sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The code, as in the listing and in JSON.
    pub code: &'static str,
    /// What errors have in them that lead to it, between bars.
    pub said: &'static str,
    /// What it is, in one sentence: a line of the list of all codes.
    pub is: &'static str,
    /// What else is to be known of it; empty where that sentence is all.
    pub more: &'static str,
    /// When it matters.
    pub matters: &'static str,
    /// What to change.
    pub change: &'static str,
    /// How to undo that.
    pub undo: &'static str,
}

// What was found, and what follows from it. Where there is little room the fact stands alone.

/// A fact, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What was found, and where.
    pub fact: String,
    /// What follows; `None` where the fact says it.
    pub follows: Option<String>,
}

impl Found {
    /// A fact with what follows from it.
    #[must_use]
    pub fn with(fact: impl Into<String>, follows: impl Into<String>) -> Self {
        Found { fact: fact.into(), follows: Some(follows.into()) }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.follows {
            Some(follows) => write!(f, "{}; {follows}", self.fact),
            None => f.write_str(&self.fact),
        }
    }
}

impl From<String> for Found {
    fn from(fact: String) -> Self {
        Found { fact, follows: None }
    }
}

impl From<&str> for Found {
    fn from(fact: &str) -> Self {
        fact.to_owned().into()
    }
}

/// In JSON it is one sentence.
impl Serialize for Found {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
