//! The hidden verb that connects as another user, in another's namespaces: a request on standard input, the connection
//! and one JSON object on standard output. No password comes here. See `samehost_login::log_in_as`.

use samehost_login::switch_and_connect;

use crate::exit::{Ending, WrongUse};

pub fn log_in_as() -> anyhow::Result<Ending> {
    switch_and_connect().map_err(WrongUse)?;
    Ok(Ending::Done)
}
