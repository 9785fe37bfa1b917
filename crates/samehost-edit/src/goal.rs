//! What a connection should become.

use samehost_model::Endpoint;

/// Who may connect to a socket that a server makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The socket's owner, where the server can set it.
    pub owner: Option<String>,
    /// The socket's group, where the server can set it.
    pub group: Option<String>,
    /// Its permission bits: 0o660.
    pub mode: u32,
}

/// What a connection should become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Where the client should connect to, or the server listen.
    pub endpoint: Endpoint,
    /// Whether it stays where it listens now as well; for a client, whether it names the present endpoint as well.
    /// Ignored where [`crate::Editor::listens_on_both`] or [`crate::Editor::connects_to_both`] is not.
    pub stays: bool,
    /// A server only: who may use the new socket; nothing is written where it is none.
    pub access: Option<Access>,
    /// A server only: connections that may wait at the new socket; nothing is written where it is none.
    pub backlog: Option<u32>,
}

impl Goal {
    /// A client's goal.
    #[must_use]
    pub fn client(endpoint: Endpoint) -> Self {
        Goal { endpoint, stays: false, access: None, backlog: None }
    }
}
