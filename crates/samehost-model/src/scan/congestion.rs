//! Congestion control of connections within this machine, as found by a scan.

use serde::Serialize;

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
