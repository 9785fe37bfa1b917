//! What changed from one scan to a later one. `samehost.scan-changes/1`, printed by `samehost scan --since`.

use serde::Serialize;

use super::inventory::{Hop, Listening, Noted, Program, ServiceName};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
            is_changed: false,
            new_hops: Vec::new(),
            changed_hops: Vec::new(),
            returned_hops: Vec::new(),
            gone_hops: Vec::new(),
            new_services: Vec::new(),
            changed_services: Vec::new(),
            gone_services: Vec::new(),
            new_findings: Vec::new(),
            gone_findings: Vec::new(),
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
