//! What a scan found that is worth knowing now, beside the advice on pairs: of sockets, of the congestion control of connections
//! within this machine, of datagrams that a service lost; and what a code of a scan means, for people.

use std::fmt;

use serde::{Serialize, Serializer};

/// Every kind of finding.
pub const FINDING_CODES: [&str; 9] = [
    "full-queue", "slow-accept", "ports-run-out", "datagrams-dropped", "datagrams-over-udp",
    "published-port", "open-to-everybody", "small-writes-wait", "shared-files",
];

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What kind: `full-queue`, `slow-accept`, `ports-run-out`, `datagrams-dropped`, `datagrams-over-udp`, `published-port`,
    /// `open-to-everybody`, `small-writes-wait`, `shared-files`.
    pub code: &'static str,
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
