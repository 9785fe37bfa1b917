//! What a scan found, in names that stay the same from one scan to the next: without process numbers, and with what is
//! needed to compare (`samehost.inventory/1`, stored by `samehost scan --save`). What changed from one to a later one is
//! `samehost.scan-changes/1`, printed by `samehost scan --since`.

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

/// Name and version of the JSON format.
pub const SCAN_CHANGES_SCHEMA: &str = "samehost.scan-changes/1";

/// One of the two scans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// When it was taken, RFC 3339, UTC; none of a file of `samehost scan --json`.
    pub taken_at: Option<String>,
    /// Whether it was taken as root.
    pub as_root: bool,
    /// The file that it was read from.
    pub file: Option<String>,
}

/// A client that reaches a service elsewhere than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedHop {
    /// The hop as it is now.
    #[serde(flatten)]
    pub now: Hop,
    /// Its endpoint before.
    pub before: String,
}

/// A hop that is not in the earlier scan, but in one of the history before that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReturnedHop {
    /// The hop.
    #[serde(flatten)]
    pub hop: Hop,
    /// When a scan saw it last, RFC 3339, UTC.
    pub seen_at: String,
}

/// A service that listens elsewhere than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedService {
    /// The service.
    pub service: ServiceName,
    /// The program that serves.
    pub program: Program,
    /// Where it listens now and did not before.
    pub opened: Vec<String>,
    /// Where it listened before and does not now.
    pub closed: Vec<String>,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanChanges {
    /// Always [`SCAN_CHANGES_SCHEMA`].
    pub schema: &'static str,
    /// Version of samehost.
    pub samehost_version: String,
    /// The earlier scan; none where nothing is kept yet.
    pub since: Option<Compared>,
    /// The later scan.
    pub now: Compared,
    /// Whether anything is in the lists below, `returned_hops`, `gone_hops` and `gone_findings` aside: connections come
    /// and go, and one that is not open at the moment of a scan need not be gone for good.
    pub is_changed: bool,
    /// Hops that no earlier scan saw.
    pub new_hops: Vec<Hop>,
    /// Hops with another endpoint, and so perhaps another transport, than before.
    pub changed_hops: Vec<ChangedHop>,
    /// Hops that an earlier scan saw, but not the last one.
    pub returned_hops: Vec<ReturnedHop>,
    /// Hops without a connection now.
    pub gone_hops: Vec<Hop>,
    /// Services that did not listen before.
    pub new_services: Vec<Listening>,
    /// Services that listen elsewhere too, or on less.
    pub changed_services: Vec<ChangedService>,
    /// Services that do not listen any more.
    pub gone_services: Vec<Listening>,
    /// Findings that were not there before.
    pub new_findings: Vec<Noted>,
    /// Findings that do not hold any more.
    pub gone_findings: Vec<Noted>,
}

impl ScanChanges {
    /// Without any change.
    #[must_use]
    pub fn none(samehost_version: &str, since: Option<Compared>, now: Compared) -> Self {
        ScanChanges {
            schema: SCAN_CHANGES_SCHEMA,
            samehost_version: samehost_version.to_owned(),
            since,
            now,
            ..ScanChanges::default()
        }
    }

    /// Sets `is_changed` by the lists.
    pub fn weigh(&mut self) {
        self.is_changed = !(self.new_hops.is_empty()
            && self.changed_hops.is_empty()
            && self.new_services.is_empty()
            && self.changed_services.is_empty()
            && self.gone_services.is_empty()
            && self.new_findings.is_empty());
    }
}
