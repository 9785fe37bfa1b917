//! Hidden verbs that other parts of this program start.

use std::os::fd::AsFd;

use anyhow::Context;
use samehost_login::switch_and_connect;
use samehost_model::Endpoint;

use crate::exit::Ending;
use crate::wrong_use::WrongUse;

/// The client of `tcp+run`, which `samehost bench` starts under `samehost run`. It asks for host and port, and hands its sockets over to
/// whoever is at the other end of standard input.
pub fn hand_over(endpoint: &Endpoint) -> anyhow::Result<Ending> {
    samehost_transport::hand_over(endpoint, std::io::stdin().as_fd()).context("the socket that asks")?;
    Ok(Ending::Done)
}

/// Connects as another user, in another process' namespaces. Reads a request from standard input; writes the connection and one JSON
/// object to standard output. Never receives a password. See `samehost_login::log_in_as`.
pub fn log_in_as() -> anyhow::Result<Ending> {
    switch_and_connect().map_err(WrongUse)?;
    Ok(Ending::Done)
}
