//! How a service is configured to listen on a Unix socket, and its clients to use it. `samehost.how/1`.

use serde::Serialize;

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
