//! What a connection should become.

use samehost_model::Endpoint;

/// Permissions of a socket that a server creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The socket's owner, if the server can set it.
    pub owner: Option<String>,
    /// The socket's group, if the server can set it.
    pub group: Option<String>,
    /// Its permission bits: 0o660.
    pub mode: u32,
}

/// What a connection should become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Endpoint where the client should connect, or the server listen.
    pub endpoint: Endpoint,
    /// Whether it stays at the present endpoint as well. Ignored if [`crate::Editor::listens_on_both`] or
    /// [`crate::Editor::connects_to_both`] is false.
    pub stays: bool,
    /// Servers only: permissions of the new socket; `None` writes nothing.
    pub access: Option<Access>,
    /// Servers only: backlog of the new socket; `None` writes nothing.
    pub backlog: Option<u32>,
}

impl Goal {
    /// A client's goal.
    #[must_use]
    pub fn client(endpoint: Endpoint) -> Self {
        Goal { endpoint, stays: false, access: None, backlog: None }
    }
}
