//! Arms: a point of the matrix (connections, rate, size, …) and one transport at that point.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::transport::Transport;

/// Where client and server run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Wherever the kernel puts them.
    #[default]
    Free,
    /// Both pinned to one core.
    SameCore,
    /// Client and server pinned to different cores.
    CrossCore,
}

impl Placement {
    /// All placements, the default first.
    pub const ALL: [Placement; 3] = [Placement::Free, Placement::SameCore, Placement::CrossCore];

    /// Name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placement::Free => "free",
            Placement::SameCore => "same-core",
            Placement::CrossCore => "cross-core",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Placement::ALL.map(Placement::name).join(", ");
        let found = Placement::ALL.into_iter().find(|placement| placement.name() == name);
        found.ok_or_else(|| format!("unknown placement `{name}`; known are {known}"))
    }
}

/// One point of the measured matrix: everything but the transport. Arms of the same point are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Connections open at the same time.
    pub connections: u32,
    /// Open loop: requests due per second. Absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Bytes of a message or reply, for the workloads that have a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Where client and server run.
    #[serde(default)]
    pub placement: Placement,
    /// The workload's own parameters that differ between points.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// One of the things compared: a transport at a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Arm {
    /// Unique in the report, such as `unix` or `unix/c64/128B`.
    pub id: String,
    /// What tables call it: the transport's name, or the name given with `--arm`.
    pub name: String,
    /// How bytes travel.
    pub transport: Transport,
    /// Where the server was reached in the first trial; a private server moves with each restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Whether bytes are encrypted on the way.
    pub tls: bool,
    /// Open loop: operations per second that it did in a closed loop, measured first. Percentages are of the
    /// baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_per_s: Option<f64>,
    /// The point of the matrix it belongs to.
    #[serde(flatten)]
    pub point: Point,
}
