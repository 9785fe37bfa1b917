//! What the user asks for.

use std::path::PathBuf;
use std::time::Duration;

use samehost_model::Endpoint;

use crate::reload::ReloadWords;

/// Which way connections move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From TCP to a Unix socket.
    Unix,
    /// Back to TCP.
    Tcp,
}

impl Direction {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Unix => "unix",
            Direction::Tcp => "tcp",
        }
    }
}

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct SwitchRequest {
    /// Directories, files or services.
    pub targets: Vec<String>,
    /// Which way.
    pub to: Direction,
    /// The socket to use, instead of the one that the server has or usually has.
    pub socket: Option<PathBuf>,
    /// The TCP address to use, if the server has none.
    pub address: Option<Endpoint>,
    /// Whether servers stop listening on TCP.
    pub close_tcp: bool,
    /// The application's user, if it cannot be seen.
    pub user: Option<String>,
    /// A user that its servers may run as, beside root, the owner of the configuration and the account that their
    /// package created.
    pub server_user: Option<String>,
    /// How services are reloaded that cannot be reloaded otherwise.
    pub reloads: Vec<ReloadWords>,
    /// Whether a server that could leave its TCP port stays there for now.
    pub keep_tcp: bool,
    /// How long to observe who else uses what would be closed.
    pub observe: Duration,
    /// Whether a page is requested afterwards, through the application's own processes.
    pub has_page: bool,
}
