//! Hidden verb that connects as another user, in another process' namespaces. Reads a request from standard
//! input; writes the connection and one JSON object to standard output. Never receives a password. See
//! `samehost_login::log_in_as`.

use samehost_login::switch_and_connect;

use crate::exit::Ending;
use crate::wrong_use::WrongUse;

pub fn log_in_as() -> anyhow::Result<Ending> {
    switch_and_connect().map_err(WrongUse)?;
    Ok(Ending::Done)
}
