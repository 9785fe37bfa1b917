//! Services, each a listening process with all its endpoints; and connections, with both ends.

use samehost_services::Kind;
use serde::Serialize;

use super::SocketKind;

/// How a service was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecognisedBy {
    /// By the process's name, program or command line.
    Process,
    /// By the path of its socket.
    Socket,
    /// By its port alone, for its process cannot be seen.
    Port,
    /// By what it said when it was asked, with `--greet`.
    Greeting,
}

/// A listening process with all its endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Service {
    /// What it is, as the registry of known services calls it: `mariadb`, `redis`, `nginx`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub kind: Option<Kind>,
    /// How that was recognised.
    pub recognised_by: Option<RecognisedBy>,
    /// A name to show: the known service's, else the process's.
    pub name: String,
    /// The process that answers for it; the others that hold its sockets are workers.
    pub pid: Option<u32>,
    /// How many processes hold its sockets.
    pub processes: u32,
    /// Inode of the network namespace that its sockets belong to.
    pub network_namespace: u64,
    /// Its listening sockets, as positions in the list of sockets.
    pub listeners: Vec<usize>,
    /// How many connections it has, of local and remote clients, by the sockets that are open now.
    pub connections: u32,
}

/// A connection with both its ends on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Type of its sockets.
    pub kind: SocketKind,
    /// Index of the socket that connected; for a socket pair, the first one.
    pub client: usize,
    /// Index of the accepted socket.
    pub server: usize,
    /// Index of the service that accepted it; `None` for socket pairs.
    pub service: Option<usize>,
}
