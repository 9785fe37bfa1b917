//! What a scan found, in names that stay the same from one scan to the next: without process numbers. It is what a file of
//! `samehost scan --expect` is held against, and what metrics count.

use serde::Serialize;

/// A program, by names that it keeps when it is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Program {
    /// The name of its process; none where that was not visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What runs its container: `docker`, `podman`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Whether it is in another network namespace than the scan was.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other_network: bool,
}

/// A service, by names that it keeps when it is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ServiceName {
    /// What it is, as the registry of known services calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A name to show: the known service's, else the process's.
    pub name: String,
}

/// A service with its listening stream sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// The service.
    pub service: ServiceName,
    /// The program that serves.
    pub program: Program,
    /// Where it listens: `tcp:127.0.0.1:3306`, `unix:/run/mysqld/mysqld.sock`, in ascending order.
    pub endpoints: Vec<String>,
}

/// A client program and the service that it is connected to, with the endpoint between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
pub struct Unexpected {
    /// The hop.
    #[serde(flatten)]
    pub hop: Hop,
    /// The transport that is expected: `unix` or `tcp`.
    pub expected: &'static str,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Services that listen on stream sockets.
    pub services: Vec<Listening>,
    /// Who talks to whom.
    pub hops: Vec<Hop>,
}

impl Hop {
    /// Whether it goes over TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.endpoint.starts_with("tcp")
    }
}
