//! What a request costs more over TCP than over a Unix socket on this machine, as its last checkup measured it. A checkup keeps it in a
//! file of its own, `samehost.prices/1`; a scan that counts traffic multiplies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Range;

/// Name and version of the file.
pub const PRICES_SCHEMA: &str = "samehost.prices/1";

/// What one costs more over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// CPU time of client and server together, microseconds.
    pub cpu_us: Range,
    /// Time until the reply, microseconds.
    pub us: Range,
}

/// The prices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// [`PRICES_SCHEMA`].
    pub schema: String,
    /// When they were measured.
    pub at: String,
    /// Release of the kernel that they were measured with; another one's prices are others.
    pub kernel: String,
    /// A request, by nothing but the transport.
    pub request: Price,
    /// A connection for one request, by nothing but the transport.
    pub connection: Option<Price>,
    /// A request to a server of a kind, by the name of the kind that it behaves like.
    #[serde(default)]
    pub requests: BTreeMap<String, Price>,
    /// A connection for one request to a server of a kind.
    #[serde(default)]
    pub connections: BTreeMap<String, Price>,
}
