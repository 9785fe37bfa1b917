//! The hidden verb that logs in as another user, in another's namespaces: one JSON object on standard input, so that no
//! password is in a list of processes, and one on standard output. See `samehost_login::log_in_as`.

use std::io::Write;

use anyhow::Context;
use samehost_login::{Request, switch_and_log_in};

use crate::exit::{Ending, WrongUse};

pub fn log_in_as() -> anyhow::Result<Ending> {
    let text = std::io::read_to_string(std::io::stdin()).context("standard input")?;
    let request = Request::from_json(&text).map_err(WrongUse)?;
    let answer = switch_and_log_in(&request);
    writeln!(std::io::stdout(), "{}", answer.to_json()).context("standard output")?;
    Ok(Ending::Done)
}
