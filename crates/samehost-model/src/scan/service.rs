//! Services, each a listening process with all its endpoints; connections, with both ends; and processes that hold sockets, with user,
//! unit, container and namespaces.

use std::fmt;

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
}

/// A listening process with all its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Its number, as seen from here.
    pub pid: u32,
    /// The process that started it; 0 when that cannot be seen.
    pub parent: u32,
    /// Its name (`comm`), at most 15 bytes; bytes that are not UTF-8 as `\xNN`.
    pub name: String,
    /// Its effective user.
    pub uid: u32,
    /// That user's name, where /etc/passwd has one.
    pub user: Option<String>,
    /// The program file, where it may be seen.
    pub executable: Option<String>,
    /// Its command line; passwords in it are replaced by `***`.
    pub command_line: Vec<String>,
    /// The systemd unit it belongs to (`mariadb.service`), by its control group.
    pub unit: Option<String>,
    /// The container it runs in, by its control group.
    pub container: Option<Container>,
    /// Inode of its network namespace, where it may be seen.
    pub network_namespace: Option<u64>,
    /// Inode of its mount namespace, where it may be seen.
    pub mount_namespace: Option<u64>,
}

impl Process {
    /// Its name, with that of its program where it gave itself another one: `PM2 v7.0.4: God (node)`. A name is the process'
    /// own to choose and to change at any moment; its program is not.
    #[must_use]
    pub fn titled(&self) -> String {
        let path = self.executable.as_deref().unwrap_or_default();
        let program = path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default();
        if program.is_empty() || program.starts_with(&self.name) || self.name.starts_with(program) {
            return self.name.clone();
        }
        format!("{} ({program})", self.name)
    }
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Container {
    /// What runs it: `docker`, `containerd`, `podman`, `crio`, `lxc`, `kubernetes`, `nspawn`.
    pub runtime: String,
    /// Its identifier or name, as the control group has it.
    pub id: String,
    /// Whether an ordinary user made it, who can call it what he likes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

/// `docker container 0123456789ab`: the first characters of an identifier, as the runtimes' own tools show it.
impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.id.chars().take(12).collect();
        write!(f, "{} container {short}", self.runtime)
    }
}
