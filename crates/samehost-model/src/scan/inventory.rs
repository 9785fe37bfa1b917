//! What a scan found, in names that stay the same from one scan to the next: without process numbers, and with what is
//! needed to compare. `samehost.inventory/1`; `samehost scan --save` stores it.

use serde::{Deserialize, Serialize};

/// Name and version of the JSON format.
pub const INVENTORY_SCHEMA: &str = "samehost.inventory/1";

/// A program, by names that it keeps when it is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// The name of its process; none where that was not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its systemd unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What runs its container: `docker`, `podman`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Whether it is in another network namespace than the scan was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_network: bool,
}

/// A service, by names that it keeps when it is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceName {
    /// What it is, as the registry of known services calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A name to show: the known service's, else the process's.
    pub name: String,
}

/// A service with its listening stream sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listening {
    /// The service.
    pub service: ServiceName,
    /// The program that serves.
    pub program: Program,
    /// Where it listens: `tcp:127.0.0.1:3306`, `unix:/run/mysqld/mysqld.sock`, in ascending order.
    pub endpoints: Vec<String>,
}

/// A client program and the service that it is connected to, with the endpoint between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hop {
    /// The client.
    pub client: Program,
    /// The service.
    pub service: ServiceName,
    /// Where the client connects to: `tcp:127.0.0.1:3306`, `unix:/run/mysqld/mysqld.sock`, `abstract:name`.
    pub endpoint: String,
    /// Connections when it was scanned.
    pub connections: u32,
}

/// Name and version of the JSON of what is not as expected.
pub const EXPECTATION_SCHEMA: &str = "samehost.expectation/1";

/// A hop over another transport than a file expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unexpected {
    /// The hop.
    #[serde(flatten)]
    pub hop: Hop,
    /// The transport that is expected: `unix` or `tcp`.
    pub expected: &'static str,
}

/// A finding, as far as it stays the same while it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Noted {
    /// What kind: `full-queue`, `open-to-everybody`, …
    pub code: String,
    /// What it is about, without numbers that change.
    pub subject: String,
    /// What was found, and where.
    pub found: String,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inventory {
    /// Always [`INVENTORY_SCHEMA`].
    pub schema: String,
    /// Version of samehost.
    pub samehost_version: String,
    /// When it was scanned, RFC 3339, UTC; none of a file of `samehost scan --json`.
    #[serde(default)]
    pub taken_at: Option<String>,
    /// Whether it was scanned as root, who sees the processes of all users.
    pub as_root: bool,
    /// Services that listen on stream sockets.
    pub services: Vec<Listening>,
    /// Who talks to whom.
    pub hops: Vec<Hop>,
    /// What was worth knowing.
    pub findings: Vec<Noted>,
}

impl Hop {
    /// Whether it goes over TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        is_tcp(&self.endpoint)
    }
}

/// Whether an endpoint in words is one of TCP.
#[must_use]
pub fn is_tcp(endpoint: &str) -> bool {
    endpoint.starts_with("tcp")
}
