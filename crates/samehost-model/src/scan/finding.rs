//! What a scan found of the sockets that is worth knowing now, beside the advice on pairs.

use serde::Serialize;

use super::found::Found;

/// Every kind of finding.
pub const FINDING_CODES: [&str; 9] = [
    "full-queue",
    "slow-accept",
    "ports-run-out",
    "datagrams-dropped",
    "datagrams-over-udp",
    "published-port",
    "open-to-everybody",
    "small-writes-wait",
    "shared-files",
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
