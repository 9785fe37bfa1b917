//! What `verify` and `how` say: the transport in use with proofs (`samehost.verify/1`), how far a change is proved, and how a service
//! and its clients are configured for a Unix socket (`samehost.how/1`).

use serde::Serialize;

use crate::connection::ConnectionSettings;

/// Name and version of the JSON format.
pub const VERIFY_SCHEMA: &str = "samehost.verify/1";

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proof {
    /// Who says so: `kernel`, `socket pair`, `peer`, `server`.
    pub by: &'static str,
    /// What it says.
    pub says: String,
    /// The transport that follows from it: `unix` or `tcp`.
    pub transport: Option<&'static str>,
}

/// A connection that a process holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldConnection {
    /// `unix` or `tcp`.
    pub transport: &'static str,
    /// `client` when the process connected, `server` when it accepted.
    pub role: &'static str,
    /// Where the service end is: `127.0.0.1:3306`, `/run/mysqld/mysqld.sock`.
    pub service_address: String,
    /// The service's name.
    pub service: Option<String>,
    /// The process at the other end.
    pub other: Option<String>,
    /// How many connections are like this.
    pub count: u32,
}

/// How far a change is proved. Each one needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The file says so.
    Written,
    /// We logged in, as the application.
    Tried,
    /// The kernel showed a connection that a process of the application opened after the change over the new transport,
    /// and none that it opened over the old one.
    InUse,
}

impl Standing {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Standing::Written => "written",
            Standing::Tried => "tried",
            Standing::InUse => "in_use",
        }
    }
}

/// What was found of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verification {
    /// Always [`VERIFY_SCHEMA`].
    pub schema: &'static str,
    /// The target as given, without its password.
    pub target: String,
    /// The endpoint that it means.
    pub endpoint: Option<String>,
    /// The transport in use: `unix`, `tcp`, `mixed`, or none when nothing is connected.
    pub transport: Option<&'static str>,
    /// How both ends of the connection that proves it were set: congestion control and buffers.
    pub settings: Option<ConnectionSettings>,
    /// What proves it, for an endpoint or URL.
    pub proofs: Vec<Proof>,
    /// The connections, for a process.
    pub connections: Vec<HeldConnection>,
    /// Connections of the process to other hosts.
    pub remote: u32,
    /// What else a reader should know, such as what `localhost` means.
    pub notes: Vec<String>,
    /// The transport that was expected.
    pub expected: Option<String>,
    /// Whether it is the one in use; none when nothing was expected.
    pub as_expected: Option<bool>,
    /// Of a line in a configuration: `written` where no login was tried, `tried` where ours reached the server, `in_use`
    /// where a process of the application was seen to hold or open a connection there, and none elsewhere.
    pub standing: Option<Standing>,
    /// Processes of the application that are connected there.
    pub seen_there: Vec<String>,
    /// Processes of the application that are connected to the same service elsewhere.
    pub seen_elsewhere: Vec<String>,
}

/// Name and version of the JSON format.
pub const HOW_SCHEMA: &str = "samehost.how/1";

/// One client in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientWords {
    /// The language: `php`, `python`, …
    pub language: &'static str,
    /// The client: `mysqli`, `psycopg`, …
    pub client: &'static str,
    /// What `localhost` means to it: `socket`, `tcp`, or `none` where it takes no host.
    pub localhost: &'static str,
    /// How it is told to use the socket; none where it cannot.
    pub socket: Option<String>,
    /// How it is told to use TCP, or UDP where its service takes datagrams.
    pub tcp: String,
    /// What else to know.
    pub note: &'static str,
    /// Whether a test of samehost held this row against a real server.
    pub tested: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HowTo {
    /// Always [`HOW_SCHEMA`].
    pub schema: &'static str,
    /// The service, as the registry calls it.
    pub service: String,
    /// Its name for people.
    pub label: String,
    /// The path of its socket.
    pub path: String,
    /// Where that path is from: `found here`, `given` or `usual`.
    pub path_from: &'static str,
    /// What to set on the server's side, one step each; empty when it listens there already.
    pub server: Vec<String>,
    /// What the clients use in place of the socket: `tcp` or `udp`.
    #[serde(skip)]
    pub beside: &'static str,
    /// The clients.
    pub clients: Vec<ClientWords>,
}
